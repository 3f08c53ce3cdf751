"""The standings of all workers, in memory; what changed waits to be written."""

from __future__ import annotations

from collections.abc import Iterable

from musivum.audits.standing import Standing
from musivum.clocks import Clock
from musivum.nodes.reputation import AuditCounts, Reputations, score, weight_of
from tessella.core.ids import PeerId

# An identity costs nothing to make, though a hop that is paid does: whoever did least goes first,
# and begins again as one of whom all is audited.
MAX_KNOWN = 65_536


class Standings:
    """Standings by peer id. Whoever changes one puts it back."""

    def __init__(self, saved: Iterable[Standing], reputations: Reputations, clock: Clock) -> None:
        """`clock` gives seconds since 1970."""
        self._known = {each.peer_id: each for each in saved}
        self._reputations = reputations
        self._clock = clock
        self._changed: set[PeerId] = set()

    def __len__(self) -> int:
        return len(self._known)

    def of(self, peer_id: PeerId) -> Standing:
        """What is known of a peer; of one that is not known, nothing."""
        return self._known.get(peer_id) or Standing(peer_id=peer_id)

    def put(self, standing: Standing) -> None:
        """This is what is known of that peer from here on."""
        if standing.peer_id not in self._known and len(self._known) >= MAX_KNOWN:
            self._make_room()
        self._known[standing.peer_id] = standing
        self._changed.add(standing.peer_id)

    def _make_room(self) -> None:
        now = self._clock()
        least = min(
            self._known.values(),
            key=lambda each: (each.is_barred(now) or each.owed > 0, each.is_suspect, each.hops),
        )
        del self._known[least.peer_id]
        self._changed.add(least.peer_id)

    def all(self) -> list[Standing]:
        """Everybody's, by peer id."""
        return [self._known[peer_id] for peer_id in sorted(self._known)]

    def owing(self) -> list[PeerId]:
        """Who is to be fined yet."""
        return [peer_id for peer_id, each in self._known.items() if each.owed]

    def take_changed(self) -> dict[PeerId, Standing | None]:
        """What changed since it was last asked; None for who is forgotten."""
        changed, self._changed = self._changed, set()
        return {peer_id: self._known.get(peer_id) for peer_id in changed}

    def put_back(self, peer_ids: Iterable[PeerId]) -> None:
        """These could not be written: they changed still."""
        self._changed.update(peer_ids)

    def barred(self, peer_id: PeerId) -> str | None:
        """Why a peer is let in nowhere; None for one that may come in."""
        standing = self._known.get(peer_id)
        if standing is None or not standing.is_barred(self._clock()):
            return None
        return standing.barred_for

    def is_barred(self, peer_id: PeerId) -> bool:
        """Whether a peer is let in nowhere."""
        return self.barred(peer_id) is not None

    def is_benched(self, peer_id: PeerId) -> bool:
        """Whether no ticket names a peer, since it hides what it was asked."""
        standing = self._known.get(peer_id)
        return standing is not None and standing.is_benched(self._clock())

    def is_suspect(self, peer_id: PeerId) -> bool:
        """Whether all of a peer's hops are audited for what was found of it."""
        standing = self._known.get(peer_id)
        return standing is not None and standing.is_suspect

    def is_heard(self, peer_id: PeerId) -> bool:
        """Whether a peer's word on others is asked for."""
        standing = self._known.get(peer_id)
        if standing is None:
            return True
        now = self._clock()
        is_out = standing.is_suspect or standing.is_barred(now) or now < standing.unheard_until
        return not is_out

    def counts(self, peer_id: PeerId) -> AuditCounts:
        """What audits found of a peer, as much of it as still counts."""
        return self.of(peer_id).counts.aged(self._clock())

    def score(self, peer_id: PeerId) -> float:
        """How reliable a peer was, above 0 to 1."""
        return score(self._reputations.of(peer_id), self.counts(peer_id))

    def weight(self, peer_id: PeerId) -> float:
        """How many times as dear as it measures a node is to routing: 1 to 2."""
        return weight_of(self.score(peer_id))
