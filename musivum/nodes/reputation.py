"""What became of each identity: counters that outlive a restart, and one number made of them.

What others merely say of it is counted and shown, and moves nothing. What audits found fades: a
month halves it, so that who was bad once can be good again, and who was good once is not for ever.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from musivum.store import SavedReputation
from tessella.core.ids import PeerId

# An identity costs nothing to make, so the table has an end: whoever did nothing yet goes first.
MAX_KNOWN = 65_536
# A failure that musivum saw itself weighs as much as going away without a goodbye twice.
CONFIRMED_WEIGHT = 2
# A rejected audit, against one that was passed: most of what a node does is never looked at.
REJECTED_WEIGHT = 10
# Seconds after which what audits found counts half.
HALF_LIFE = 30 * 24 * 3600.0
# A score below this makes a node dearer to route through, up to twice as dear. Who is not known yet
# has just so much.
FAIR_SCORE = 0.5


@dataclass(frozen=True, slots=True)
class AuditCounts:
    """What audits found, each of them fading from when it was counted."""

    passed: float = 0.0
    rejected: float = 0.0
    slashes: float = 0.0
    at: float = 0.0
    """As of when these are right, in seconds since 1970."""

    def aged(self, now: float) -> AuditCounts:
        """The same as of `now`; a clock that was set back changes nothing."""
        left = 0.5 ** (max(0.0, now - self.at) / HALF_LIFE)
        return AuditCounts(
            self.passed * left, self.rejected * left, self.slashes * left, max(now, self.at)
        )

    def counted(
        self, now: float, *, passed: int = 0, rejected: int = 0, slashes: int = 0
    ) -> AuditCounts:
        """With so many more of each, found `now`."""
        aged = self.aged(now)
        return AuditCounts(
            aged.passed + passed, aged.rejected + rejected, aged.slashes + slashes, aged.at
        )


NO_AUDITS = AuditCounts()


class Reputations:
    """Counters by peer id. Each call gives the changed counters, to be stored."""

    def __init__(
        self,
        saved: Iterable[SavedReputation] = (),
        forget: Callable[[PeerId], None] = lambda _: None,
    ) -> None:
        """`forget` is told whose counters have to make room for another's."""
        self._known = {each.peer_id: each for each in saved}
        self._forget = forget

    def __len__(self) -> int:
        return len(self._known)

    def of(self, peer_id: PeerId) -> SavedReputation:
        """The counters of a peer; all zero for one that is not known."""
        return self._known.get(peer_id) or SavedReputation(peer_id=peer_id)

    def all(self) -> list[SavedReputation]:
        """Everybody's, by peer id."""
        return [self._known[peer_id] for peer_id in sorted(self._known)]

    def joined(self, peer_id: PeerId) -> SavedReputation:
        """It registered."""
        return self._count(peer_id, "joins")

    def went_offline(self, peer_id: PeerId) -> SavedReputation:
        """It went away without a goodbye."""
        return self._count(peer_id, "offline")

    def reported(self, reporter: PeerId, accused: PeerId) -> tuple[SavedReputation, ...]:
        """One node said that another failed it. That alone is no fault of anybody."""
        return self._count(reporter, "reports_made"), self._count(accused, "accused")

    def confirmed(self, reporter: PeerId, accused: PeerId) -> tuple[SavedReputation, ...]:
        """musivum saw for itself that the accused does not answer."""
        made = self._count(reporter, "reports_confirmed")
        return made, self._count(accused, "accused_confirmed")

    def _count(self, peer_id: PeerId, counter: str) -> SavedReputation:
        if peer_id not in self._known and len(self._known) >= MAX_KNOWN:
            lightest = min(self._known, key=lambda known: _weight(self._known[known]))
            del self._known[lightest]
            self._forget(lightest)
        before = self.of(peer_id)
        after = replace(before, **{counter: getattr(before, counter) + 1})
        self._known[peer_id] = after
        return after


def _weight(known: SavedReputation) -> int:
    return known.joins + known.offline + known.accused_confirmed


def score(known: SavedReputation, audits: AuditCounts = NO_AUDITS) -> float:
    """How reliable an identity was, above 0 to 1: what went well against all there was, one of each
    counted in advance, so that nobody begins at the end of the scale. A slash halves it.

    `audits` are to be aged already.
    """
    good = known.joins + audits.passed
    failed = known.offline + CONFIRMED_WEIGHT * known.accused_confirmed
    bad = failed + REJECTED_WEIGHT * audits.rejected
    return float((1 + good) / (2 + good + bad) * 0.5**audits.slashes)


def weight_of(found: float) -> float:
    """How many times as dear as it measures a node of this score is to routing: 1 to 2."""
    return 1.0 + max(0.0, 1.0 - found / FAIR_SCORE)
