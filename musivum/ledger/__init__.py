"""What work was paid: the ledger of a musivum, in the store.

room        what others call: settle, balances, pages, heads, posts
together    many callers, one transaction       settling    what makes proofs become entries
batch       one transaction that does           kept        proofs as they are kept
mint        what was minted today               draft       entries to add, and their balances
history     pages, heads, and proofs of them    accounts    who owns what
sweeping    what time makes due                 checking    whether it agrees with itself
"""

from __future__ import annotations

from musivum.ledger.accounts import MAX_ACCOUNTS, Credits
from musivum.ledger.batch import Refuted, Settlement
from musivum.ledger.draft import Draft, Movement
from musivum.ledger.history import HEAD_ENTRIES, HEAD_SECONDS, Inclusion, SignedHead
from musivum.ledger.room import Ledger, run_ledger
from musivum.ledger.settling import Settled

__all__ = [
    "HEAD_ENTRIES",
    "HEAD_SECONDS",
    "MAX_ACCOUNTS",
    "Credits",
    "Draft",
    "Inclusion",
    "Ledger",
    "Movement",
    "Refuted",
    "Settled",
    "Settlement",
    "SignedHead",
    "run_ledger",
]
