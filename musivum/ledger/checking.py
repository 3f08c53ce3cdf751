"""Whether what is kept agrees with itself: every entry in its place, and the balances their sum.

Strategy. What was once found right is not read again: each ledger has a mark up to which it was
checked, each balance what it was then. A check counts the entries before that mark and walks those
since, a page a transaction, and the last of these compares. What is held is one number for each
account that moved.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, Row, func, select, update

from musivum.ledger.draft import frontier_of
from musivum.ledger.history import nodes
from musivum.store.ledger_tables import BALANCES, ENTRIES, LEDGERS
from tessella.core.errors import BadLedger, StoreLost
from tessella.core.ids import PeerId
from tessella.core.ledger import Frontier, Walk

# Of one transaction: a dozen milliseconds of arithmetic, during which nobody else is served.
CHECK_ENTRIES = 256
# Counting one is so much cheaper than reading it: no payload is touched.
COUNTS_AN_ENTRY = 64
# And looking where a ledger ends costs as many: its tree is made of up to 255 hashes there.
PLACE_ENTRIES = 32


@dataclass(slots=True)
class Check:
    """One check under way; `step` it until it is done."""

    is_whole: bool = False
    """Whether to begin at the first entry, whatever was checked before."""
    entries: int = 0
    """How many were read."""
    _walks: dict[PeerId, _Walked] = field(default_factory=dict)

    def step(self, connection: Connection) -> bool:
        """Read some more; returns whether that was all.

        Raises StoreLost that names the ledger and the first entry that is not what it was, or
        the account whose balance is not what the entries say.
        """
        left = CHECK_ENTRIES
        for row in connection.execute(select(LEDGERS).order_by(LEDGERS.c.origin)).all():
            known = self._walks.get(row.origin)
            if known is None:
                known = self._walks[row.origin] = _begun(row, self.is_whole)
            left -= known.count(connection, left)
            walk = known.walk
            left -= self._read(connection, walk, min(left, row.size - walk.size))
            if walk.size < row.size or known.counted < known.begin:
                return False
            if known.placed != walk.size:
                if left <= 0:
                    return False
                left -= PLACE_ENTRIES
            known.check_place(connection, row.last, row.peaks)
        self._compare(connection)
        self._mark(connection)
        return True

    def _read(self, connection: Connection, walk: Walk, count: int) -> int:
        if count <= 0:
            return 0
        asked = (
            select(ENTRIES.c.hash, ENTRIES.c.payload)
            .where(ENTRIES.c.origin == walk.origin, ENTRIES.c.sequence >= walk.size)
            .order_by(ENTRIES.c.sequence)
            .limit(count)
        )
        found = connection.execute(asked).all()
        for row in found:
            _feed(walk, row.payload, row.hash)
        if len(found) < count:
            raise _lost(walk.origin, f"entry {walk.size} is missing")
        self.entries += count
        return count

    def _compare(self, connection: Connection) -> None:
        moved: dict[str, int] = {}
        for known in self._walks.values():
            for account, micro in known.walk.balances.items():
                moved[account] = moved.get(account, 0) + micro
        total = 0
        asked = select(BALANCES.c.account, BALANCES.c.micro, BALANCES.c.checked)
        for account, micro, checked in connection.execute(asked):
            wanted = moved.pop(account, 0) + (0 if self.is_whole else checked)
            if micro != wanted:
                raise StoreLost(f"the account {account} has {micro}, its entries say {wanted}")
            total += micro
        for account, micro in moved.items():
            if micro:
                raise StoreLost(f"the account {account} is missing, its entries say {micro}")
        if total:
            raise StoreLost(f"all accounts sum to {total}")

    def _mark(self, connection: Connection) -> None:
        connection.execute(
            update(LEDGERS).values(
                checked_size=LEDGERS.c.size,
                checked_last=LEDGERS.c.last,
                checked_peaks=LEDGERS.c.peaks,
            )
        )
        changed = BALANCES.c.checked != BALANCES.c.micro
        connection.execute(update(BALANCES).where(changed).values(checked=BALANCES.c.micro))


@dataclass(slots=True)
class _Walked:
    """One ledger, as far as a check has come."""

    walk: Walk
    begin: int
    """How many entries are not read, as they were checked before."""
    counted: int = 0
    """Of these."""
    placed: int | None = None
    """How many entries it had when it was found to end as its row says."""

    def count(self, connection: Connection, left: int) -> int:
        """Count some of what is not read; returns as how many entries that are read it counts.

        Raises StoreLost where one is missing.
        """
        upto = min(self.begin, self.counted + left * COUNTS_AN_ENTRY)
        wanted = upto - self.counted
        if wanted <= 0:
            return 0
        within = ENTRIES.c.sequence >= self.counted, ENTRIES.c.sequence < upto
        asked = select(func.count()).where(ENTRIES.c.origin == self.walk.origin, *within)
        if connection.execute(asked).scalar() != wanted:
            raise _lost(self.walk.origin, f"there are other than its {self.begin} entries")
        self.counted = upto
        return -(-wanted // COUNTS_AN_ENTRY)

    def check_place(self, connection: Connection, last: bytes, peaks: bytes) -> None:
        """That the ledger ends where its row says, and that proofs will be of the same tree."""
        walk = self.walk
        if (walk.last, b"".join(walk.frontier.peaks)) != (last, peaks):
            raise _lost(walk.origin, "it does not end in the entry that it says")
        if self.placed == walk.size:
            return
        beyond = ENTRIES.c.origin == walk.origin, ENTRIES.c.sequence >= walk.size
        asked = select(ENTRIES.c.sequence).where(*beyond).limit(1)
        if connection.execute(asked).first() is not None:
            raise _lost(walk.origin, f"there are other than its {walk.size} entries")
        node = nodes(connection, walk.origin)
        for level, place, peak in _peaks(walk.frontier):
            if node(level, place) != peak:
                raise _lost(walk.origin, f"its tree has another node {place} of level {level}")
        self.placed = walk.size


def _begun(row: Row[Any], is_whole: bool) -> _Walked:
    if is_whole:
        return _Walked(Walk(row.origin), 0)
    size, frontier = row.checked_size, frontier_of(row.checked_size, row.checked_peaks)
    return _Walked(Walk(row.origin, frontier=frontier, last=row.checked_last), size)


def _feed(walk: Walk, payload: bytes, leaf: bytes) -> None:
    try:
        walk.feed(payload, leaf)
    except BadLedger as exc:
        raise _lost(walk.origin, str(exc)) from exc


def _peaks(frontier: Frontier) -> Iterator[tuple[int, int, bytes]]:
    start = 0
    for peak in frontier.peaks:
        level = (frontier.size - start).bit_length() - 1
        yield level, start >> level, peak
        start += 1 << level


def _lost(origin: PeerId, text: str) -> StoreLost:
    return StoreLost(f"the ledger of {origin} is not what was written: {text}")
