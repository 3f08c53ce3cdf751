"""Whether a model can be asked now; if not, which layers are missing and what would help."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from musivum.nodes.node import Node
from tessella.core.errors import ModelUnavailable
from tessella.core.ids import ModelId
from tessella.core.layers import LayerRange
from tessella.core.peers import NodeStatus, PeerRow
from tessella.core.plan import MemoryTerms, least_claim, what_serves
from tessella.core.route import Coverage, coverage

# Where nobody can say when it will be there: as long as a node takes to come back.
RETRY_SECONDS = 30.0
# And at least, so that nobody asks in a loop; at most, so that no node sends everybody away.
LEAST_RETRY_SECONDS, MOST_RETRY_SECONDS = 1.0, 300.0


@dataclass(frozen=True, slots=True)
class Pending:
    """A range that a node is loading."""

    node: Node
    eta_seconds: float | None

    @property
    def layers(self) -> LayerRange:
        """Which."""
        return self.node.row.layers

    @property
    def progress(self) -> float:
        """How far, 0 to 1."""
        return self.node.load.progress


def pending(nodes: Sequence[Node], now: float) -> list[Pending]:
    """What is being loaded, by its first layer."""
    loading = [
        node for node in nodes if node.status is NodeStatus.PENDING_LOAD and not node.row.canary
    ]
    found = [Pending(node, node.load.eta_seconds(now)) for node in loading]
    return sorted(found, key=lambda one: (one.layers, one.node.peer_id))


def unavailable(
    model: ModelId, nodes: Sequence[Node], terms: MemoryTerms, now: float
) -> ModelUnavailable | None:
    """Why a model cannot be asked; None if it can.

    The error's details are `state` (`loading` if every missing layer is on its way, else
    `missing`), `missing`, `claim_mb` of the first hole that nobody is loading, `progress` and
    `eta_seconds` of the slowest load that is waited for.
    """
    rows = _distinct(nodes)
    found = coverage(rows, terms.layers)
    if not found.holes:
        return None
    coming = _waited_for(pending(nodes, now), found.holes)
    wanted = _unclaimed(rows, terms.layers)
    if wanted:
        claims = "; ".join(what_serves(hole, least_claim(terms, hole)) for hole in wanted)
        return _error(model, claims, found, coming, least_claim(terms, wanted[0]))
    layers = ", ".join(str(hole) for hole in found.holes)
    progress = min(one.progress for one in coming)
    return _error(model, f"layers {layers} are loading, {progress:.0%}", found, coming, 0)


def _distinct(nodes: Iterable[Node]) -> list[PeerRow]:
    """The rows of nodes, one of those that cover alike: of thousands some hundred are left."""
    rows = (node.row for node in nodes)
    alike = {(row.contract, row.total_layers, row.layers, row.status): row for row in rows}
    return list(alike.values())


def _unclaimed(rows: Iterable[PeerRow], total_layers: int) -> tuple[LayerRange, ...]:
    """The layers that will be served by nobody when all that is loading is there."""
    loading, done = NodeStatus.PENDING_LOAD.value, NodeStatus.HEALTHY.value
    after = (replace(row, status=done) if row.status == loading else row for row in rows)
    return coverage(after, total_layers).holes


def _waited_for(coming: Iterable[Pending], holes: Iterable[LayerRange]) -> list[Pending]:
    """The loads that fill holes, and fill them first: nobody waits for the others."""
    missing = {layer for hole in holes for layer in hole}
    found = []
    for one in sorted(coming, key=_eta):
        if not missing.isdisjoint(one.layers):
            missing.difference_update(one.layers)
            found.append(one)
    return found


def _eta(one: Pending) -> float:
    return math.inf if one.eta_seconds is None else one.eta_seconds


def _error(
    model: ModelId, text: str, found: Coverage, coming: Sequence[Pending], claim_mb: int
) -> ModelUnavailable:
    etas = [one.eta_seconds for one in coming]
    known = [eta for eta in etas if eta is not None]
    eta = max(known) if known and len(known) == len(etas) and not claim_mb else None
    within = min(MOST_RETRY_SECONDS, max(LEAST_RETRY_SECONDS, eta or 0.0))
    retry = RETRY_SECONDS if eta is None else within
    return ModelUnavailable(
        f"{model}: {text}",
        retry_after=math.ceil(retry),
        state="missing" if claim_mb else "loading",
        missing=[[hole.start, hole.stop] for hole in found.holes],
        claim_mb=claim_mb,
        progress=min((one.progress for one in coming), default=None),
        eta_seconds=None if eta is None else round(eta, 1),
    )
