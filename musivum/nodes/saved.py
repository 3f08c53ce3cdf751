"""A node as the store keeps it, and back.

The store's times are seconds since 1970, since they outlive this process; a roster's are of a
clock that never goes back. `Clocks` knows both.
"""

from __future__ import annotations

from musivum.clocks import Clocks
from musivum.nodes.neighbours import literal_ips
from musivum.nodes.node import Load, Node
from musivum.nodes.registration import Wish
from musivum.nodes.shared import shape_of, shared_terms
from musivum.store import SavedNode
from tessella.core.errors import BadFrame
from tessella.core.formats import KvFormat
from tessella.core.peers import NodeStatus, PeerRow
from tessella.core.shape_json import encode_shape
from tessella.core.shapes import DType


def saved_node(node: Node, clocks: Clocks) -> SavedNode:
    """What the store keeps of a node."""
    row, wish = node.row, node.wish
    return SavedNode(
        peer_id=row.peer_id,
        model=row.model,
        contract=row.contract,
        layers=row.layers,
        status=row.status,
        addrs=row.addrs,
        api_url=row.api_url,
        device=row.device,
        dtype=row.dtype,
        claim_mb=wish.claim_mb,
        context=wish.context,
        slots=wish.slots,
        kv=wish.kv.value,
        shape=encode_shape(wish.shape),
        joined_at=clocks.since_1970(node.joined),
        seen_at=clocks.since_1970(node.seen),
        is_ready=node.is_ready,
        queue_depth=row.queue_depth,
        step_ms=row.step_ms,
        target=node.target,
        weights=wish.weights,
        canary=row.canary,
    )


def restored_node(saved: SavedNode, *, usable_vram_pct: int, min_vram_mb: int) -> Node:
    """The node, as of no moment in particular: `Roster.restore` says when it was heard of.

    Raises BadFrame, BadConfig or ValueError for a row that this version cannot read.
    """
    shape = shape_of(saved.shape)
    for layers in (saved.layers, saved.target):
        if layers is not None and layers.stop > shape.layers:
            raise BadFrame(f"layers {layers} of a model of {shape.layers}")
    dtype, kv = DType(saved.dtype), KvFormat(saved.kv)
    wish = Wish(
        model=saved.model,
        contract=saved.contract,
        shape=shape,
        addrs=saved.addrs,
        api_url=saved.api_url,
        device=saved.device,
        dtype=dtype,
        kv=kv,
        context=saved.context,
        slots=saved.slots,
        claim_mb=saved.claim_mb,
        terms=shared_terms(
            shape, dtype, kv, (saved.context, saved.slots), (usable_vram_pct, min_vram_mb)
        ),
        wanted=None,
        weights=saved.weights,
        is_canary=saved.canary,
        # A name is not resolved again: its node counts in its network from its next start on.
        ips=literal_ips(saved.addrs),
    )
    row = PeerRow(
        peer_id=saved.peer_id,
        model=saved.model,
        contract=saved.contract,
        layers=saved.layers,
        total_layers=shape.layers,
        status=NodeStatus(saved.status).value,
        addrs=saved.addrs,
        device=saved.device,
        dtype=saved.dtype,
        queue_depth=saved.queue_depth,
        step_ms=saved.step_ms,
        api_url=saved.api_url,
        canary=saved.canary,
    )
    return Node(
        row=row,
        wish=wish,
        joined=0.0,
        seen=0.0,
        load=Load(began_bytes=None),
        is_ready=saved.is_ready,
        target=saved.target,
    )
