"""A node as musivum knows it: a value, and the values that each call makes of it.

    join        PendingLoad, the range is reserved      ready      Healthy: the range is served
    announce    the status the node says, and alive     silence    Offline after so many beats
    move        another range is wanted of it           lost       Offline: it does not answer

A node holds `row.layers` until it has begun to load the range it is moved to: what is listed is
what is loaded, or is being loaded.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from musivum.nodes.registration import Wish
from tessella.core.errors import BadFrame, Refused
from tessella.core.ids import PeerId
from tessella.core.layers import LayerRange
from tessella.core.messages import Announce
from tessella.core.peers import NodeStatus, PeerRow
from tessella.core.plan import Holding, MemoryTerms

# A step cannot be measured finer, and one longer than this was not a step.
MIN_STEP_MS, MAX_STEP_MS = 0.01, 1e6
MAX_QUEUE_DEPTH = 1_000_000
# 1 EB.
MAX_LOAD_BYTES = 1 << 60

_MAY_ANNOUNCE = {status.value for status in NodeStatus if status is not NodeStatus.OFFLINE}


@dataclass(frozen=True, slots=True)
class Load:
    """How far a node is with its layers."""

    loaded_bytes: int = 0
    total_bytes: int = 0
    """0 while unknown."""
    began: float = 0.0
    began_bytes: int | None = 0
    """How far it was then; None until it says so for the first time."""
    advanced: float = 0.0
    """When it was last further than before."""

    def noted(self, loaded: int, total: int, now: float) -> Load:
        """The load after a heartbeat that says how far it is, or nothing of that."""
        if not loaded and not total:
            return self
        moved = now if loaded > self.loaded_bytes or total != self.total_bytes else self.advanced
        first = loaded if self.began_bytes is None else self.began_bytes
        return replace(
            self, loaded_bytes=loaded, total_bytes=total, advanced=moved, began_bytes=first
        )

    @property
    def progress(self) -> float:
        """The part that is loaded, 0 to 1."""
        return min(1.0, self.loaded_bytes / self.total_bytes) if self.total_bytes else 0.0

    def eta_seconds(self, now: float) -> float | None:
        """Seconds that the rest takes at the pace so far; None while one of both is unknown."""
        done = self.loaded_bytes - (self.began_bytes or 0)
        if done <= 0 or not self.total_bytes or now <= self.began:
            return None
        left = max(0, self.total_bytes - self.loaded_bytes)
        return left * (now - self.began) / done


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node of one model. Times are seconds of a clock that never goes back."""

    row: PeerRow
    wish: Wish
    joined: float
    seen: float
    load: Load
    is_ready: bool = False
    """Whether it said that the layers of its row are loaded."""
    target: LayerRange | None = None
    """The range it is to move to, until it has begun to load that."""

    @property
    def peer_id(self) -> PeerId:
        """Whose it is."""
        return self.row.peer_id

    @property
    def terms(self) -> MemoryTerms:
        """What its layers cost."""
        return self.wish.terms

    @property
    def status(self) -> NodeStatus:
        """Where it is in its life."""
        return NodeStatus(self.row.status)

    @property
    def is_here(self) -> bool:
        """Whether it is counted on: it was heard of in time."""
        return self.status is not NodeStatus.OFFLINE

    @property
    def group(self) -> tuple[str, str, int]:
        """Nodes fit together that are equal in this."""
        return self.row.model, self.row.contract, self.row.total_layers

    def holdings(self) -> Iterator[Holding]:
        """What placement has to count: the range it holds, and the one it is moving to.

        Of a canary that is nothing: no session is served from it, so it leaves its layers open.
        """
        pace = 1000 / self.row.step_ms if self.row.step_ms else 0.0
        claim_mb = self.wish.claim_mb
        if self.row.canary:
            yield Holding(self.peer_id, self.row.layers, NodeStatus.PAUSED)
            return
        yield Holding(self.peer_id, self.row.layers, self.status, pace, claim_mb)
        if self.target is not None and self.is_here:
            yield Holding(self.peer_id, self.target, NodeStatus.PENDING_LOAD, 0.0, claim_mb)

    def with_status(self, status: NodeStatus, *, seen: float) -> Node:
        """The node in another status, heard of at that moment."""
        return replace(self, row=replace(self.row, status=status.value), seen=seen)

    def ready(self, layers: LayerRange, now: float) -> Node:
        """The node once it serves the range. Raises Refused for another than it was given."""
        wanted = self.target or self.row.layers
        if layers not in (wanted, self.row.layers):
            raise Refused(f"layers {wanted} were assigned, not {layers}")
        target = self.target if layers != wanted else None
        # A step was measured through other layers.
        step_ms = self.row.step_ms if layers == self.row.layers else 0.0
        row = replace(self.row, layers=layers, step_ms=step_ms)
        node = replace(self, row=row, is_ready=True, target=target)
        return node.with_status(NodeStatus.HEALTHY, seen=now)

    def moved(self, layers: LayerRange) -> Node:
        """The node once another range is wanted of it."""
        return replace(self, target=layers if layers != self.row.layers else None)

    def announced(self, said: Announce, now: float) -> Node:
        """The node after a heartbeat; one that says it loads has begun with its target.

        Raises BadFrame for a word or a number that no node may say.
        """
        check_announcement(said)
        step_ms = max(said.step_ms, MIN_STEP_MS) if said.step_ms else 0.0
        row = replace(self.row, queue_depth=said.queue_depth, step_ms=step_ms)
        node = replace(self, row=row)
        status = NodeStatus(said.status)
        if status is NodeStatus.PENDING_LOAD and self.is_ready:
            node = node._loading(now)
        if node.is_ready or status is NodeStatus.PAUSED:
            return node.with_status(status, seen=now)
        return node._still_loading(said, now)

    def strays(self, said: Announce) -> bool:
        """Whether a node that says this lets go of its layers although no others are wanted."""
        letting_go = said.status in (NodeStatus.DRAINING.value, NodeStatus.PENDING_LOAD.value)
        return letting_go and self.is_ready and self.target is None

    def _still_loading(self, said: Announce, now: float) -> Node:
        load = self.load.noted(said.loaded_bytes, said.total_bytes, now)
        status = NodeStatus.PENDING_LOAD
        if self.status is NodeStatus.OFFLINE:
            # Given up while it loaded: it is back once it is further, and not by talking alone.
            if load.advanced < now:
                return replace(self, load=load)
            load = replace(load, began=now, began_bytes=load.loaded_bytes)
        return replace(self, load=load).with_status(status, seen=now)

    def _loading(self, now: float) -> Node:
        layers = self.target or self.row.layers
        row = replace(self.row, layers=layers, step_ms=0.0)
        load = Load(began=now, advanced=now)
        return replace(self, row=row, target=None, is_ready=False, load=load)


def joined(peer_id: PeerId, wish: Wish, layers: LayerRange, now: float) -> Node:
    """A node that was just given a range to load."""
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
        api_url=wish.api_url,
        canary=wish.is_canary,
    )
    load = Load(began=now, advanced=now)
    return Node(row=row, wish=wish, joined=now, seen=now, load=load)


def check_announcement(said: Announce) -> None:
    """Raises BadFrame for what cannot be true of any node."""
    if said.status not in _MAY_ANNOUNCE:
        raise BadFrame(f"Announce.status: no node is {said.status[:32]!r}")
    if not 0 <= said.queue_depth <= MAX_QUEUE_DEPTH or not 0 <= said.step_ms <= MAX_STEP_MS:
        raise BadFrame("Announce: a queue or a step that cannot be")
    if not 0 <= said.loaded_bytes <= MAX_LOAD_BYTES or not 0 <= said.total_bytes <= MAX_LOAD_BYTES:
        raise BadFrame("Announce: a load that cannot be")
