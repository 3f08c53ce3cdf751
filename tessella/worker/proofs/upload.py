"""Brings proofs to musivum, in the order in which they were made, until each is settled.

Musivum pays a proof once however often it comes, so whatever is not known to be settled is brought
again: after a crash on either side, and while nobody answers.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Awaitable, Callable, Sequence

import trio

from tessella.core.errors import BadFrame, StoreLost, TessellaError
from tessella.core.frames import KIB
from tessella.core.proofs import SignedProof
from tessella.core.settlement import Became, Outcome
from tessella.worker.musivum_stream import is_away
from tessella.worker.proofs.book import Answer, Owed, ProofBook

logger = logging.getLogger(__name__)

Settle = Callable[[Sequence[SignedProof]], Awaitable[list[Outcome]]]
"""What became of each of these proofs: `worker.tracker.Tracker.settle`. Raises TessellaErrors."""

MAX_PROOFS = 100
# Of payloads: as base64 in JSON that is two thirds of the megabyte that a batch may have.
MAX_PROOF_BYTES = 512 * KIB
# Sessions that end at once, as the stages of a busy node do, travel together.
GATHER_SECONDS = 0.2
# While musivum is away, doubling.
FIRST_RETRY, LONGEST_RETRY = 1.0, 60.0
# Until musivum is asked again about a proof that waits for a neighbour's, doubling: that one
# usually comes in the same second.
FIRST_ASK, LONGEST_ASK = 5.0, 600.0
# Nodes that lost musivum at the same moment do not come back at the same one.
JITTER = 0.1
# For the proofs of the last sessions, while a node says goodbye.
FLUSH_SECONDS = 1.0


class Uploader:
    """Empties a book. One task runs it; it holds no resource."""

    def __init__(
        self, book: ProofBook, settle: Settle, lot: Callable[[], float] = random.random
    ) -> None:
        """`lot` gives numbers from 0 up to 1, for the jitter."""
        self._book = book
        self._settle = settle
        self._lot = lot
        self._retry = FIRST_RETRY
        self._most = MAX_PROOFS

    async def run(self) -> None:
        """Bring what is due until cancelled. Raises StoreLost.

        A book that cannot be written to is waited for as musivum is; what musivum said meanwhile
        it is asked once more.
        """
        while True:
            written = self._book.written
            try:
                if not await self._bring():
                    await self._rest(written)
            except StoreLost:
                raise
            except TessellaError as exc:
                seconds = self._jittered(self._retry)
                self._retry = min(2 * self._retry, LONGEST_RETRY)
                logger.warning("no proofs taken, again in %.0f s: %s: %s", seconds, exc.code, exc)
                await trio.sleep(seconds)

    async def flush(self) -> None:
        """Bring what is due at this moment, if that takes FLUSH_SECONDS at most. Never fails."""
        with trio.CancelScope(shield=True), trio.move_on_after(FLUSH_SECONDS):
            try:
                while await self._bring():
                    pass
            except TessellaError as exc:
                logger.info("proofs are left for the next start: %s: %s", exc.code, exc)

    async def _bring(self) -> bool:
        """Bring one batch of what is due; whether there was any."""
        owed = await self._book.due(self._most, MAX_PROOF_BYTES)
        if not owed:
            return False
        try:
            outcomes = await self._settle([each.proof for each in owed])
            _check(outcomes, owed)
        except TessellaError as exc:
            if not is_away(exc) and not exc.retry:
                await self._look_closer(owed)
            raise
        self._retry, self._most = FIRST_RETRY, min(2 * self._most, MAX_PROOFS)
        pairs = zip(owed, outcomes, strict=True)
        await self._book.record([self._answer(each, outcome) for each, outcome in pairs])
        return True

    async def _look_closer(self, owed: Sequence[Owed]) -> None:
        """Musivum would not have a batch: let no proof keep those behind it from being paid."""
        self._most = max(1, len(owed) // 2)
        if len(owed) == 1:
            (one,) = owed
            await self._book.put_off(one.sequence, self._ask_at(one.asks))

    async def _rest(self, written: trio.Event) -> None:
        """Wait until the next one is due, or `written`."""
        with trio.move_on_at(await self._book.next_due()):
            await written.wait()
            await trio.sleep(GATHER_SECONDS)

    def _answer(self, owed: Owed, outcome: Outcome) -> Answer:
        if outcome.became is Became.REFUSED:
            logger.warning("proof %d is refused: %s: %s", owed.sequence, outcome.code, outcome.text)
        return Answer(owed.sequence, outcome, self._ask_at(owed.asks))

    def _ask_at(self, asks: int) -> float:
        seconds = min(FIRST_ASK * 2.0 ** min(asks, 16), LONGEST_ASK)
        return trio.current_time() + self._jittered(seconds)

    def _jittered(self, seconds: float) -> float:
        return seconds * (1 + JITTER * self._lot())


def _check(outcomes: Sequence[Outcome], owed: Sequence[Owed]) -> None:
    if len(outcomes) != len(owed):
        raise BadFrame(f"{len(outcomes)} outcomes for {len(owed)} proofs")
