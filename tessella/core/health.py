"""Whether a node runs out of memory too often to take sessions: a rule over time alone.

    streak     so many sessions in a row, within a window, ended for want of memory: it is saturated
    quiet      one whole window without another: it may take sessions again
    probation  for as long again one more is enough, and then the quiet has to last twice as long

A session that ends well gives its memory back: it ends a streak, and a probation too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from tessella.core.errors import BadConfig

# A node that fails again and again is tried once in so many windows: at 30 s, every eight minutes.
MOST_WINDOWS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class OomRule:
    """When failures for want of memory are a streak. Raises BadConfig."""

    streak: int = 3
    """Sessions in a row. At least 1."""
    window: float = 30.0
    """Seconds that they have to fall in. Above 0."""

    def __post_init__(self) -> None:
        if self.streak < 1:
            raise BadConfig(f"oom_streak must be at least 1, not {self.streak}")
        if not 0 < self.window < math.inf:
            raise BadConfig(f"streak_window_secs must be above 0, not {self.window}")


DEFAULT_RULE = OomRule()


@dataclass(frozen=True, slots=True, kw_only=True)
class OomStreak:
    """What a node's sessions ended with, as far as it matters. Times are seconds of one clock."""

    rule: OomRule = field(default_factory=OomRule)
    failed: tuple[float, ...] = ()
    """When sessions ran out of memory, in a row and within a window."""
    quiet: float = 0.0
    """Seconds without a failure that it takes to end the saturation of the moment, or the last."""
    quiet_until: float = -math.inf
    watched_until: float = -math.inf
    """The end of the probation."""

    def after_oom(self, now: float) -> OomStreak:
        """One more session ran out of memory."""
        recent = [at for at in self.failed if at > now - self.rule.window]
        noted = replace(self, failed=(*recent, now)[-self.rule.streak :])
        if self.saturated(now):
            return noted._until_quiet_for(self.quiet, now)
        if now < self.watched_until:
            longer = min(2 * self.quiet, MOST_WINDOWS * self.rule.window)
            return noted._until_quiet_for(longer, now)
        if len(noted.failed) >= self.rule.streak:
            return noted._until_quiet_for(self.rule.window, now)
        return noted

    def _until_quiet_for(self, seconds: float, now: float) -> OomStreak:
        until = now + seconds
        return replace(self, quiet=seconds, quiet_until=until, watched_until=until + seconds)

    def after_success(self, now: float) -> OomStreak:
        """A session ended well; one of those that go on while it is saturated changes nothing."""
        return self if self.saturated(now) else OomStreak(rule=self.rule)

    def saturated(self, now: float) -> bool:
        """Whether no session should be taken."""
        return now < self.quiet_until

    def quiet_left(self, now: float) -> float:
        """Seconds until sessions may be taken, if none runs out of memory meanwhile."""
        return max(0.0, self.quiet_until - now)
