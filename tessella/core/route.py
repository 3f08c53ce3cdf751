"""Which nodes serve a session, in which order: the shortest path over (node, layer).

A stage costs the time its layers take there, as often as work is queued before it, and one hop.
Costs are whole microseconds and exactly linear in layers, so a cut between two stages is best at
a boundary that some node has anyway, and only those are tried. The search is A*: what lies ahead
is bounded by the same problem without the rule that a node appears once, which is cheap to solve
backwards and nearly always the answer.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from tessella.core.errors import ModelUnavailable
from tessella.core.ids import PeerId
from tessella.core.layers import LayerRange, holes
from tessella.core.messages import Stage
from tessella.core.peers import MeshHealth, NodeStatus, PeerRow
from tessella.core.plan import UNMEASURED_LAYER_MS

# One transfer of a hidden state between two machines in one region.
HOP_MS = 10.0
# Paths kept before the one with the fewest stages will do. Only a mesh in which one node is
# wanted twice comes near it; a tenth of a second of this machine's time, spent for each session.
MAX_PATHS = 20_000
# Of nodes with one and the same range, the cheapest that are looked at: a chain that uses more
# of them would have to leave that range and come back as often.
MAX_TWINS = 4

_US_PER_MS = 1000


@dataclass(frozen=True, slots=True)
class Coverage:
    """What of a model is served, by the nodes that fit together best."""

    health: MeshHealth
    holes: tuple[LayerRange, ...]
    """Layers that no node serves."""
    loading: tuple[LayerRange, ...]
    """Ranges that nodes are loading, of the same contract."""

    def __str__(self) -> str:
        return "; ".join(self._missing(hole) for hole in self.holes) or "every layer is served"

    def _missing(self, hole: LayerRange) -> str:
        coming = {layer for piece in self.loading for layer in piece}
        word = "still loading" if coming.issuperset(hole) else "served by nobody"
        return f"layers {hole} are {word}"


def coverage(rows: Iterable[PeerRow], total_layers: int) -> Coverage:
    """How much of a model its rows serve. Only Healthy nodes cover.

    Nodes of different contracts do not fit together: the one that serves most layers counts.
    """
    fitting = [row for row in rows if row.total_layers == total_layers]
    groups = [_coverage(group, total_layers) for group in _contracts(fitting)]
    return min(groups, key=_missing_layers, default=_coverage([], total_layers))


def _contracts(rows: Iterable[PeerRow]) -> list[list[PeerRow]]:
    groups: dict[str, list[PeerRow]] = {}
    for row in rows:
        groups.setdefault(row.contract, []).append(row)
    return [groups[contract] for contract in sorted(groups)]


def _coverage(rows: Sequence[PeerRow], total: int) -> Coverage:
    # Of thousands of nodes most hold a range that others hold too.
    served = sorted({row.layers for row in rows if row.serves})
    pending = NodeStatus.PENDING_LOAD.value
    loading = [row.layers for row in rows if row.status == pending and not row.canary]
    gaps = holes(served, total)
    above = bool(gaps) and any(layers.stop > gaps[0].stop for layers in served)
    broken = MeshHealth.DEGRADED if above else MeshHealth.INCOMPLETE
    return Coverage(broken if gaps else MeshHealth.HEALTHY, tuple(gaps), tuple(sorted(loading)))


def _missing_layers(found: Coverage) -> int:
    return sum(len(hole) for hole in found.holes)


def choose_chain(
    rows: Sequence[PeerRow], total_layers: int, first: PeerId | None = None
) -> tuple[Stage, ...]:
    """The cheapest chain whose ranges tile `[0, total_layers)`, each node once.

    `rows` are of one model. `first` forces that node to be stage 0. A stage may use a part of
    its node's range. Raises ModelUnavailable that names the missing layers, or says that `first`
    does not serve layer 0.
    """
    able = [row for row in rows if row.serves and row.total_layers == total_layers]
    searches = [_Search(group, total_layers) for group in _contracts(able)]
    found = [best for search in searches if (best := search.best(first)) is not None]
    if found:
        return _stages(min(found)[1])
    state = coverage(rows, total_layers)
    if first is not None and not state.holes:
        raise ModelUnavailable(f"{first} serves no layer 0 of this model that others go on from")
    raise ModelUnavailable(str(state))


def stage_cost(row: PeerRow, layers: int) -> int:
    """Microseconds, one hop included, that this many layers of a node take."""
    step_ms = row.step_ms or UNMEASURED_LAYER_MS * len(row.layers)
    layer = max(1, round(step_ms * _US_PER_MS / len(row.layers)))
    return layer * layers * (1 + row.queue_depth) + round(HOP_MS * _US_PER_MS)


# Each stage as (node, where it stops); it starts where the one before it stopped.
_Path = tuple[tuple[PeerId, int], ...]


def _stages(path: _Path) -> tuple[Stage, ...]:
    starts = (0, *(stop for _, stop in path))
    return tuple(
        Stage(peer_id, LayerRange(start, stop))
        for start, (peer_id, stop) in zip(starts, path, strict=False)
    )


class _Search:
    """One search over the nodes of one contract."""

    def __init__(self, rows: Sequence[PeerRow], total: int) -> None:
        self._total = total
        self._rows = rows
        edges = {edge for row in rows for edge in (row.layers.start, row.layers.stop)}
        # Costs are linear, so the best cuts are edges; but a slow node that has to be the entry
        # hands over as soon as it may, after layer 0.
        self._cuts = sorted(edges | {0, 1, total})
        self._twins = _cheapest_twins(rows)
        # From each boundary, the cost of the cheapest path to the end, nodes used at will.
        self._ahead: dict[int, int] = {total: 0}
        # And the first stage of that path.
        self._way: dict[int, tuple[PeerRow, int]] = {}
        self._look_ahead()

    def best(self, first: PeerId | None) -> tuple[int, _Path] | None:
        """The cheapest path and its cost; None where there is none."""
        return self._straight(first) or self._search(first)

    def _straight(self, first: PeerId | None) -> tuple[int, _Path] | None:
        """The path that the look-ahead took, if it takes no node twice: then none is cheaper."""
        path: _Path = ()
        cost = reach = 0
        while reach < self._total:
            step = self._way.get(reach) if path or first is None else self._from(first)
            if step is None:
                return None
            row, stop = step
            cost += stage_cost(row, stop - reach)
            path, reach = (*path, (row.peer_id, stop)), stop
        return (cost, path) if len({peer_id for peer_id, _ in path}) == len(path) else None

    def _from(self, first: PeerId) -> tuple[PeerRow, int] | None:
        """The cheapest first stage of one node."""
        steps = self._next(0, (), first)
        return min(
            steps,
            key=lambda step: (stage_cost(*step) + self._ahead[step[1]], -step[1]),
            default=None,
        )

    def _search(self, first: PeerId | None) -> tuple[int, _Path] | None:
        # The cheapest estimate comes first, then the longest reach; the path itself breaks ties.
        paths: list[tuple[int, int, int, _Path]] = [(0, 0, 0, ())]
        while paths:
            _, reach, spent, path = heapq.heappop(paths)
            if -reach == self._total:
                return spent, path
            for row, stop in self._next(-reach, path, first):
                cost = spent + stage_cost(row, stop + reach)
                bound = cost + self._ahead[stop]
                heapq.heappush(paths, (bound, -stop, cost, (*path, (row.peer_id, stop))))
            if len(paths) > MAX_PATHS:
                return self._fewest(first)
        return None

    def _next(self, start: int, path: _Path, first: PeerId | None) -> Iterator[tuple[PeerRow, int]]:
        """The stages that may come next: a node that is not used yet, and where it stops."""
        used = {peer_id for peer_id, _ in path}
        forced = first is not None and not path
        rows = [row for row in self._rows if row.peer_id == first] if forced else self._twins
        for row in rows:
            if row.peer_id not in used:
                yield from ((row, stop) for stop in self._stops(row, start))

    def _stops(self, row: PeerRow, start: int) -> Sequence[int]:
        """Where a stage of this node may stop that starts here, if the end can be reached."""
        if not row.layers.start <= start < row.layers.stop:
            return ()
        return [stop for stop in self._ahead if start < stop <= row.layers.stop]

    def _look_ahead(self) -> None:
        """From the last boundary down. Costs are linear in layers, so where a node hands over best
        does not depend on where its stage starts: one best stop is carried along for each."""
        prices = [
            (stage_cost(row, 0), stage_cost(row, 1) - stage_cost(row, 0)) for row in self._twins
        ]
        best_stops: list[tuple[int, int] | None] = [None] * len(self._twins)
        for start, after in zip(self._cuts[-2::-1], self._cuts[:0:-1], strict=True):
            found: tuple[int, int, PeerId, int] | None = None
            for number, row in enumerate(self._twins):
                if not row.layers.start <= start < row.layers.stop:
                    continue
                hop, layer = prices[number]
                best = best_stops[number]
                if after in self._ahead:
                    handed = (layer * after + self._ahead[after], -after)
                    best = best_stops[number] = min(best, handed) if best else handed
                if best:
                    way = (hop + best[0] - layer * start, best[1], row.peer_id, number)
                    found = min(found, way) if found else way
            if found:
                self._ahead[start] = found[0]
                self._way[start] = self._twins[found[3]], -found[1]

    def _fewest(self, first: PeerId | None) -> tuple[int, _Path] | None:
        """The path that always takes the node that reaches farthest, and so none twice."""
        path: _Path = ()
        cost = reach = 0
        while reach < self._total:
            steps = list(self._next(reach, path, first))
            if not steps:
                return None
            row, stop = max(steps, key=lambda step: step[1])
            cost += stage_cost(row, stop - reach)
            path, reach = (*path, (row.peer_id, stop)), stop
        return cost, path


def _cheapest_twins(rows: Sequence[PeerRow]) -> list[PeerRow]:
    """For each range, the nodes that hold just it and are the cheapest of them."""
    twins: dict[LayerRange, list[PeerRow]] = {}
    for row in sorted(rows, key=lambda row: (stage_cost(row, len(row.layers)), row.peer_id)):
        twins.setdefault(row.layers, []).append(row)
    return [row for group in twins.values() for row in group[:MAX_TWINS]]
