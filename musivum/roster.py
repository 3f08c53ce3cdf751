"""Who holds which layers: the state of a tracker, moved only by the calls below.

    join        PendingLoad, the range is reserved      ready      Healthy: the range is served
    announce    the status the node says, and alive     expire     Offline after silence, then gone
    leave       gone                                    lost       Offline: it does not answer

Nothing here waits or reads a clock: `now` is seconds of any clock that never goes back. A node
that is offline and announces itself is back, with the range it had. A roster that was started
again knows nobody, and says so with UnknownWorker.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, replace

from musivum.config import MusivumConfig
from musivum.registration import Wish
from tessella.core.errors import (
    BadFrame,
    ClaimTooSmall,
    Refused,
    TooManySessions,
    UnknownWorker,
)
from tessella.core.ids import ModelId, PeerId
from tessella.core.layers import LayerRange
from tessella.core.messages import Announce
from tessella.core.peers import NodeStatus, PeerRow
from tessella.core.plan import Holding, MemoryTerms, Refuse, claim_for, fits, place

# A step cannot be measured finer, and one longer than this was not a step.
MIN_STEP_MS, MAX_STEP_MS = 0.01, 1e6
MAX_QUEUE_DEPTH = 1_000_000

_MAY_ANNOUNCE = {status.value for status in NodeStatus if status is not NodeStatus.OFFLINE}


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node as the roster knows it."""

    row: PeerRow
    terms: MemoryTerms
    joined: float
    seen: float
    is_ready: bool = False
    """Whether it ever said that its layers are loaded."""

    @property
    def status(self) -> NodeStatus:
        """Where it is in its life."""
        return NodeStatus(self.row.status)

    def with_status(self, status: NodeStatus, *, seen: float) -> Node:
        """The node in another status, heard of at that moment."""
        return replace(self, row=replace(self.row, status=status.value), seen=seen)


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


class Roster:
    """At most `max_nodes` nodes of any number of models, one row each."""

    def __init__(self, config: MusivumConfig) -> None:
        self._config = config
        self._nodes: dict[PeerId, Node] = {}

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
        found = (self._nodes[peer_id] for peer_id in sorted(self._nodes))
        return [node for node in found if model is None or node.row.model == model]

    def join(self, peer_id: PeerId, wish: Wish, now: float) -> LayerRange:
        """Reserve a range for a node. What the same key held before is free from here on.

        Raises ClaimTooSmall with the MB that would do, and TooManySessions where the list is
        full of nodes that are not offline.
        """
        self.leave(peer_id)
        layers = self._range_for(wish)
        self._make_room()
        row = PeerRow(
            peer_id=peer_id,
            model=wish.model,
            contract=wish.contract,
            layers=layers,
            total_layers=wish.terms.layers,
            status=NodeStatus.PENDING_LOAD.value,
            addrs=wish.addrs,
            device=wish.device,
            dtype=wish.dtype.value,
            queue_depth=0,
            step_ms=0.0,
        )
        self._nodes[peer_id] = Node(row=row, terms=wish.terms, joined=now, seen=now)
        return layers

    def _range_for(self, wish: Wish) -> LayerRange:
        if wish.wanted is not None:
            if fits(wish.terms, wish.wanted, wish.claim_mb):
                return wish.wanted
            needed = claim_for(wish.terms, wish.wanted)
            text = f"{wish.claim_mb} MB does not hold layers {wish.wanted}: {needed} MB would"
            raise ClaimTooSmall(f"a claim of {text}")
        placed = place(wish.terms, self._held(wish), wish.claim_mb)
        if isinstance(placed, Refuse):
            raise ClaimTooSmall(str(placed))
        return placed

    def _held(self, wish: Wish) -> list[Holding]:
        """What nodes that fit together with this one hold."""
        return [
            Holding(
                node.row.peer_id,
                node.row.layers,
                node.status,
                1000 / node.row.step_ms if node.row.step_ms else 0.0,
            )
            for node in self.nodes(wish.model)
            if (node.row.contract, node.row.total_layers) == (wish.contract, wish.terms.layers)
        ]

    def _make_room(self) -> None:
        if len(self._nodes) < self._config.max_nodes:
            return
        offline = (node for node in self._nodes.values() if node.status is NodeStatus.OFFLINE)
        oldest = min(offline, key=lambda node: (node.seen, node.row.peer_id), default=None)
        if oldest is None:
            raise TooManySessions(f"all {self._config.max_nodes} places for nodes are taken")
        del self._nodes[oldest.row.peer_id]

    def ready(self, peer_id: PeerId, layers: LayerRange, now: float) -> None:
        """The node serves its range. Raises UnknownWorker, and Refused for another range."""
        node = self.node(peer_id)
        if layers != node.row.layers:
            raise Refused(f"layers {node.row.layers} were assigned, not {layers}")
        node = replace(node, is_ready=True)
        self._nodes[peer_id] = node.with_status(NodeStatus.HEALTHY, seen=now)

    def announce(self, peer_id: PeerId, said: Announce, now: float) -> None:
        """A heartbeat. Before `ready` it proves life, and changes no status.

        Raises UnknownWorker, and BadFrame for a word or a number that no node may say.
        """
        node = self.node(peer_id)
        if said.status not in _MAY_ANNOUNCE:
            raise BadFrame(f"Announce.status: no node is {said.status[:32]!r}")
        if not 0 <= said.queue_depth <= MAX_QUEUE_DEPTH or not 0 <= said.step_ms <= MAX_STEP_MS:
            raise BadFrame("Announce: a queue or a step that cannot be")
        step_ms = max(said.step_ms, MIN_STEP_MS) if said.step_ms else 0.0
        row = replace(node.row, queue_depth=said.queue_depth, step_ms=step_ms)
        status = NodeStatus(said.status) if node.is_ready else NodeStatus.PENDING_LOAD
        self._nodes[peer_id] = replace(node, row=row).with_status(status, seen=now)

    def leave(self, peer_id: PeerId) -> None:
        """The node is gone. One that is not here is no error."""
        self._nodes.pop(peer_id, None)

    def lost(self, peer_id: PeerId, now: float) -> None:
        """The node does not answer. One that is not here is no error."""
        node = self._nodes.get(peer_id)
        if node is not None:
            self._nodes[peer_id] = node.with_status(NodeStatus.OFFLINE, seen=now)

    def expire(self, now: float, present: Container[PeerId]) -> list[Decision]:
        """What silence means by now, done and told. `present` has a connection to us.

        While it loads a node is too busy to announce itself, and its connection is its life.
        """
        decisions: list[Decision] = []
        for node in self.nodes():
            peer_id = node.row.peer_id
            if node.status is NodeStatus.PENDING_LOAD and peer_id in present:
                node = self._nodes[peer_id] = replace(node, seen=now)
            decision = self._decide(node, now)
            if isinstance(decision, WentOffline):
                self._nodes[peer_id] = node.with_status(NodeStatus.OFFLINE, seen=now)
            elif decision is not None:
                del self._nodes[peer_id]
            if decision is not None:
                decisions.append(decision)
        return decisions

    def _decide(self, node: Node, now: float) -> Decision | None:
        peer_id, silent = node.row.peer_id, now - node.seen
        if node.status is NodeStatus.OFFLINE:
            return Forgotten(peer_id) if silent >= self._config.forget_seconds else None
        if silent > self._config.offline_after:
            return WentOffline(peer_id, f"silent for {silent:.0f} s")
        loading = now - node.joined
        if node.status is NodeStatus.PENDING_LOAD and loading > self._config.load_seconds:
            return WentOffline(peer_id, f"still loading after {loading:.0f} s")
        return None
