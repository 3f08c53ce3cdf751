"""A record of a node, for whoever reads or shows one."""

from __future__ import annotations

from tessella.core.identity import Identity
from tessella.core.ids import ModelId
from tessella.core.layers import LayerRange
from tessella.core.records import NodeRecord

NODE = Identity(bytes(32))
NOW = 1_000_000.0
RECORD = NodeRecord(
    peer_id=NODE.peer_id,
    model=ModelId("m"),
    contract="c",
    layers=LayerRange(0, 4),
    total_layers=8,
    status="Healthy",
    addrs=("/ip4/203.0.113.7/tcp/4001",),
    device="cpu",
    dtype="f32",
    queue_depth=1,
    step_ms=2.5,
    sequence=7,
    made_at=NOW,
    life=60.0,
)
