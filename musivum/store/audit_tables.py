"""The tables of audits as queries see them; `migrations` makes them.

standings   what is known of each worker        epochs   secrets that audits are drawn with
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Double, LargeBinary, Table, Text

from musivum.store.schema import METADATA

STANDINGS = Table(
    "standings",
    METADATA,
    Column("peer_id", Text, primary_key=True),
    Column("hops", BigInteger),
    Column("suspect_left", BigInteger),
    # Until then it is let in nowhere; 0 for one that is.
    Column("barred_until", Double),
    # Micro-credits: of a fine, what is to be taken yet, and what was taken.
    Column("owed", BigInteger),
    Column("fined", BigInteger),
    Column("rest", Text),
)

EPOCHS = Table(
    "epochs",
    METADATA,
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("secret", LargeBinary),
    Column("began_at", Double),
)
