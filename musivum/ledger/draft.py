"""What one transaction adds to a ledger: entries, and what they make of balances.

A draft reads where its ledger stands, holds what is added, and writes all of it at once, so that
entries, tree and balances are of one moment whatever ends the process.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, insert, select

from musivum.ledger.moving import Balances
from musivum.store.ledger_tables import ENTRIES, LEDGERS, TREE
from tessella.core.errors import BadRequest
from tessella.core.ids import PeerId
from tessella.core.ledger import MINT, ZERO_HASH, Entry, Frontier, Line, entry_hash, seal_entry
from tessella.core.ledger.tree import HASH_BYTES

# Roots of smaller subtrees than of 256 entries are not kept but made of the hashes of entries when
# a proof asks for one: that is one read of a page, and saves a row an entry.
KEPT_LEVEL = 8


@dataclass(frozen=True, slots=True)
class Movement:
    """What is to become an entry; the fields are those of Entry."""

    kind: str
    lines: Sequence[Line]
    reason: str = ""
    issuer: str = ""
    request_id: bytes = b""
    worker: str = ""


class Draft:
    """Entries to add to a ledger at `now`, within a transaction that is the caller's."""

    def __init__(self, connection: Connection, origin: PeerId, now: float) -> None:
        self.connection = connection
        self.origin = origin
        self.now = now
        """Seconds since 1970."""
        self.balances = Balances(connection, now)
        """Of all accounts, with what was added."""
        self.frontier, self.last = read_place(connection, origin)
        self._entries: list[dict[str, Any]] = []
        self._nodes: list[dict[str, Any]] = []

    @property
    def size(self) -> int:
        """How many entries the ledger has with those that were added."""
        return self.frontier.size

    def append(self, movement: Movement) -> Entry:
        """Add an entry of our own.

        Raises BadRequest for lines that do not sum to 0, or that take more from an account than it
        has, the mint excepted; LocalError for other breaks of the rules of entries.
        """
        self._check(movement.lines)
        entry = Entry(
            origin=self.origin,
            sequence=self.size,
            previous=self.last,
            kind=movement.kind,
            at=self.now,
            issuer=movement.issuer,
            request_id=movement.request_id,
            worker=movement.worker,
            reason=movement.reason,
            lines=tuple(movement.lines),
        )
        self.put(entry, seal_entry(entry))
        return entry

    def _check(self, lines: Sequence[Line]) -> None:
        total = sum(line.amount for line in lines)
        if total:
            raise BadRequest(f"lines that sum to {total}")
        for line in lines:
            if line.amount < 0 and line.account != MINT:
                owned = self.balances.balance(line.account)
                if owned + line.amount < 0:
                    raise BadRequest(f"{line.account} has {owned}, not {-line.amount}")

    def put(self, entry: Entry, payload: bytes) -> None:
        """Add an entry as its origin sealed it, which a Walk found to follow the ones before.

        Raises BadLedger for amounts that are more than is kept.
        """
        self.balances.move(entry)
        leaf = entry_hash(payload)
        self._entries.append(
            {"origin": self.origin, "sequence": self.size, "hash": leaf, "payload": payload}
        )
        for level, root in enumerate(self.frontier.completed(leaf)):
            if level >= KEPT_LEVEL:
                place = self.size >> level
                row = {"origin": self.origin, "level": level, "place": place, "hash": root}
                self._nodes.append(row)
        self.frontier, self.last = self.frontier.appended(leaf), leaf

    def write(self) -> None:
        """Write all that was added. The draft is used up."""
        if not self._entries:
            return
        self.connection.execute(insert(ENTRIES), self._entries)
        if self._nodes:
            self.connection.execute(insert(TREE), self._nodes)
        self.balances.write()
        self._write_place()

    def _write_place(self) -> None:
        place = {"size": self.size, "last": self.last, "peaks": b"".join(self.frontier.peaks)}
        asked = LEDGERS.update().where(LEDGERS.c.origin == self.origin).values(**place)
        if not self.connection.execute(asked).rowcount:
            self.connection.execute(insert(LEDGERS), {**new_ledger(self.origin), **place})


def new_ledger(origin: PeerId) -> dict[str, Any]:
    """The row of a ledger without entries."""
    return {
        "origin": origin,
        "size": 0,
        "last": ZERO_HASH,
        "peaks": b"",
        "head": b"",
        "head_signature": b"",
        "head_size": 0,
        "head_at": 0.0,
        "checked_size": 0,
        "checked_last": ZERO_HASH,
        "checked_peaks": b"",
    }


def read_place(connection: Connection, origin: PeerId) -> tuple[Frontier, bytes]:
    """Where a ledger stands: its tree, and the hash of its last entry."""
    asked = select(LEDGERS.c.size, LEDGERS.c.last, LEDGERS.c.peaks)
    row = connection.execute(asked.where(LEDGERS.c.origin == origin)).one_or_none()
    if row is None:
        return Frontier(), ZERO_HASH
    return frontier_of(row.size, row.peaks), row.last


def frontier_of(size: int, peaks: bytes) -> Frontier:
    """A tree as its row keeps it."""
    cut = range(0, len(peaks), HASH_BYTES)
    return Frontier(size, tuple(peaks[start : start + HASH_BYTES] for start in cut))
