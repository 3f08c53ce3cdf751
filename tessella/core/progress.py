"""When a neighbour is slow, and when it is silent.

No constant fits both a long prefill and a decode step, so a hop's time limit measures progress.
A stage with work in hand says so each second, with a counter that its compute thread advances
layer by layer, and that includes the stages behind it. Silence is a counter that does not move
for `limit` seconds while an answer is owed. Nothing is owed once the next stage says that it
finished every position it was sent.
"""

from __future__ import annotations

from dataclasses import dataclass

PROGRESS_SECONDS = 1.0


@dataclass(slots=True)
class Watch:
    """What one stage knows of the next. Times are seconds on the caller's clock."""

    limit: float
    sent: int = 0
    """Positions it was sent."""
    done: int = 0
    """Positions that it, and all behind it, are known to have finished."""
    counter: int = -1
    moved_at: float = 0.0
    """When it last moved, or was given work while it had none."""

    @property
    def waiting(self) -> bool:
        """Whether anything is owed."""
        return self.done != self.sent

    def send(self, upto: int, now: float, *, answered: bool, start: int = 0) -> None:
        """Work up to a position is about to be sent; `answered` if all before it is finished.

        Before `start` nothing is owed: a session that goes on holds those positions already.
        """
        if answered or not self.waiting:
            self.done, self.moved_at = max(self.sent, start), now
        self.sent = upto
        # Positions sent again after a roll-back are owed again.
        self.done = min(self.done, upto - 1)

    def hear(self, counter: int, done: int, now: float) -> None:
        """A progress frame came."""
        if counter != self.counter or done != self.done:
            self.moved_at = now
        self.counter, self.done = counter, done

    def rest(self) -> None:
        """All that was owed has come."""
        self.done = self.sent

    def silent(self, now: float) -> bool:
        """Whether the neighbour has owed something, without moving, for the limit."""
        return self.waiting and now - self.moved_at >= self.limit
