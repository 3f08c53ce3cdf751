"""Whether what is kept agrees with itself: every entry in its place, and the balances their sum.

Strategy. What was once found right is not read again: each ledger has a mark up to which it was
checked, each balance what it was then. A check walks the entries since, a page a transaction, and
the last of these compares. What is held is one number for each account that moved.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from sqlalchemy import Connection, func, select, update

from musivum.ledger.draft import frontier_of
from musivum.ledger.history import nodes
from musivum.store.ledger_tables import BALANCES, ENTRIES, LEDGERS
from tessella.core.errors import BadLedger, StoreLost
from tessella.core.ids import PeerId
from tessella.core.ledger import Frontier, Walk

# Of one transaction: a dozen milliseconds of arithmetic, during which nobody else is served.
CHECK_ENTRIES = 256


@dataclass(slots=True)
class Check:
    """One check under way; `step` it until it is done."""

    is_whole: bool = False
    """Whether to begin at the first entry, whatever was checked before."""
    entries: int = 0
    """How many were read."""
    _walks: dict[PeerId, Walk] = field(default_factory=dict)

    def step(self, connection: Connection) -> bool:
        """Read some more; returns whether that was all.

        Raises StoreLost that names the ledger and the first entry that is not what it was, or
        the account whose balance is not what the entries say.
        """
        left = CHECK_ENTRIES
        for row in connection.execute(select(LEDGERS).order_by(LEDGERS.c.origin)).all():
            walk = self._walks.get(row.origin)
            if walk is None:
                size, last, peaks = row.checked_size, row.checked_last, row.checked_peaks
                walk = _begun(row.origin, size, peaks, last, self.is_whole)
                self._walks[row.origin] = walk
            left -= self._read(connection, walk, min(left, row.size - walk.size))
            if walk.size < row.size:
                return False
            _check_place(connection, walk, row.last, row.peaks)
        self._compare(connection)
        self._mark(connection)
        return True

    def _read(self, connection: Connection, walk: Walk, count: int) -> int:
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
        for walk in self._walks.values():
            for account, micro in walk.balances.items():
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


def _begun(origin: PeerId, size: int, peaks: bytes, last: bytes, is_whole: bool) -> Walk:
    if is_whole:
        return Walk(origin)
    return Walk(origin, frontier=frontier_of(size, peaks), last=last)


def _feed(walk: Walk, payload: bytes, leaf: bytes) -> None:
    try:
        walk.feed(payload, leaf)
    except BadLedger as exc:
        raise _lost(walk.origin, str(exc)) from exc


def _check_place(connection: Connection, walk: Walk, last: bytes, peaks: bytes) -> None:
    """That the ledger ends where its row says, and that proofs will be of the same tree."""
    if (walk.last, b"".join(walk.frontier.peaks)) != (last, peaks):
        raise _lost(walk.origin, "it does not end in the entry that it says")
    counted = select(func.count()).where(ENTRIES.c.origin == walk.origin)
    if connection.execute(counted).scalar() != walk.size:
        raise _lost(walk.origin, f"there are other than its {walk.size} entries")
    node = nodes(connection, walk.origin)
    for level, place, peak in _peaks(walk.frontier):
        if node(level, place) != peak:
            raise _lost(walk.origin, f"its tree has another node {place} of level {level}")


def _peaks(frontier: Frontier) -> Iterator[tuple[int, int, bytes]]:
    start = 0
    for peak in frontier.peaks:
        level = (frontier.size - start).bit_length() - 1
        yield level, start >> level, peak
        start += 1 << level


def _lost(origin: PeerId, text: str) -> StoreLost:
    return StoreLost(f"the ledger of {origin} is not what was written: {text}")
