"""Who holds which layers: the state of a tracker, moved only by the calls below.

Nothing here waits or reads a clock: `now` is seconds of any clock that never goes back. A node
that is offline and announces itself is back, with the range it had. A roster that was started
again knows whom its store kept, and tells everybody else so with UnknownWorker.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass, replace

from musivum.config import MusivumConfig
from musivum.nodes.cover import Cover
from musivum.nodes.neighbours import Neighbours
from musivum.nodes.node import Node, joined
from musivum.nodes.registration import Wish
from tessella.core.errors import ClaimTooSmall, TooManySessions, UnknownWorker
from tessella.core.ids import ModelId, PeerId
from tessella.core.layers import LayerRange
from tessella.core.messages import Announce
from tessella.core.peers import NodeStatus
from tessella.core.plan import Holding, Refuse, Reservations, claim_for, fits, place_among

# A restored node has been silent for as long as its musivum was away: it has this many beats to
# be heard of, and not the usual grace, so that the list is right after them.
RESTORED_BEATS = 2


@dataclass(frozen=True, slots=True)
class WentOffline:
    """A node is no longer counted on; its range is free to be placed."""

    peer_id: PeerId
    reason: str


@dataclass(frozen=True, slots=True)
class Forgotten:
    """An offline node left the list."""

    peer_id: PeerId


Decision = WentOffline | Forgotten
Group = tuple[str, str, int]


class Roster:
    """At most `max_nodes` nodes of any number of models, one row each."""

    def __init__(self, config: MusivumConfig) -> None:
        self._config = config
        self._nodes: dict[PeerId, Node] = {}
        self._by_model: dict[str, set[PeerId]] = {}
        self._made_room: set[PeerId] = set()
        self._covers: dict[Group, Cover] = {}
        self._neighbours = Neighbours(config.neighbours)
        self.version = 0
        """Rises whenever what is listed changes by more than a measurement."""

    def __len__(self) -> int:
        return len(self._nodes)

    def find(self, peer_id: PeerId) -> Node | None:
        """What is known of a node, if it is."""
        return self._nodes.get(peer_id)

    def node(self, peer_id: PeerId) -> Node:
        """What is known of a node. Raises UnknownWorker."""
        if peer_id not in self._nodes:
            raise UnknownWorker(f"no node {peer_id} is registered here")
        return self._nodes[peer_id]

    def nodes(self, model: ModelId | None = None) -> list[Node]:
        """Nodes of one model, or of all, by peer id."""
        known = self._nodes if model is None else self._by_model.get(model, ())
        return [self._nodes[peer_id] for peer_id in sorted(known)]

    def of_model(self, model: ModelId) -> Iterator[Node]:
        """The same in no order, for who looks at each but once."""
        return map(self._nodes.__getitem__, self._by_model.get(model, ()))

    def models(self) -> list[ModelId]:
        """The models that somebody is listed for, by name."""
        return [ModelId(model) for model in sorted(self._by_model)]

    def groups(self) -> list[Group]:
        """What nodes have to be equal in to fit together, of all that are here."""
        return list(self._covers)

    def members(self, group: Group) -> list[Node]:
        """The nodes of one group."""
        cover = self._covers.get(group)
        return [self._nodes[peer_id] for peer_id in cover.peers()] if cover else []

    def holdings(self, group: Group) -> list[Holding]:
        """What the nodes of one group hold, or have promised to."""
        cover = self._covers.get(group)
        return cover.holdings() if cover else []

    def has_gaps(self, group: Group) -> bool:
        """Whether a group that is here has layers that nobody holds or has promised."""
        return self._covers[group].has_gaps

    def version_of(self, group: Group) -> int:
        """Rises whenever the listing of a group that is here changes."""
        return self._covers[group].version

    def reservations(self, group: Group) -> Reservations:
        """The same as placement reads it."""
        return self._covers.get(group, Cover(group[2])).reservations()

    def _put(self, node: Node) -> Node:
        before = self._nodes.get(node.peer_id)
        self._nodes[node.peer_id] = node
        if before is None:
            self._neighbours.put(node.peer_id, node.wish.ips)
        cover = self._covers.setdefault(node.group, Cover(node.row.total_layers))
        cover.put(node.peer_id, tuple(node.holdings()))
        if before is None or _listing(before) != _listing(node):
            self.version += 1
            cover.version += 1
            self._by_model.setdefault(node.row.model, set()).add(node.peer_id)
        return node

    def leave(self, peer_id: PeerId) -> None:
        """The node is gone. One that is not here is no error."""
        node = self._nodes.pop(peer_id, None)
        if node is None:
            return
        self.version += 1
        self._neighbours.drop(peer_id, node.wish.ips)
        self._by_model[node.row.model].discard(peer_id)
        if not self._by_model[node.row.model]:
            del self._by_model[node.row.model]
        self._covers[node.group].put(peer_id, ())
        self._covers[node.group].version += 1
        if not self._covers[node.group]:
            del self._covers[node.group]

    def restore(self, nodes: Iterable[Node], now: float) -> None:
        """Know again whom a store kept. Who stays silent is as it was for RESTORED_BEATS."""
        beats = RESTORED_BEATS * self._config.heartbeat_seconds - self._config.expiry_seconds
        grace = min(beats, self._config.offline_after)
        seen = now - self._config.offline_after + grace
        for node in nodes:
            load = replace(node.load, began=now, advanced=now)
            self._put(replace(node, joined=now, seen=seen, load=load))

    def join(self, peer_id: PeerId, wish: Wish, now: float) -> Node:
        """Reserve a range for a node. What the same key held before is free from here on.

        Raises ClaimTooSmall with the MB that would do, and TooManySessions where the list, or its
        part for a network of the node, is full of nodes that are not offline.
        """
        self.leave(peer_id)
        layers = self.range_for(wish)
        self._make_room_nearby(wish)
        self._make_room()
        return self._put(joined(peer_id, wish, layers, now))

    def range_for(self, wish: Wish) -> LayerRange:
        """The range that a node of this wish would get now. Raises ClaimTooSmall."""
        if wish.wanted is not None:
            if fits(wish.terms, wish.wanted, wish.claim_mb):
                return wish.wanted
            needed = claim_for(wish.terms, wish.wanted)
            text = f"{wish.claim_mb} MB does not hold layers {wish.wanted}: {needed} MB would"
            raise ClaimTooSmall(f"a claim of {text}")
        held = self.reservations((wish.model, wish.contract, wish.terms.layers))
        placed = place_among(wish.terms, held, wish.claim_mb)
        if isinstance(placed, Refuse):
            raise ClaimTooSmall(str(placed))
        return placed

    def _make_room_nearby(self, wish: Wish) -> None:
        most = self._config.max_nodes_per_network
        for network in self._neighbours.networks(wish.ips) if most else ():
            while len(nearby := self._neighbours.of(network)) >= most:
                if not self._give_up_one(map(self.node, nearby)):
                    raise TooManySessions(
                        f"{len(nearby)} nodes of {network} are listed, and {most} may be (see "
                        "max_nodes_per_network and exempt)"
                    )

    def _make_room(self) -> None:
        if len(self._nodes) < self._config.max_nodes:
            return
        if not self._give_up_one(self._nodes.values()):
            raise TooManySessions(f"all {self._config.max_nodes} places for nodes are taken")

    def _give_up_one(self, nodes: Iterable[Node]) -> bool:
        """Forget the one that is offline the longest; False if none is."""
        offline = (node for node in nodes if node.status is NodeStatus.OFFLINE)
        oldest = min(offline, key=lambda node: (node.seen, node.peer_id), default=None)
        if oldest is None:
            return False
        self.leave(oldest.peer_id)
        self._made_room.add(oldest.peer_id)
        return True

    def ready(self, peer_id: PeerId, layers: LayerRange, now: float) -> Node:
        """The node serves its range. Raises UnknownWorker, and Refused for another range."""
        return self._put(self.node(peer_id).ready(layers, now))

    def announce(self, peer_id: PeerId, said: Announce, now: float) -> Node:
        """A heartbeat. Before `ready` it proves life, and changes no status.

        Raises UnknownWorker, and BadFrame for a word or a number that no node may say.
        """
        return self._put(self.node(peer_id).announced(said, now))

    def move(self, peer_id: PeerId, layers: LayerRange) -> Node:
        """Want another range of a node. Raises UnknownWorker."""
        return self._put(self.node(peer_id).moved(layers))

    def lost(self, peer_id: PeerId, now: float) -> None:
        """The node does not answer. One that is not here is no error."""
        node = self._nodes.get(peer_id)
        if node is not None:
            self._put(node.with_status(NodeStatus.OFFLINE, seen=now))

    def expire(self, now: float, present: Container[PeerId]) -> list[Decision]:
        """What silence means by now, done and told. `present` has a connection to us.

        A node that loads without saying how far it is counts as alive while it is connected.
        Whoever had to make room for another since the last call is told as Forgotten.
        """
        gone = self._made_room - self._nodes.keys()
        decisions: list[Decision] = [Forgotten(peer_id) for peer_id in sorted(gone)]
        self._made_room.clear()
        for peer_id, node in list(self._nodes.items()):
            if node.status is NodeStatus.PENDING_LOAD and peer_id in present:
                node = self._put(replace(node, seen=now))
            decision = self._decide(node, now)
            if isinstance(decision, WentOffline):
                self._put(node.with_status(NodeStatus.OFFLINE, seen=now))
            elif decision is not None:
                self.leave(peer_id)
            if decision is not None:
                decisions.append(decision)
        return decisions

    def _decide(self, node: Node, now: float) -> Decision | None:
        config, silent = self._config, now - node.seen
        if node.status is NodeStatus.OFFLINE:
            return Forgotten(node.peer_id) if silent >= config.forget_seconds else None
        if silent > config.offline_after:
            return WentOffline(node.peer_id, f"silent for {silent:.0f} s")
        if node.status is not NodeStatus.PENDING_LOAD:
            return None
        loading, still = now - node.load.began, now - node.load.advanced
        if loading > config.load_seconds:
            return WentOffline(node.peer_id, f"still loading after {loading:.0f} s")
        if node.load.total_bytes and still > config.stall_seconds:
            return WentOffline(node.peer_id, f"its load stands still for {still:.0f} s")
        return None


def _listing(node: Node) -> tuple[object, ...]:
    """What a list of nodes is made of, measurements aside."""
    return node.row.status, node.row.layers, node.row.addrs, node.row.api_url, node.group
