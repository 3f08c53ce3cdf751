"""Where this node is in its life, and what came of the load: the facts that status tells."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from tessella.core.errors import ModelUnavailable
from tessella.core.layers import LayerRange
from tessella.core.pauses import Why
from tessella.core.peers import NodeStatus
from tessella.worker.entry import Entry
from tessella.worker.hops import Hops
from tessella.worker.memory import Memory

# When somebody should ask again, in seconds, where nobody knows how long it takes.
SOONEST_RETRY, LATEST_RETRY = 1.0, 30.0


@dataclass(frozen=True, slots=True)
class Loaded:
    """A shard, and what works with it. Whoever keeps it keeps the shard's memory."""

    entry: Entry
    hops: Hops


@dataclass(slots=True)
class Load:
    """How far the load of one range is. Written by whoever loads."""

    began: float = 0.0
    """Seconds on trio's clock."""
    loaded_bytes: int = 0
    total_bytes: int = 0
    """0 while unknown."""

    @property
    def progress(self) -> float:
        """The part that is loaded, 0 to 1."""
        return self.loaded_bytes / self.total_bytes if self.total_bytes else 0.0

    def seconds_left(self, now: float) -> float | None:
        """How long the rest takes at the pace so far; None while there is none."""
        if not self.loaded_bytes or now <= self.began:
            return None
        return (self.total_bytes - self.loaded_bytes) * (now - self.began) / self.loaded_bytes


@dataclass(frozen=True, slots=True)
class Pause:
    """Why a node is paused, and until when."""

    why: Why
    until: float = math.inf
    """Seconds on trio's clock; `inf` while nobody knows."""

    def seconds_left(self, now: float) -> float | None:
        """How long it lasts yet; None while nobody knows."""
        return None if math.isinf(self.until) else max(0.0, self.until - now)


# What holds its range, or held it, and takes no session.
_CLOSED = frozenset({NodeStatus.DRAINING, NodeStatus.PAUSED, NodeStatus.SATURATED})


@dataclass(slots=True)
class NodeState:
    """Written by `worker.node` and `worker.shards` alone; `pause` by `worker.pausing`."""

    started_at: float
    """Seconds on trio's clock."""
    status: NodeStatus = NodeStatus.PENDING_LOAD
    layers: LayerRange | None = None
    """The range that is loaded, or being loaded; None before one was assigned."""
    moving_to: LayerRange | None = None
    """The range that follows, while this one drains."""
    load: Load = field(default_factory=Load)
    loaded: Loaded | None = None
    """What answers requests; None until the shard is loaded."""
    pause: Pause | None = None
    """Set while somebody wants the node paused."""
    memory: Memory = field(default_factory=Memory)

    @property
    def takes_sessions(self) -> bool:
        """Whether a session may begin here; `unavailable` says why not."""
        return self.loaded is not None and self.status not in _CLOSED

    def begin_load(self, layers: LayerRange, now: float) -> Load:
        """Nothing is loaded, and this range is about to be."""
        self.status, self.layers, self.moving_to = NodeStatus.PENDING_LOAD, layers, None
        self.load = Load(now)
        return self.load

    def unavailable(self, now: float) -> ModelUnavailable:
        """Why no session can be opened here, and when to ask again."""
        if self.status is NodeStatus.DRAINING:
            return self._draining()
        if self.status is NodeStatus.PAUSED or self.pause is not None:
            return self._paused(now)
        if self.status is NodeStatus.SATURATED:
            return self._saturated()
        load, left = self.load, self.load.seconds_left(now)
        text = f"is still loading: {load.loaded_bytes} of {load.total_bytes} bytes"
        if self.layers is None:
            text = "waits for its mesh to assign layers to it"
        return ModelUnavailable(
            f"this node {text}",
            _soon(left),
            state="loading",
            progress=load.progress,
            eta_seconds=left,
        )

    def _draining(self) -> ModelUnavailable:
        if self.moving_to is None:
            return ModelUnavailable("this node is leaving the mesh")
        return ModelUnavailable(
            f"this node moves from layers {self.layers} to {self.moving_to}, "
            "and serves no session until it has",
            LATEST_RETRY,
            state="draining",
        )

    def _paused(self, now: float) -> ModelUnavailable:
        left = self.pause.seconds_left(now) if self.pause else None
        return ModelUnavailable(
            "this node is paused, and serves no session until it is resumed",
            _soon(left),
            state="paused",
            eta_seconds=left,
        )

    def _saturated(self) -> ModelUnavailable:
        left = self.memory.quiet_left
        return ModelUnavailable(
            "this node ran out of memory several times in a row, and takes no session for now",
            _soon(left),
            state="saturated",
            eta_seconds=left or None,
        )


def _soon(seconds: float | None) -> float:
    """When to ask again, if it takes so long as far as anybody knows."""
    return min(max(seconds or LATEST_RETRY, SOONEST_RETRY), LATEST_RETRY)
