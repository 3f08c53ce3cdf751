"""A chain by lot: for whom we do not want to choose who serves them.

Who asks and who is paid may be one person, so the chain of a paid session is drawn among those
that are about as good as the best. Strategy: each stage is made dearer by a factor that is drawn
for its node, up to the tolerance, and the cheapest chain is looked for among these prices. A chain
costs in truth no more than by them, and the best one at most as much more as the tolerance allows:
so no chain that is found is farther from the best than that, and one search is enough.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from heapq import nsmallest
from statistics import median

from tessella.core.ids import PeerId
from tessella.core.layers import LayerRange
from tessella.core.messages import Stage
from tessella.core.peers import PeerRow
from tessella.core.plan import UNMEASURED_LAYER_MS
from tessella.core.route import HOP_MS, MAX_TWINS, choose_chain, stage_cost

# How much dearer than the best a drawn chain may be: as a part of that. What nodes measure of
# themselves differs by as much from minute to minute.
TOLERANCE = 0.2
# Nodes of one range that take part in one draw: of thousands that are alike, a chain is as well
# drawn among some of them, by lot, and found in a few milliseconds.
MAX_ALIKE = 16
# Nodes that may take the place of a stage. One or two are lost in an hour, if any.
MAX_SPARES = 8

Lot = Callable[[], float]
"""Draws a number from 0 to 1, evenly."""


def as_measured(rows: Iterable[PeerRow]) -> list[PeerRow]:
    """The rows, where who measured nothing yet is taken to be as fast as others with its range.

    A node measures while it serves, so it has to be drawn first. Where nobody did, all are equal.
    """
    rows = list(rows)
    measured: dict[LayerRange, list[float]] = {}
    for row in rows:
        if row.step_ms:
            measured.setdefault(row.layers, []).append(row.step_ms)
    usual = {layers: median(found) for layers, found in measured.items()}
    return [row if row.step_ms else replace(row, step_ms=_usual(row, usual)) for row in rows]


def _usual(row: PeerRow, usual: dict[LayerRange, float]) -> float:
    return usual.get(row.layers, UNMEASURED_LAYER_MS * len(row.layers))


def draw_chain(
    rows: Sequence[PeerRow],
    total_layers: int,
    first: PeerId | None,
    rng: Lot,
    tolerance: float = TOLERANCE,
) -> tuple[Stage, ...]:
    """One of the chains that cost at most `tolerance` more than the cheapest, by lot.

    Takes and raises what `choose_chain` does. Equal draws give equal chains, whatever the order
    of the rows.
    """
    able: dict[tuple[str, LayerRange], list[PeerRow]] = {}
    for row in rows:
        if row.serves:
            able.setdefault((row.contract, row.layers), []).append(row)
    priced = [row for row in rows if not row.serves]
    for held in sorted(able):
        for row in _drawn(able[held], first, rng, tolerance):
            priced.append(_dearer(row, 1.0 + tolerance * rng()))
    return choose_chain(priced, total_layers, first)


def _drawn(alike: list[PeerRow], first: PeerId | None, rng: Lot, tolerance: float) -> list[PeerRow]:
    """Of nodes with one range, those among which a chain is looked for."""
    ranked = sorted((stage_cost(row, len(row.layers)), row.peer_id, row) for row in alike)
    most = (1.0 + tolerance) * ranked[0][0]
    near = [row for cost, _, row in ranked if cost <= most]
    if len(near) > MAX_ALIKE:
        near = [row for _, row in nsmallest(MAX_ALIKE, [(rng(), row) for row in near], key=_lot)]
    # The cheapest as well: a chain may need several of one range.
    kept = {row.peer_id: row for row in (*(row for _, _, row in ranked[:MAX_TWINS]), *near)}
    kept |= {row.peer_id: row for row in alike if row.peer_id == first}
    return list(kept.values())


def _lot(drawn: tuple[float, PeerRow]) -> float:
    return drawn[0]


def _dearer(row: PeerRow, factor: float) -> PeerRow:
    """A node each of whose stages costs more than it does, by this factor at most.

    The hop before a stage has one price for all, so what is added for it lies on the layers.
    """
    step_ms = row.step_ms or UNMEASURED_LAYER_MS * len(row.layers)
    hop_ms = (factor - 1.0) * HOP_MS / (1 + row.queue_depth)
    return replace(row, step_ms=factor * step_ms + hop_ms)


def spares_of(
    rows: Iterable[PeerRow], chain: Sequence[Stage], most: int = MAX_SPARES
) -> tuple[Stage, ...]:
    """Nodes that could take the whole range of a stage, each as the stage that it would be.

    The cheapest of each stage comes first, then the second of each, up to `most`; a node may be
    there for several stages, and none of the chain is. `rows` are of one model; only those of the
    chain's contract fit.
    """
    known = {row.peer_id: row for row in rows}
    contract = known[chain[0].peer_id].contract
    used = {stage.peer_id for stage in chain}
    able = [
        row
        for row in known.values()
        if row.serves and row.contract == contract and row.peer_id not in used
    ]
    ranked: list[tuple[int, int, Stage]] = []
    for place, stage in enumerate(chain):
        best = nsmallest(
            most,
            (
                (stage_cost(row, len(stage.layers)), row.peer_id)
                for row in able
                if row.layers.holds(stage.layers)
            ),
        )
        ranked += [
            (rank, place, Stage(peer_id, stage.layers)) for rank, (_, peer_id) in enumerate(best)
        ]
    return tuple(stage for _, _, stage in sorted(ranked, key=lambda one: one[:2])[:most])
