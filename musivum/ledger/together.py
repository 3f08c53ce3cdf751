"""Callers that bring proofs at the same time share a transaction, and with it the wait for a disk.

While one is under way the next ones gather; whoever's turn it is takes all that wait along.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

import trio

from musivum.ledger.kept import Bill
from tessella.core.errors import StoreUnavailable, TessellaError
from tessella.core.proofs import MAX_BATCH
from tessella.core.settlement import Outcome

# Of one transaction, so that it is a matter of a tenth of a second: four full batches.
MAX_TOGETHER = 4 * MAX_BATCH
# A proof is kilobytes, so this is tens of megabytes; no worker waits for long before it asks again.
MAX_GATHERED = 16 * MAX_BATCH

Work = Callable[[Sequence[Bill]], Awaitable[Sequence[Outcome]]]


@dataclass(slots=True, eq=False)
class _Visit:
    bills: Sequence[Bill]
    outcomes: Sequence[Outcome] = field(default_factory=tuple)
    error: TessellaError | None = None
    is_done: bool = False


class Together:
    """Runs `work`, one call at a time, for what many callers bring."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._turn = trio.Lock()
        self._visits: list[_Visit] = []

    async def settle(self, bills: Sequence[Bill]) -> Sequence[Outcome]:
        """The outcome of each, once it is written.

        Cancelling: the caller leaves, and its proofs may be settled all the same. Errors:
        StoreUnavailable where too many wait, and what the work raises.
        """
        if sum(len(visit.bills) for visit in self._visits) + len(bills) > MAX_GATHERED:
            raise StoreUnavailable(f"{MAX_GATHERED} proofs wait to be settled")
        visit = _Visit(bills)
        self._visits.append(visit)
        try:
            async with self._turn:
                if not visit.is_done:
                    with trio.CancelScope(shield=True):  # it is others' work as well
                        await self._settle(self._next())
        finally:
            if visit in self._visits:
                self._visits.remove(visit)
        if visit.error is not None:
            raise type(visit.error)(*visit.error.args) from visit.error
        return visit.outcomes

    def _next(self) -> list[_Visit]:
        """The visits that came first, as many as a transaction should be about; at least one."""
        taken = [self._visits.pop(0)]
        count = len(taken[0].bills)
        while self._visits and count + len(self._visits[0].bills) <= MAX_TOGETHER:
            taken.append(self._visits.pop(0))
            count += len(taken[-1].bills)
        return taken

    async def _settle(self, visits: Sequence[_Visit]) -> None:
        try:
            found = iter(await self._work([bill for visit in visits for bill in visit.bills]))
            for visit in visits:
                visit.outcomes = [next(found) for _ in visit.bills]
        except TessellaError as exc:
            for visit in visits:
                visit.error = exc
        finally:
            for visit in visits:
                visit.is_done = True
