"""The memory of a node's device, as its sessions meet it: who runs out of it is counted here."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial

import trio

from tessella.core.errors import OutOfMemory
from tessella.core.health import DEFAULT_RULE, OomRule, OomStreak
from tessella.engine.device import Device
from tessella.engine.memory import free_memory
from tessella.engine.out_of_memory import release_memory, told
from tessella.worker.stage import Compute

logger = logging.getLogger(__name__)


async def _nothing_to_release() -> None:
    await trio.lowlevel.checkpoint()


class Memory:
    """One device, over all the shards that it holds one after another."""

    def __init__(
        self,
        rule: OomRule = DEFAULT_RULE,
        free: Callable[[], int] | None = None,
        release: Callable[[], Awaitable[None]] = _nothing_to_release,
    ) -> None:
        """`free` tells the bytes that are left, None where nobody can; `release` has the allocators
        give back what they keep for later."""
        self._streak = OomStreak(rule=rule)
        self._free = free
        self.release = release
        self.count = 0
        """Sessions that ran out of memory since the node started."""
        self._ran_out = trio.Event()

    @classmethod
    def of(cls, rule: OomRule, compute: Compute, device: Device) -> Memory:
        """The memory of a device that this thread computes on."""

        async def release() -> None:
            await compute.run(lambda _: release_memory(device))

        return cls(rule, partial(free_memory, device.value), release)

    @contextmanager
    def session(self) -> Iterator[None]:
        """Counts how the session in it ends.

        Raises OutOfMemory in place of whatever an allocator raised; other errors say nothing about
        memory, and a session that is cancelled neither.
        """
        try:
            yield
        except Exception as exc:
            error = told(exc)
            if not isinstance(error, OutOfMemory):
                raise
            self._note_failure()
            if error is exc:
                raise
            # Its frames hold what could not be had all of.
            exc.__traceback__ = None
            raise error from None
        self._streak = self._streak.after_success(trio.current_time())

    def _note_failure(self) -> None:
        self.count += 1
        self._streak = self._streak.after_oom(trio.current_time())
        logger.warning("a session ran out of memory: %d since the start", self.count)
        self._ran_out.set()
        self._ran_out = trio.Event()

    async def ran_out(self, seen: int) -> int:
        """Wait until the count is another than the one that was seen; what it is by then."""
        while self.count == seen:
            await self._ran_out.wait()
        return self.count

    @property
    def quiet_left(self) -> float:
        """Seconds until sessions may be taken again, at the soonest."""
        return self._streak.quiet_left(trio.current_time())

    def is_saturated(self, needed: int, already: bool) -> bool:
        """Whether no session should be taken.

        That is so after a streak, until it was quiet for long enough; and, where it was so
        `already`, until `needed` bytes are free.
        """
        if self._streak.saturated(trio.current_time()):
            return True
        return already and self._free is not None and self._free() < needed
