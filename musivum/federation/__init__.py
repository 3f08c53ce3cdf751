"""Musivums that count each other's credits: each pulls the ledgers of those that it lists.

    partners    whom an operator lists             asking      one signed call for a page
    reading     whether a page goes on with what is held, and tells no other history
    merge       what an entry of another means here, as pure rules
    taking      a page into the store, in one transaction
    kept        what is remembered of a partner    forgetting  a partner's ledger, undone
    pull        one partner, followed              room        all of them
    words       how each stands, as JSON

A partner's entries move balances as ours do, so that a credit is worth the same at both; what it
says about who cheats is advice. Nothing is taken from a partner that told two histories.
"""
