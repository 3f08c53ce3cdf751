"""What time it is: of this process, and of everybody.

What outlives a process is told in seconds since 1970; what happens in it, by a clock that never
goes back.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import trio

Clock = Callable[[], float]
"""Seconds since 1970."""


@dataclass(frozen=True, slots=True)
class Clocks:
    """The time of this process, and the time of everybody."""

    wall: Clock

    def now(self) -> float:
        """Seconds of a clock that never goes back."""
        return trio.current_time()

    def since_1970(self, moment: float) -> float:
        """When a moment of `now` was, or will be."""
        return self.wall() + moment - self.now()
