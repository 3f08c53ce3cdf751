"""Who wants a node paused, and whether it is: what each of them said, folded into one answer.

The owner's pause stands until it is over or taken back. What pauses a node by itself, a schedule
or a busy GPU, is overruled by the owner's resume until it changes its mind the next time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import Enum


class Why(Enum):
    """Whose wish a pause is. The value is the word for people and programs."""

    OWNER = "owner"
    SCHEDULE = "schedule"
    GPU = "gpu"


@dataclass(frozen=True, slots=True)
class Pauses:
    """All that was said. Times are seconds of one clock."""

    owner_until: float = -math.inf
    wanted: frozenset[Why] = frozenset()
    """What wants it paused by itself, at this moment."""
    overruled: frozenset[Why] = frozenset()
    """Those of them that the owner's resume has silenced."""

    def paused(self, until: float) -> Pauses:
        """The owner pauses; `inf` is until the owner resumes."""
        return replace(self, owner_until=until)

    def resumed(self) -> Pauses:
        """The owner wants it to serve, whoever wants it paused."""
        return replace(self, owner_until=-math.inf, overruled=self.wanted)

    def said(self, why: Why, wants: bool) -> Pauses:
        """What pauses by itself does want it, or does not. Saying it again is no news."""
        if wants:
            return replace(self, wanted=self.wanted | {why})
        return replace(self, wanted=self.wanted - {why}, overruled=self.overruled - {why})

    def reason(self, now: float) -> Why | None:
        """Why it is paused; None while it is not."""
        if now < self.owner_until:
            return Why.OWNER
        left = self.wanted - self.overruled
        return next((why for why in Why if why in left), None)

    def until(self, now: float) -> float:
        """When the owner's pause ends; `inf` where nobody knows when it does."""
        return self.owner_until if now < self.owner_until else math.inf
