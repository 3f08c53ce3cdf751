"""The tables as queries see them. How they are made, on each database, is in `migrations`.

Those of ledger, audits and partners are in files of their own, of the same METADATA.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Double, LargeBinary, MetaData, Table, Text

METADATA = MetaData()

NODES = Table(
    "nodes",
    METADATA,
    Column("peer_id", Text, primary_key=True),
    Column("model", Text),
    Column("status", Text),
    Column("seen_at", Double),
    Column("rest", Text),
)

REPUTATION = Table(
    "reputation",
    METADATA,
    Column("peer_id", Text, primary_key=True),
    Column("joins", BigInteger),
    Column("offline", BigInteger),
    Column("reports_made", BigInteger),
    Column("reports_confirmed", BigInteger),
    Column("accused", BigInteger),
    Column("accused_confirmed", BigInteger),
)

MANIFESTS = Table(
    "manifests",
    METADATA,
    Column("model", Text, primary_key=True),
    Column("document", LargeBinary),
    Column("published_at", Double),
)

MIGRATIONS = Table(
    "migrations",
    METADATA,
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("name", Text),
    Column("applied_at", Double),
)
