"""The tables of the ledger as queries see them; `migrations` makes them.

ledgers   how far each musivum's ledger goes       entries   its payloads, in order
tree      roots of subtrees of entries             proofs    what was brought to be paid
balances  what all entries sum to                  earned    of late, by the hour
minted    today, for the caps
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Double, LargeBinary, Table, Text

from musivum.store.schema import METADATA

LEDGERS = Table(
    "ledgers",
    METADATA,
    Column("origin", Text, primary_key=True),
    Column("size", BigInteger),
    Column("last", LargeBinary),
    Column("peaks", LargeBinary),
    # The last head that was signed of it, empty before the first.
    Column("head", LargeBinary),
    Column("head_signature", LargeBinary),
    Column("head_size", BigInteger),
    Column("head_at", Double),
    # How far it was found to be what the balances say.
    Column("checked_size", BigInteger),
    Column("checked_last", LargeBinary),
    Column("checked_peaks", LargeBinary),
)

ENTRIES = Table(
    "entries",
    METADATA,
    Column("origin", Text, primary_key=True),
    Column("sequence", BigInteger, primary_key=True, autoincrement=False),
    Column("hash", LargeBinary),
    Column("payload", LargeBinary),
)

TREE = Table(
    "tree",
    METADATA,
    Column("origin", Text, primary_key=True),
    Column("level", BigInteger, primary_key=True, autoincrement=False),
    Column("place", BigInteger, primary_key=True, autoincrement=False),
    Column("hash", LargeBinary),
)

PROOFS = Table(
    "proofs",
    METADATA,
    Column("request_id", LargeBinary, primary_key=True),
    Column("worker", Text, primary_key=True),
    Column("issuer", Text, primary_key=True),
    # Empty where another musivum paid it, whose entry does not tell.
    Column("digest", LargeBinary),
    Column("previous", LargeBinary),
    Column("sequence", BigInteger),
    Column("place", BigInteger),
    Column("state", Text),
    Column("micro", BigInteger),
    Column("received_at", Double),
    # Until then the bytes are kept; NULL once they are gone.
    Column("keep_until", Double),
    Column("payload", LargeBinary),
    Column("signature", LargeBinary),
    # The entry that paid it.
    Column("origin", Text),
    Column("entry", BigInteger),
    # When one that waits is looked at again, because time went by.
    Column("due_at", Double),
)

BALANCES = Table(
    "balances",
    METADATA,
    Column("account", Text, primary_key=True),
    Column("micro", BigInteger),
    Column("earned", BigInteger),
    Column("spent", BigInteger),
    # What it was when it was last compared with the entries.
    Column("checked", BigInteger),
)

EARNED = Table(
    "earned",
    METADATA,
    Column("account", Text, primary_key=True),
    Column("hour", BigInteger, primary_key=True, autoincrement=False),
    Column("micro", BigInteger),
)

MINTED = Table(
    "minted",
    METADATA,
    Column("day", BigInteger, primary_key=True, autoincrement=False),
    Column("worker", Text, primary_key=True),
    # Empty: for all requesters together.
    Column("requester", Text, primary_key=True),
    Column("micro", BigInteger),
)
