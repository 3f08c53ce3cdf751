"""What outlives a restart: nodes, their reputation, and manifests, in SQLite or PostgreSQL.

records     the values that are kept           changes     what may be done to them
codec       values as rows, and back           schema      the tables as queries see them
migrations  how the tables came to be          rows        queries, on any connection
database    one connection, one thread         sqlite, postgres    what each does its own way
pending     what waits for the next batch      writer      the store: one writer, many callers
opening     from a URL to a store that is ours alone

One program at a time owns a database: it keeps all of it in memory, and what is here is only read
when it starts.
"""

from __future__ import annotations

from musivum.store.changes import (
    Change,
    DropNode,
    DropReputation,
    PutManifest,
    PutNode,
    PutReputation,
)
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
    "open_store",
]
