"""A few at a time in threads, and of those that wait, the one whose tier makes it due first."""

from __future__ import annotations

from dataclasses import dataclass, field

import trio

from tessella.core.errors import Busy
from tessella.core.tiers import Line, Tier


class Turns:
    """So many places, all free at first; at most `most` of `what` wait for one."""

    def __init__(self, places: int, most: int, what: str) -> None:
        self.free = places
        """Places that nobody has at this moment."""
        self.waiting: Line[Turn] = Line()
        """Who waits for a place."""
        self._most = most
        self._what = what

    def of(self, tier: Tier) -> Turn:
        """The limiter for one piece of work that comes now, in a tier."""
        return Turn(self, tier, trio.current_time())

    async def take(self, turn: Turn) -> None:
        """Wait for a place. Raises Busy where too many wait already."""
        await trio.lowlevel.checkpoint()
        if self.free:
            self.free -= 1
            return
        if len(self.waiting) >= self._most:
            raise Busy(f"{self._most} {self._what} already wait for their turn")
        self.waiting.put(turn)
        try:
            await turn.given.wait()
        finally:
            self.waiting.remove(turn)

    def leave(self) -> None:
        """Give a place up, to whoever is due: nobody who comes later takes it from them."""
        following = self.waiting.take()
        if following is None:
            self.free += 1
        else:
            following.given.set()


@dataclass(eq=False, slots=True)
class Turn:
    """What `trio.to_thread.run_sync` takes as the limiter of one call.

    A thread that its caller left behind keeps the place until it has ended.
    """

    turns: Turns
    tier: Tier
    queued_at: float
    given: trio.Event = field(default_factory=trio.Event)

    async def acquire_on_behalf_of(self, _: object) -> None:
        """Wait for the place; trio asks once for each call."""
        await self.turns.take(self)

    def release_on_behalf_of(self, _: object) -> None:
        """The thread has ended."""
        self.turns.leave()
