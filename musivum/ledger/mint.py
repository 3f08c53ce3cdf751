"""What was minted today: read for the workers of a batch, capped, and counted.

What partners mint counts as what we do: a cap of each musivum alone would be as many as there are.
"""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import Connection, bindparam, select, tuple_, update

from musivum.ledger.moving import MAX_SUM
from musivum.store.ledger_tables import MINTED
from musivum.store.rows import add, parts
from tessella.core.ids import PeerId
from tessella.core.ledger import MINT, SLASHED, Entry
from tessella.core.settlement import SECONDS_A_DAY, Minted, day_of
from tessella.core.tickets import ANONYMOUS

# Stands for all requesters together.
ALL = ""
# Stands for whoever asked for work that nobody bears out; no peer has this name.
UNATTESTED = "unattested"
# Another's clock may be anywhere, and a column ends: no entry of a later day is counted.
_LAST_DAY = 2**31

Pair = tuple[PeerId, str]
"""A worker and a requester."""


class Mint:
    """The counts of the UTC day of a moment, within a transaction."""

    def __init__(self, connection: Connection, now: float) -> None:
        self._connection = connection
        self._day = day_of(now)
        self._before: dict[Pair, int] = {}
        self._added: dict[Pair, int] = {}

    def load(self, pairs: Iterable[Pair]) -> None:
        """Read the counts of these workers, and for them of these requesters."""
        wanted = {pair for worker, asker in pairs for pair in _counted(worker, asker)}
        wanted -= self._before.keys()
        key = tuple_(MINTED.c.worker, MINTED.c.requester)
        self._before.update(dict.fromkeys(wanted, 0))
        for part in parts(wanted):
            asked = select(MINTED).where(MINTED.c.day == self._day, key.in_(part))
            for row in self._connection.execute(asked):
                self._before[row.worker, row.requester] = row.micro

    def minted(self, worker: PeerId, requester: str) -> Minted:
        """What was minted for a worker, and for it by a requester, so far today."""
        if (worker, ALL) not in self._before or (worker, requester) not in self._before:
            self.load([(worker, requester)])
        return Minted(self._sum(worker, ALL), self._sum(worker, requester))

    def _sum(self, *pair: str) -> int:
        key = (PeerId(pair[0]), pair[1])
        return self._before.get(key, 0) + self._added.get(key, 0)

    def count(self, worker: PeerId, requester: str, micro: int) -> None:
        """So much more was minted."""
        if micro:
            for pair in _counted(worker, requester):
                self._added[pair] = self._added.get(pair, 0) + micro

    def write(self) -> None:
        """Write what was counted. No count is below 0, or more than a column holds."""
        self.load(self._added.keys() - self._before.keys())
        more, less = [], []
        for (worker, requester), added in self._added.items():
            micro = _within(self._before[worker, requester], added)
            row = {"day": self._day, "worker": worker, "requester": requester, "micro": micro}
            if micro > 0:
                more.append(row)
            elif micro < 0:
                less.append({f"of_{name}": value for name, value in row.items()})
        add(self._connection, MINTED, more)
        if less:
            self._connection.execute(_LESS, less)


# A count that there is: no row is ever of less than 0, not even one that is only added to another.
_LESS = (
    update(MINTED)
    .where(
        MINTED.c.day == bindparam("of_day"),
        MINTED.c.worker == bindparam("of_worker"),
        MINTED.c.requester == bindparam("of_requester"),
    )
    .values(micro=MINTED.c.micro + bindparam("of_micro"))
)


def _within(before: int, added: int) -> int:
    return min(max(0, before + added), MAX_SUM) - before


def count_entries(
    connection: Connection, entries: Iterable[Entry], now: float, *, sign: int = 1
) -> None:
    """Count what entries took from the mint for their workers, and what reversals gave back.

    Each on the UTC day that it was made, unless that is over; of a requester where its lines name
    one, and else of all together alone. `sign` -1 takes the same away again.
    """
    mints: dict[int, Mint] = {}
    for entry in entries:
        micro, day = _minted_by(entry), day_of(entry.at)
        if micro and day_of(now) <= day <= _LAST_DAY:
            mint = mints.setdefault(day, Mint(connection, float(day * SECONDS_A_DAY)))
            mint.count(PeerId(entry.worker), _requester_of(entry), sign * micro)
    for mint in mints.values():
        mint.write()


def _minted_by(entry: Entry) -> int:
    """What its worker has out of the mint by a payment, or gives back by a reversal: below 0."""
    amounts = {line.account: line.amount for line in entry.lines}
    taken, got = -amounts.get(MINT, 0), amounts.get(entry.worker, 0)
    match entry.kind:
        case "payment":
            return max(0, min(taken, got))
        case "reversal":
            return min(0, max(taken, got))
    return 0


def _requester_of(entry: Entry) -> str:
    """Who paid a part of it; ANONYMOUS where the lines name nobody, or more than one."""
    others = {line.account for line in entry.lines} - {entry.worker, MINT, SLASHED}
    return others.pop() if len(others) == 1 else ANONYMOUS


def _counted(worker: PeerId, requester: str) -> Iterable[Pair]:
    yield worker, ALL
    # There is no cap for those without a name, who are nobody in particular.
    if requester != ANONYMOUS:
        yield worker, requester
