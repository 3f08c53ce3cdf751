"""What would repair a mesh of the nodes that it has: one that now serves elsewhere.

A node goes where `place` would put a newcomer with its claim, if that is worth the loading:

    layers that nobody holds      whoever lets the shortest prefix grow, and by most
    the weakest layers            whoever leaves all that it touches at least 20 % above them

One node moves at a time. No move opens a gap: who moves serves nothing while it loads, so each
layer that it leaves must have another Healthy node. Saturated ones do not count: where all others
are full, the node is needed most. A node whose claim is unknown stays where it is.

Moves end. One that fills a gap adds layers that are held, and none takes one away. Any other
lifts at least one layer from the weakest to 20 % above, and lets none that it touches end below
that; so between two levels 20 % apart there are never more such moves than layers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from tessella.core.ids import PeerId
from tessella.core.layers import LayerRange
from tessella.core.peers import NodeStatus
from tessella.core.plan import (
    MICRO_STEPS,
    Holding,
    MemoryTerms,
    Reservations,
    place_among,
    reservations,
)

# What the weakest layers have to gain, in percent: to load takes minutes, and measurements sway.
LEAST_GAIN_PCT = 20


@dataclass(frozen=True, slots=True)
class Move:
    """A node that should give up one range and load another."""

    peer_id: PeerId
    old: LayerRange
    new: LayerRange
    reason: str


@dataclass(frozen=True, slots=True)
class _Option:
    node: Holding
    new: LayerRange
    after: int
    """Throughput of the weakest layer that the move touches, once the node serves again."""
    left: int
    """The same, of the layers that it leaves."""

    @property
    def rank(self) -> tuple[int, int, PeerId]:
        """Least for the node that serves most where it goes, and is missed least."""
        return -self.after, -self.left, self.node.peer_id

    def move(self, reason: str) -> Move:
        return Move(self.node.peer_id, self.node.layers, self.new, reason)


def next_move(terms: MemoryTerms, held: Sequence[Holding]) -> Move | None:
    """The one move that is worth most; None while a node loads, and where none is worth it.

    `held` is all that the nodes of one model hold, in any order; a node that has other prices
    than these is given with a claim of 0. Whoever makes the move counts the node as PendingLoad
    at `new` from then on.
    """
    if any(one.status is NodeStatus.PENDING_LOAD for one in held):
        return None
    now = reservations(terms, held)
    spare = _spare(terms, held)
    return _fill(terms, now, spare) if now.gaps else _lift(terms, now, spare)


def _spare(terms: MemoryTerms, held: Sequence[Holding]) -> list[Holding]:
    """Healthy nodes without which each of their layers is served by another Healthy node.

    A replica is spare only beside another replica: it is the one chain that needs no hop.
    """
    healthy = [one for one in held if one.status is NodeStatus.HEALTHY]
    nodes = Counter(one.layers for one in healthy)
    serving = [0] * terms.layers
    for layers, count in nodes.items():
        for layer in layers:
            serving[layer] += count
    spare = {layers for layers in nodes if min(serving[layers.start : layers.stop]) > 1}
    if nodes[terms.whole] == 1:
        spare.discard(terms.whole)
    return [one for one in healthy if one.layers in spare]


def _fill(terms: MemoryTerms, now: Reservations, spare: Iterable[Holding]) -> Move | None:
    """The move that fills the first gap from its start, as far as a node can."""

    def growth(option: _Option) -> tuple[int, int, tuple[int, int, PeerId]]:
        return option.new.start, -option.new.stop, option.rank

    best = min(_options(terms, now, spare), key=growth, default=None)
    if best is None:
        return None
    gap = next(gap for gap in now.gaps if gap.holds(best.new) or best.new.holds(gap))
    return best.move(f"nobody holds layers {gap}")


def _lift(terms: MemoryTerms, now: Reservations, spare: Iterable[Holding]) -> Move | None:
    """The move to the weakest layers after which the least of what it touches is strongest."""
    weakest = min(now.throughput)
    enough = max(weakest + 1, -(-weakest * (100 + LEAST_GAIN_PCT) // 100))
    # A node is fastest through one layer alone: in a large mesh that rules nearly all out.
    able = [one for one in spare if (one.throughput + 1) * len(one.layers) >= enough - weakest]
    lifts = [
        option
        for option in _options(terms, now, able)
        if option.after >= enough
        and min(now.throughput[option.new.start : option.new.stop]) == weakest
    ]
    best = min(lifts, key=lambda option: option.rank, default=None)
    if best is None:
        return None
    rates = f"{weakest / MICRO_STEPS:.3g} to {best.after / MICRO_STEPS:.3g} steps a second"
    return best.move(f"layers {best.new} go from {rates}")


def _options(terms: MemoryTerms, now: Reservations, nodes: Iterable[Holding]) -> list[_Option]:
    """For each node the range of a newcomer with its claim, if that is not its own."""
    placed: dict[int, LayerRange | None] = {}
    found = []
    for one in nodes:
        if one.claim_mb not in placed:
            answer = place_among(terms, now, one.claim_mb)
            placed[one.claim_mb] = answer if isinstance(answer, LayerRange) else None
        new = placed[one.claim_mb]
        if new is not None and new != one.layers:
            found.append(_option(now, one, new))
    return found


def _option(now: Reservations, one: Holding, new: LayerRange) -> _Option:
    """What a move would do, if each layer takes the node as long as now."""
    old = one.layers
    moved = replace(one, layers=new, steps_per_second=one.steps_per_second * len(old) / len(new))
    lost, gained = one.throughput, moved.throughput
    after = list(now.throughput)
    for layer in old:
        after[layer] -= lost
    for layer in new:
        after[layer] += gained
    left = min(after[old.start : old.stop])
    return _Option(one, new, min(left, *after[new.start : new.stop]), left)
