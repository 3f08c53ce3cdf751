"""Proofs of what this node served: seen, written down before the answer leaves, and cashed.

witness     what passes through one stage for one ticket, as digests
billing     when a stage's work becomes a proof
schema      the tables of the book
book        the node's own book: what it served and is owed, on disk
totals      what the book adds up to, for its owner
upload      brings proofs to musivum until each is settled
"""
