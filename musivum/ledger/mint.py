"""What was minted today: read for the workers of a batch, capped, and counted."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import Connection, select, tuple_

from musivum.store.ledger_tables import MINTED
from musivum.store.rows import add, parts
from tessella.core.ids import PeerId
from tessella.core.settlement import Minted, day_of
from tessella.core.tickets import ANONYMOUS

# Stands for all requesters together.
ALL = ""
# Stands for whoever asked for work that nobody bears out; no peer has this name.
UNATTESTED = "unattested"

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
        """Write what was counted."""
        rows = [
            {"day": self._day, "worker": worker, "requester": requester, "micro": micro}
            for (worker, requester), micro in self._added.items()
        ]
        add(self._connection, MINTED, rows)


def _counted(worker: PeerId, requester: str) -> Iterable[Pair]:
    yield worker, ALL
    # There is no cap for those without a name, who are nobody in particular.
    if requester != ANONYMOUS:
        yield worker, requester
