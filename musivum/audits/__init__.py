"""Sampled audits: who is looked at, by whom, what they find, and what follows.

    desk        the room behind both doors: tasks, reports, marks
    epochs      the secrets that audits are drawn with, and what the ledger says of them
    drawing     which hops are audited                 needs       what it takes to audit one
    queue       the audits that are open               choosing    who may audit what
    giving      who is given which task                hearing     what is done once it is told
    opinions    what a report says, and when enough was said
    standing    what is known of one worker            standings   of all of them
    keeping     standings and epochs in the store      penalties   fines, bars and appeals
    marks       what canaries marked

musivum measures nothing and never sees a row: it chooses, compares what it is told, and keeps
count. No single word costs anybody more than being looked at more closely.
"""
