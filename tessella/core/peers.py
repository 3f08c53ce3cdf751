"""What the mesh knows of a node, as musivum lists it and as routing reads it."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from tessella.core.addresses import PeerAddress
from tessella.core.errors import BadFrame, ModelUnavailable
from tessella.core.fields import from_plain, to_plain
from tessella.core.ids import ModelId, PeerId
from tessella.core.layers import LayerRange

# A list is one `bin` of at most MAX_LIST_FRAME, which cuts it too: a row is 300 to 1,500 bytes.
MAX_ROWS = 16_384
# What a request that waits at an entry counts against one that is this much farther away: its
# prompt has to be computed first.
QUEUED_SECONDS = 0.25


class NodeStatus(Enum):
    """Where a node is in its life. Only HEALTHY serves."""

    PENDING_LOAD = "PendingLoad"
    HEALTHY = "Healthy"
    SATURATED = "Saturated"
    PAUSED = "Paused"
    DRAINING = "Draining"
    OFFLINE = "Offline"

    @property
    def holds(self) -> bool:
        """Whether the range is reserved: one that is paused asks for another when it is resumed."""
        return self not in (NodeStatus.PAUSED, NodeStatus.OFFLINE)


class MeshHealth(Enum):
    """Whether the mesh renders a whole model."""

    HEALTHY = "healthy"
    """A ready chain renders all layers."""
    DEGRADED = "degraded"
    """There is a gap, with layers served above it."""
    INCOMPLETE = "incomplete"
    """The walk from layer 0 ends early, and nothing is served above."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerRow:
    """One node of one model."""

    peer_id: PeerId
    model: ModelId
    contract: str
    layers: LayerRange
    total_layers: int
    status: str
    """A NodeStatus value."""
    addrs: tuple[str, ...]
    device: str
    dtype: str
    queue_depth: int
    step_ms: float
    """Median milliseconds of one decode step through its layers; 0 while unmeasured."""
    api_url: str = ""
    """Where it answers over HTTP; empty if it does not."""
    canary: bool = False
    """Whether it answers wrongly on purpose: a trap for copiers, never a stage."""

    @property
    def serves(self) -> bool:
        """Whether a session may be routed through it."""
        return self.status == NodeStatus.HEALTHY.value and not self.canary


def choose_entry(rows: Iterable[PeerRow]) -> PeerAddress:
    """The least busy node that can be an entry. Raises ModelUnavailable if there is none."""
    return rank_entries(rows, {})[0]


def rank_entries(rows: Iterable[PeerRow], away: Mapping[PeerId, float]) -> list[PeerAddress]:
    """All nodes that can be an entry, the best first. Raises ModelUnavailable if there is none.

    `away` is how many seconds connecting to a peer took, infinity where it was in vain. Those
    that were measured come first, by how soon one is likely to be heard there; then those that
    were not, the least busy first; then the unreachable, as are those without an address, which
    only HTTP leads to.
    """
    entries = [row for row in rows if row.serves and row.layers.start == 0]
    if not entries:
        raise ModelUnavailable("no node that serves layer 0 is known")
    entries.sort(key=lambda row: (_wait(row, away.get(row.peer_id)), row.peer_id))
    return [PeerAddress(row.peer_id, row.addrs) for row in entries]


def _wait(row: PeerRow, away: float | None) -> tuple[int, float]:
    queued = row.queue_depth * QUEUED_SECONDS
    if away is None:
        return (1 if row.addrs else 2), queued
    return (2, queued) if math.isinf(away) else (0, away + queued)


def encode_rows(rows: Iterable[PeerRow]) -> bytes:
    """Rows as JSON arrays, fields in the order of PeerRow."""
    return json.dumps([to_plain(row) for row in rows], separators=(",", ":")).encode()


def decode_rows(data: bytes) -> list[PeerRow]:
    """The inverse. Raises BadFrame for anything else."""
    try:
        plain = json.loads(data)
    except (ValueError, RecursionError) as exc:
        raise BadFrame("a peer list that is not JSON") from exc
    if not isinstance(plain, list) or len(plain) > MAX_ROWS:
        raise BadFrame(f"a peer list that is not an array of at most {MAX_ROWS} rows")
    rows = []
    for values in plain:
        if not isinstance(values, list):
            raise BadFrame("a peer row that is not an array")
        rows.append(from_plain(PeerRow, values))
    return rows
