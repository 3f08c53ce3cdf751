"""Who works with the shard of the moment: all of them end before it goes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import trio

from tessella.core.errors import LocalError
from tessella.worker.state import Loaded, NodeState

# What a session that is cancelled may take to end: a layer of a large prefill, and two farewells.
END_SECONDS = 30.0

T = TypeVar("T")


class Serving:
    """Lends the loaded shard to conversations, one by one."""

    def __init__(self, state: NodeState) -> None:
        self.state = state
        self._users: set[trio.CancelScope] = set()
        self._last_left = trio.Event()

    async def lend(self, work: Callable[[Loaded], Awaitable[T]]) -> T:
        """What `work` returns of what is loaded; it may keep nothing of it.

        Raises ModelUnavailable, with the reason, where nothing is loaded, the node is paused or out
        of memory, or the shard is about to go; and where the work was ended because it went. Raises
        OutOfMemory where an allocator had no more.
        """
        state = self.state
        if state.loaded is None or not state.takes_sessions:
            raise state.unavailable(trio.current_time())
        with trio.CancelScope() as scope:
            self._users.add(scope)
            try:
                with state.memory.session():
                    return await work(state.loaded)
            finally:
                self._users.discard(scope)
                if not self._users:
                    self._last_left.set()
        # Not from inside: the cancellation that it would then be chained to has seen the shard.
        raise state.unavailable(trio.current_time())

    def check_loaded(self) -> None:
        """Raises ModelUnavailable, with the reason, while nothing is loaded."""
        if self.state.loaded is None:
            raise self.state.unavailable(trio.current_time())

    async def unused(self) -> None:
        """Wait until nobody works with the shard. One task at a time may wait."""
        while self._users:
            self._last_left = trio.Event()
            await self._last_left.wait()

    async def end(self) -> None:
        """End every conversation that is left; their memory is free when this returns.

        Raises LocalError if one does not end within END_SECONDS: it may be in a driver for good.
        """
        for scope in self._users:
            scope.cancel()
        with trio.move_on_after(END_SECONDS):
            await self.unused()
        if self._users:
            raise LocalError(f"{len(self._users)} sessions did not end within {END_SECONDS:g} s")
