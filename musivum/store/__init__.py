"""What outlives a restart: nodes, their reputation, and manifests, in SQLite or PostgreSQL.

records     the values that are kept           changes     what may be done to them
codec       values as rows, and back           schema      the tables as queries see them
migrations  how the tables came to be          rows        queries, on any connection
database    one connection, one thread         sqlite, postgres    what each does its own way
pending     what waits for the next batch      errands     a caller's own work, in a transaction
writer      the store: one writer, many callers
opening     from a URL to a store that is ours alone
ledger_tables   what `musivum.ledger` keeps, which grows and is not held in memory
audit_tables    what `musivum.audits` keeps   partner_tables   what `musivum.federation` does

One program at a time owns a database: of the mesh it keeps all in memory, and reads it only when it
starts.
"""

from __future__ import annotations

from musivum.store import audit_tables, ledger_tables, partner_tables
from musivum.store.changes import (
    Change,
    DropNode,
    DropReputation,
    PutManifest,
    PutNode,
    PutReputation,
)
from musivum.store.errands import Transacts
from musivum.store.opening import open_store
from musivum.store.records import Saved, SavedManifest, SavedNode, SavedReputation
from musivum.store.writer import FLUSH_SECONDS, Store

__all__ = [
    "FLUSH_SECONDS",
    "Change",
    "DropNode",
    "DropReputation",
    "PutManifest",
    "PutNode",
    "PutReputation",
    "Saved",
    "SavedManifest",
    "SavedNode",
    "SavedReputation",
    "Store",
    "Transacts",
    "audit_tables",
    "ledger_tables",
    "open_store",
    "partner_tables",
]
