"""A node that makes way: for its owner, for a schedule, or for somebody else's work on its GPU."""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import NoReturn

import trio

from tessella.core.errors import BadRequest
from tessella.core.pauses import Pauses, Why
from tessella.worker.assignment import Assignment
from tessella.worker.state import NodeState, Pause

logger = logging.getLogger(__name__)

# What is longer than a month is a node that was switched off.
MAX_PAUSE_MINUTES = 31 * 24 * 60.0

Say = Callable[[bool], None]
Watch = Callable[[Say], Awaitable[NoReturn]]
"""Says whether the node should be paused, as often as it likes, until cancelled."""


class Pausing:
    """Whether the node is paused. `worker.shards` has it happen: it rests while the assignment
    does."""

    def __init__(self, assignment: Assignment, state: NodeState, stop: trio.Event) -> None:
        """`stop` is set for a node that should finish its sessions and leave."""
        self._assignment = assignment
        self._state = state
        self._stop = stop
        self._pauses = Pauses()
        self._changed = trio.Event()

    def pause(self, minutes: float | None = None) -> None:
        """The owner wants it paused, for so long or until `resume`. Raises BadRequest."""
        if minutes is None:
            self._take(self._pauses.paused(math.inf))
            return
        if not 0 < minutes <= MAX_PAUSE_MINUTES:
            raise BadRequest(f"minutes: above 0 and at most {MAX_PAUSE_MINUTES:g}, not {minutes:g}")
        self._take(self._pauses.paused(trio.current_time() + 60.0 * minutes))

    def resume(self) -> None:
        """The owner wants it to serve; what else wants it paused has to change its mind first."""
        self._take(self._pauses.resumed())

    def drain(self) -> None:
        """The owner wants it to finish its sessions, and to end."""
        self._stop.set()

    async def run(self, watches: Sequence[tuple[Why, Watch]] = ()) -> None:
        """End what ends by itself, and heed what pauses by itself, until cancelled."""
        async with trio.open_nursery() as nursery:
            for why, watch in watches:
                nursery.start_soon(watch, partial(self._heed, why))
            nursery.start_soon(self._end_in_time)

    def _heed(self, why: Why, wants: bool) -> None:
        self._take(self._pauses.said(why, wants))

    async def _end_in_time(self) -> NoReturn:
        while True:
            self._changed = trio.Event()
            left = self._pauses.until(trio.current_time()) - trio.current_time()
            with trio.move_on_after(left):
                await self._changed.wait()
            self._take(self._pauses)

    def _take(self, pauses: Pauses) -> None:
        """What follows from all that was said."""
        now, before, state = trio.current_time(), self._state.pause, self._state
        if pauses != self._pauses:
            self._changed.set()
        self._pauses = pauses
        why = pauses.reason(now)
        state.pause = None if why is None else Pause(why, pauses.until(now))
        if (before is None) is (why is None):
            return
        if why is None:
            logger.info("resumed")
            self._assignment.wake()
        else:
            logger.info("paused: %s", why.value)
            self._assignment.rest()
