"""The values that are kept. Each raises ValueError that names the field a database would refuse."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tessella.core.ids import ModelId, PeerId
from tessella.core.layers import LayerRange

# What both databases keep in one column.
MAX_COUNT = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedNode:
    """A node of the roster, as it was last written."""

    peer_id: PeerId
    model: ModelId
    contract: str
    layers: LayerRange
    status: str
    """A NodeStatus value."""
    addrs: tuple[str, ...]
    api_url: str
    """Where it answers over HTTP; empty if it does not."""
    device: str
    dtype: str
    claim_mb: int
    context: int
    """Positions of one slot."""
    slots: int
    kv: str
    """How it keeps its KV."""
    shape: bytes
    """The model's shape, JSON in UTF-8."""
    joined_at: float
    """Unix seconds."""
    seen_at: float
    """Unix seconds."""
    is_ready: bool
    """Whether it ever said that its layers are loaded."""
    queue_depth: int
    step_ms: float
    """Median milliseconds of one decode step; 0 while unmeasured."""
    target: LayerRange | None = None
    """The range it was told to move to, until it begins to load that."""
    weights: str = ""
    """The format of the weights that it loads; empty if it did not say."""
    canary: bool = False
    """Whether it answers wrongly on purpose."""

    def __post_init__(self) -> None:
        _texts(self, "peer_id", "model", "status")
        _counts(self, "claim_mb", "context", "slots", "queue_depth")
        _numbers(self, "joined_at", "seen_at", "step_ms")
        try:
            self.shape.decode()
        except UnicodeDecodeError:
            raise ValueError("SavedNode.shape: not UTF-8") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedReputation:
    """What a peer did, counted since it was first met."""

    peer_id: PeerId
    joins: int = 0
    offline: int = 0
    """How often it fell silent."""
    reports_made: int = 0
    reports_confirmed: int = 0
    """How many of its reports a probe bore out."""
    accused: int = 0
    accused_confirmed: int = 0
    """How many reports of it a probe bore out."""

    def __post_init__(self) -> None:
        _texts(self, "peer_id")
        _counts(self, "joins", "offline", "reports_made", "reports_confirmed")
        _counts(self, "accused", "accused_confirmed")


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedManifest:
    """The manifest of a model, as its bytes were published."""

    model: ModelId
    document: bytes
    published_at: float
    """Unix seconds."""

    def __post_init__(self) -> None:
        _texts(self, "model")
        _numbers(self, "published_at")


@dataclass(frozen=True, slots=True)
class Saved:
    """All that is kept, each kind by its key."""

    nodes: tuple[SavedNode, ...] = ()
    reputation: tuple[SavedReputation, ...] = ()
    manifests: tuple[SavedManifest, ...] = ()


Record = SavedNode | SavedReputation | SavedManifest


def _texts(record: Record, *names: str) -> None:
    for name in names:
        value: str = getattr(record, name)
        # PostgreSQL keeps no NUL, and neither of them half a surrogate pair.
        if "\0" in value or _is_torn(value):
            raise ValueError(f"{type(record).__name__}.{name}: not a text: {value!r}")


def _is_torn(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def _counts(record: Record, *names: str) -> None:
    for name in names:
        value: int = getattr(record, name)
        if not 0 <= value <= MAX_COUNT:
            raise ValueError(f"{type(record).__name__}.{name}: no count: {value}")


def _numbers(record: Record, *names: str) -> None:
    for name in names:
        value: float = getattr(record, name)
        if not (math.isfinite(value) and value >= 0):
            raise ValueError(f"{type(record).__name__}.{name}: not zero or more: {value}")
