"""A chain for a session; where there is none, what is missing and what would help."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby

from tessella.core.errors import ModelUnavailable
from tessella.core.ids import PeerId
from tessella.core.layers import LayerRange
from tessella.core.messages import Stage
from tessella.core.peers import NodeStatus, PeerRow
from tessella.core.plan import MemoryTerms, claim_for, terms_of, what_serves
from tessella.core.route import Coverage, choose_chain, coverage
from tessella.worker.terms import Served

# A load is a matter of seconds to minutes, and nobody here knows how far another node is.
LOADING_RETRY_SECONDS = 5.0


def find_chain(rows: Sequence[PeerRow], served: Served, first: PeerId) -> tuple[Stage, ...]:
    """The cheapest chain of rows that fit together, beginning at `first`, which serves this.

    Raises ModelUnavailable that names the layers that are missing, and for each stretch the claim
    that would repair it, or that it is being loaded.
    """
    shape = served.shard.shape
    fitting = [_as_it_is(row, served, first) for row in rows if row.contract == served.contract]
    try:
        return choose_chain(fitting, shape.layers, first=first)
    except ModelUnavailable:
        state = coverage(fitting, shape.layers)
        if not state.holes:
            raise
    # In the terms of this node: a node like it is what its operator would look for.
    terms = terms_of(shape, served.shard.dtype, context=served.context, slots=served.slots)
    raise what_would_help(state, terms)


def _as_it_is(row: PeerRow, served: Served, ourselves: PeerId) -> PeerRow:
    """A row; our own may be older than what we hold."""
    if row.peer_id != ourselves:
        return row
    return replace(row, layers=served.shard.layers, status=NodeStatus.HEALTHY.value)


def what_would_help(state: Coverage, terms: MemoryTerms) -> ModelUnavailable:
    """The error that names every hole of a model, and a way out of it."""
    pieces = [piece for hole in state.holes for piece in _pieces(hole, state.loading)]
    claims = {layers: claim_for(terms, layers) for layers, coming in pieces if not coming}
    details: dict[str, object] = {
        "state": state.health.value if claims else "loading",
        "missing": [[layers.start, layers.stop] for layers, _ in pieces],
    }
    if claims:
        # Of several stretches, what a node must offer to repair any one of them.
        details["claim_mb"] = max(claims.values())
    text = "; ".join(_line(layers, claims.get(layers)) for layers, _ in pieces)
    return ModelUnavailable(text, None if claims else LOADING_RETRY_SECONDS, **details)


def _line(layers: LayerRange, claim_mb: int | None) -> str:
    if claim_mb is None:
        return f"layers {layers} are still loading"
    return what_serves(layers, claim_mb)


def _pieces(hole: LayerRange, loading: Sequence[LayerRange]) -> Iterator[tuple[LayerRange, bool]]:
    """A hole, cut where loading begins or ends; whether each piece is being loaded."""
    coming = {layer for layers in loading for layer in layers}
    for is_coming, layers in groupby(hole, coming.__contains__):
        piece = list(layers)
        yield LayerRange(piece[0], piece[-1] + 1), is_coming
