"""Whether a GPU is busy with somebody else's work, and has been for long enough to make way."""

from __future__ import annotations

from dataclasses import dataclass, replace

# A game that loads, or a video that is skipped through, is no reason to move a model.
STEADY_SECONDS = 60.0
# Points of utilisation below the limit before it counts as idle: what sways is no reason either.
GAP_PCT = 10.0


def foreign_pct(utilisation_pct: float, ours: float) -> float:
    """What others use of a GPU, in percent: what is used, without the part of the time in which we
    computed ourselves, 0 to 1."""
    return max(0.0, utilisation_pct - 100.0 * min(1.0, max(0.0, ours)))


@dataclass(frozen=True, slots=True)
class ForeignLoad:
    """What samples of one GPU say so far. Times are seconds of one clock."""

    limit_pct: float
    is_busy: bool = False
    """Whether others have used more than the limit for STEADY_SECONDS, and not less since."""
    since: float | None = None
    """When samples began to say the opposite, without a break."""

    def after(self, foreign: float | None, now: float) -> ForeignLoad:
        """One more sample in percent; None for one that could not be taken, which says nothing."""
        limit = self.limit_pct - GAP_PCT if self.is_busy else self.limit_pct
        if foreign is None or (foreign > limit) is self.is_busy:
            return replace(self, since=None)
        since = now if self.since is None else self.since
        if now - since >= STEADY_SECONDS:
            return ForeignLoad(self.limit_pct, not self.is_busy)
        return replace(self, since=since)
