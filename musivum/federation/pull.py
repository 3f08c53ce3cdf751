"""One partner, followed: a page, and the next one, and what it is like between them.

Where to go on is read from the store each time, so a restart, a page that was torn and one that
came twice are all the same.
"""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass
from enum import StrEnum
from functools import partial

import trio

from musivum.clocks import Clock
from musivum.federation.asking import Caller, ask_page
from musivum.federation.forgetting import undo_some
from musivum.federation.kept import Kept, read_kept, write_refusal
from musivum.federation.partners import Partner
from musivum.federation.reading import Page, Rewritten, read_page
from musivum.federation.taking import Taken, take
from musivum.federation.words import PartnerBody, evidence_body
from musivum.ledger import Ledger
from musivum.store.errands import Transacts
from tessella.core.errors import StoreLost, TessellaError
from tessella.core.ledger import Entry

logger = logging.getLogger(__name__)

# Between two tries of a partner that does not answer: twice as long each time, up to this.
MAX_PAUSE_SECONDS = 600.0


class State(StrEnum):
    """How it is with a partner."""

    FOLLOWING = "following"
    AWAY = "away"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Books:
    """Where a partner's pages go."""

    ledger: Ledger
    store: Transacts
    """Of the same ledger."""


class Follower:
    """Follows one partner. Its methods are for one trio run; it holds nothing to be closed."""

    def __init__(
        self, partner: Partner, caller: Caller, books: Books, clock: Clock, seconds: float
    ) -> None:
        """`clock` gives seconds since 1970; `seconds` is how often to ask for what is new."""
        self.partner = partner
        self._caller = caller
        self._books = books
        self._clock = clock
        self._seconds = seconds
        self._turn = trio.Lock()
        self._woken = trio.Event()
        self._failures = 0
        self._kept: Kept | None = None
        self._pulled_at: float | None = None
        self._error = "no page was asked for yet"

    @property
    def state(self) -> State:
        """How it is with the partner."""
        if self._kept is not None and self._kept.reason:
            return State.REFUSED
        return State.AWAY if self._error else State.FOLLOWING

    async def run(self) -> None:
        """Pull until cancelled. Raises StoreLost."""
        while True:
            pause = await self._step()
            with trio.move_on_after(pause):
                await self._woken.wait()
            self._woken = trio.Event()

    def wake(self) -> None:
        """Ask at once where the partner is away: it is heard of."""
        if self.state is State.AWAY:
            self._woken.set()

    async def _step(self) -> float:
        """Pull once; returns how long to wait after that, in seconds."""
        try:
            while await self.pull():
                pass
        except StoreLost:
            raise
        except TessellaError as exc:
            self._failures += 1
            self._failed(f"{exc.code}: {exc.told()}")
            # The exponent is bounded with the pause: 2.0 ** 1100 is no float.
            return min(MAX_PAUSE_SECONDS, self._seconds * 2.0 ** min(self._failures, 16))
        return math.inf if self.state is State.REFUSED else self._seconds

    def _failed(self, error: str) -> None:
        if self._failures == 1:
            logger.warning("the ledger of %s is not followed: %s", self.partner, error)
        self._error = error

    async def pull(self) -> bool:
        """Ask for one page, and take it; returns whether there is more.

        A partner that is refused is not asked. Raises what `ask_page`, `read_page` and `take`
        raise, and nothing is taken then.
        """
        async with self._turn:
            kept = await self.load()
            if kept.reason:
                return False
            answer = await ask_page(self._caller, self.partner, kept.size, self._clock())
            found = await read_page(kept.held, answer.latest, answer.payloads)
            if isinstance(found, Rewritten):
                await self._refuse(found)
                return False
            is_new = found.entries or found.latest.head != (
                kept.held.latest and kept.held.latest.head
            )
            if is_new:
                await self._take(found)
            self._has_pulled()
            return found.size < found.latest.head.size

    async def load(self) -> Kept:
        """What is known of the partner. Raises StoreUnavailable."""
        origin = self.partner.peer_id
        self._kept = await self._books.store.transact(partial(read_kept, origin=origin))
        return self._kept

    async def _take(self, page: Page) -> None:
        taken = await self._books.ledger.write(partial(take, page=page))
        await self.load()
        self._tell(taken)

    def _tell(self, taken: Taken) -> None:
        if taken.slashes:
            first: Entry = taken.slashes[0]
            named = ", ".join(line.account for line in first.lines) or "nobody"
            logger.warning(
                "%s slashed %d times, first %s: %r",
                self.partner,
                len(taken.slashes),
                named,
                first.reason,
            )
        if taken.reversals:
            logger.warning(
                "%s had paid %d proofs that were paid here too: taken back",
                self.partner,
                len(taken.reversals),
            )

    def _has_pulled(self) -> None:
        if self._failures:
            logger.warning("the ledger of %s is followed again", self.partner)
        self._failures, self._error, self._pulled_at = 0, "", self._clock()

    async def _refuse(self, found: Rewritten) -> None:
        await self._books.store.transact(partial(write_refusal, found=found))
        await self.load()
        logger.error("nothing is taken from %s any more: %s", self.partner, found.reason)

    async def forget(self) -> int:
        """Undo all that was taken from the partner, and begin anew; returns how many entries.

        Raises StoreUnavailable, after which some may be gone and the rest is where it was.
        """
        async with self._turn, self._books.ledger.checking:
            undone = 0
            undo = partial(undo_some, origin=self.partner.peer_id, now=self._clock())
            while some := await self._books.store.transact(undo):
                undone += some
            await self.load()
        self._failures, self._error = 0, "no page was asked for yet"
        self._woken.set()
        return undone

    def body(self) -> PartnerBody:
        """How it stands."""
        kept = self._kept
        size = kept.size if kept else 0
        latest = kept.held.latest if kept else None
        return PartnerBody(
            peer_id=self.partner.peer_id,
            url=self.partner.url,
            state=self.state.value,
            size=size,
            behind=max(0, latest.head.size - size) if latest else 0,
            pulled_at=self._pulled_at,
            error=(kept.reason if kept else "") or self._error,
            slashes=kept.slashes if kept else 0,
            reversals=kept.reversals if kept else 0,
            evidence=[evidence_body(seen) for seen in kept.evidence] if kept else [],
        )
