"""The table of what is remembered of other musivums; `migrations` makes it.

Their entries are in the tables of the ledger, under their names.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, LargeBinary, Table, Text

from musivum.store.schema import METADATA

PARTNERS = Table(
    "partners",
    METADATA,
    Column("origin", Text, primary_key=True),
    # Signed heads, packed: the one that is being read up to, the latest, and two that disagree.
    Column("goal", LargeBinary),
    Column("latest", LargeBinary),
    Column("evidence", LargeBinary),
    # Why nothing is taken from it any more; empty while it is followed.
    Column("reason", Text),
    # Of its entries: penalties that it spoke; of ours: payments taken back because it paid.
    Column("slashes", BigInteger),
    Column("reversals", BigInteger),
)
