"""What became of each identity: counters that outlive a restart, and one number made of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from musivum.store import SavedReputation
from tessella.core.ids import PeerId

# An identity costs nothing to make, so the table has an end: whoever did nothing yet goes first.
MAX_KNOWN = 65_536
# A failure that musivum saw itself weighs as much as going away without a goodbye twice.
CONFIRMED_WEIGHT = 2


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


def score(known: SavedReputation) -> float:
    """How reliable an identity was, above 0 to 1: joins against joins and failures, one of each
    counted in advance, so that nobody begins at the end of the scale."""
    bad = known.offline + CONFIRMED_WEIGHT * known.accused_confirmed
    return (1 + known.joins) / (2 + known.joins + bad)
