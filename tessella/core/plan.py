"""Who should hold which layers: memory prices, and the placement of one more claim.

Everything here is a function of its arguments: the tracker that assigns, the page that previews
and the test that tries ten thousand meshes get one answer.

    a whole model fits the claim            a replica
    layers are promised by nobody           the first hole, from its start, as far as the claim goes
    every layer is promised                 the stretch with the least measured throughput

Memory is priced per layer, weights and KV; the embedding is charged where layer 0 is, the head
where the last layer is, and once where both are and the model ties them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from tessella.core.costs import Kv, Weights, embedding_bytes, head_bytes, kv_bytes, layer_bytes
from tessella.core.errors import BadConfig
from tessella.core.formats import KvFormat
from tessella.core.ids import PeerId
from tessella.core.layers import LayerRange, holes
from tessella.core.peers import NodeStatus
from tessella.core.shapes import ModelShape

MB = 1024 * 1024

# Of a claim, in percent: the rest is for activations, the allocator's gaps and the driver.
USABLE_VRAM_PCT = 90
# Below this a node spends more on its process than on its layers.
MIN_VRAM_MB = 256
# What a replica needs beside weights and KV: percent of weights, MB, percent of KV.
REPLICA_WEIGHTS_PCT = 3
REPLICA_FIXED_MB = 384
REPLICA_KV_PCT = 5
# A layer of a node that has not measured itself yet, in milliseconds a decode step.
UNMEASURED_LAYER_MS = 5.0

# Throughput is added up in whole millionths of a step per second: in any order the same sum.
MICRO_STEPS = 1_000_000

# A node that is about to leave or has stopped answering keeps its range and carries nothing.
_CARRIES = (NodeStatus.PENDING_LOAD, NodeStatus.HEALTHY, NodeStatus.SATURATED)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryTerms:
    """What the layers of one model cost, in MB of 2**20 bytes; `terms_of` makes it."""

    layers: int
    tied: bool
    weights_per_layer_mb: float
    kv_per_layer_mb: float
    """Keys and values of every slot at its full context, for one layer."""
    embedding_mb: float
    head_mb: float
    """The final norm and the head, as a table of its own even where it is tied."""
    usable_vram_pct: int = USABLE_VRAM_PCT
    """The part of a claim that layers may fill, 1 to 100."""
    min_vram_mb: int = MIN_VRAM_MB
    """No claim is smaller than this."""

    @property
    def mem_per_layer_mb(self) -> float:
        """Weights and KV of one layer."""
        return self.weights_per_layer_mb + self.kv_per_layer_mb

    @property
    def global_tensor_mb(self) -> float:
        """The larger of embedding and head: what a node at either end has to hold at most."""
        return max(self.embedding_mb, self.head_mb)

    @property
    def whole(self) -> LayerRange:
        """Every layer."""
        return LayerRange(0, self.layers)


def terms_of(
    shape: ModelShape,
    weights: Weights,
    *,
    context: int,
    slots: int,
    kv: Kv | None = None,
    usable_vram_pct: int = USABLE_VRAM_PCT,
    min_vram_mb: int = MIN_VRAM_MB,
) -> MemoryTerms:
    """Prices for `slots` sessions of `context` positions, KV by default in the serving type.

    Raises BadConfig for fewer than one of either, and for weights in groups with no `kv` named:
    KV of unknown size is never taken as none.
    """
    if context < 1 or slots < 1:
        raise BadConfig(f"KV of {slots} slots x {context} positions cannot be sized")
    kept = KvFormat.of(weights if kv is None else kv)
    return MemoryTerms(
        layers=shape.layers,
        tied=shape.tied,
        weights_per_layer_mb=layer_bytes(shape, weights) / MB,
        kv_per_layer_mb=kv_bytes(shape, 1, context * slots, kept) / MB,
        embedding_mb=embedding_bytes(shape, weights) / MB,
        head_mb=head_bytes(shape, weights) / MB,
        usable_vram_pct=usable_vram_pct,
        min_vram_mb=min_vram_mb,
    )


def _ends_mb(terms: MemoryTerms, layers: LayerRange) -> float:
    first, last = layers.start == 0, layers.stop == terms.layers
    if first and last and terms.tied:
        return terms.global_tensor_mb
    return terms.embedding_mb * first + terms.head_mb * last


def _need_mb(terms: MemoryTerms, layers: LayerRange) -> int:
    """The smallest claim that holds the range, if there were no floor."""
    held = len(layers) * terms.mem_per_layer_mb + _ends_mb(terms, layers)
    return math.ceil(held * 100 / terms.usable_vram_pct)


def claim_for(terms: MemoryTerms, layers: LayerRange) -> int:
    """MB that a node must offer to be given this range."""
    return max(terms.min_vram_mb, _need_mb(terms, layers))


def replica_claim(terms: MemoryTerms) -> int:
    """MB from which a node is given the whole model, whatever the others hold."""
    weights = terms.layers * terms.weights_per_layer_mb + _ends_mb(terms, terms.whole)
    kv = terms.layers * terms.kv_per_layer_mb
    overhead = (weights * REPLICA_WEIGHTS_PCT + kv * REPLICA_KV_PCT) / 100 + REPLICA_FIXED_MB
    return max(terms.min_vram_mb, math.ceil(weights + kv + overhead))


def fits(terms: MemoryTerms, layers: LayerRange, claim_mb: int) -> bool:
    """Whether a claim may hold a range, by either of the two prices."""
    if claim_for(terms, layers) <= claim_mb:
        return True
    return layers == terms.whole and replica_claim(terms) <= claim_mb


def least_claim(terms: MemoryTerms, layers: LayerRange) -> int:
    """MB from which a node may be given all of a range, if need be as a replica.

    Of a large model a replica may take less than most of its layers, which leave more free.
    """
    return min(claim_for(terms, layers), replica_claim(terms))


def what_serves(layers: LayerRange, claim_mb: int) -> str:
    """Layers that nobody serves, and the claim that would, as people are told."""
    return (
        f"layers {layers} are served by nobody: a node with a claim of {claim_mb} MB would serve "
        "them"
    )


@dataclass(frozen=True, slots=True)
class Holding:
    """A range that a node holds, or has promised to."""

    peer_id: PeerId
    layers: LayerRange
    status: NodeStatus
    steps_per_second: float = 0.0
    """Measured decode steps through the range; 0 while unmeasured."""
    claim_mb: int = 0
    """What the node offers, in MB; 0 while unknown."""

    @property
    def throughput(self) -> int:
        """Decode steps through the range in millionths a second, 0 for one that carries nothing."""
        if self.status not in _CARRIES:
            return 0
        steps = self.steps_per_second or 1000 / (UNMEASURED_LAYER_MS * len(self.layers))
        return max(1, round(steps * MICRO_STEPS))


@dataclass(frozen=True, slots=True)
class Reservations:
    """What the nodes of one model hold or have promised, by layer; `reservations` makes it."""

    gaps: tuple[LayerRange, ...]
    """Layers that nobody holds or has promised."""
    throughput: tuple[int, ...]
    """Of each layer: the sum over those that hold it, in millionths of a step per second."""


def reservations(terms: MemoryTerms, held: Iterable[Holding]) -> Reservations:
    """The sums over all holdings that placement reads, in any order the same."""
    ranges: set[LayerRange] = set()
    change = [0] * (terms.layers + 1)
    for one in held:
        if one.status.holds:
            ranges.add(one.layers)
            steps = one.throughput
            change[min(one.layers.start, terms.layers)] += steps
            change[min(one.layers.stop, terms.layers)] -= steps
    gaps = tuple(holes(ranges, terms.layers))
    return Reservations(gaps, tuple(accumulate(change[:-1])))


@dataclass(frozen=True, slots=True)
class Refuse:
    """No range for this claim, and the smallest claim that would get one."""

    claim_mb: int
    needed_mb: int

    def __str__(self) -> str:
        return f"a claim of {self.claim_mb} MB holds no layer here: {self.needed_mb} MB would"


def place(terms: MemoryTerms, held: Iterable[Holding], claim_mb: int) -> LayerRange | Refuse:
    """The range for one more node. Never depends on the order of `held`; frees nothing."""
    return place_among(terms, reservations(terms, held), claim_mb)


def place_among(terms: MemoryTerms, held: Reservations, claim_mb: int) -> LayerRange | Refuse:
    """`place`, for who asks more than once about the same holdings."""
    found: LayerRange | None = None
    if claim_mb >= terms.min_vram_mb:
        if replica_claim(terms) <= claim_mb:
            found = terms.whole
        elif held.gaps:
            pieces = (_longest(terms, at, gap.stop, claim_mb) for gap in held.gaps for at in gap)
            found = next((piece for piece in pieces if piece), None)
        else:
            found = _weakest(terms, held.throughput, claim_mb)
    return found or Refuse(claim_mb, _needed(terms, held.gaps))


def _longest(terms: MemoryTerms, start: int, limit: int, claim_mb: int) -> LayerRange | None:
    """As many layers from `start` as the claim holds, and not beyond `limit`."""
    usable = claim_mb * terms.usable_vram_pct / 100
    guess = min(limit, start + 1 + int(usable / terms.mem_per_layer_mb))
    for stop in range(guess, start, -1):
        if _need_mb(terms, LayerRange(start, stop)) <= claim_mb:
            return LayerRange(start, stop)
    return None


def _needed(terms: MemoryTerms, gaps: Sequence[LayerRange]) -> int:
    """The smallest claim that `place` would answer with a range."""
    open_layers = (layer for gap in gaps or [terms.whole] for layer in gap)
    return min(least_claim(terms, LayerRange(layer, layer + 1)) for layer in open_layers)


def _weakest(terms: MemoryTerms, throughput: Sequence[int], claim_mb: int) -> LayerRange | None:
    """The stretch with the weakest layer; then the weakest on average, the longest, the first."""

    def strength(piece: LayerRange) -> tuple[int, float, int, int]:
        part = throughput[piece.start : piece.stop]
        return min(part), sum(part) / len(part), -len(part), piece.start

    pieces = (_longest(terms, start, terms.layers, claim_mb) for start in terms.whole)
    return min((piece for piece in pieces if piece), key=strength, default=None)


def even_claims(terms: MemoryTerms, workers: int) -> list[int]:
    """Claims in MB that split a model over exactly this many nodes, as evenly as layers allow.

    They belong to the nodes from layer 0 on: the split comes out if nodes are placed in this
    order, on an empty mesh, with the same terms. Raises BadConfig where no such claims exist:
    fewer layers than workers, layers too small for whole MB to tell apart, a floor above the
    share of a node, or a share that would hold the whole model.
    """
    if not 1 <= workers <= terms.layers:
        raise BadConfig(f"{terms.layers} layers cannot be split over {workers} workers")
    held: list[Holding] = []
    claims: list[int] = []
    for left in range(workers, 0, -1):
        start = held[-1].layers.stop if held else 0
        claim, piece = _even_claim(terms, held, LayerRange(start, terms.layers), left)
        claims.append(claim)
        held.append(Holding(PeerId(str(left)), piece, NodeStatus.HEALTHY))
    return claims


def _even_claim(
    terms: MemoryTerms, held: Sequence[Holding], rest: LayerRange, left: int
) -> tuple[int, LayerRange]:
    """The claim of the next of `left` nodes, and the range that `place` gives for it."""
    target = LayerRange(rest.start, rest.start + _even_counts(terms, rest, left)[0])
    claim = claim_for(terms, target)
    # Where a layer is less than a MB, the claim of the target may hold more than its target.
    while claim >= max(1, terms.min_vram_mb):
        piece = place(terms, held, claim)
        if isinstance(piece, Refuse) or piece.start != rest.start:
            break
        if terms.layers - piece.stop >= left - 1 and (left > 1 or piece.stop == terms.layers):
            return claim, piece
        claim -= 1
    raise BadConfig(
        f"no claim in MB leaves layers for {left - 1} more workers beside {target}: a layer takes "
        f"{terms.mem_per_layer_mb:.3g} MB, and no claim is below {terms.min_vram_mb} MB"
    )


def _even_counts(terms: MemoryTerms, rest: LayerRange, nodes: int) -> list[int]:
    """Layers for each node over the rest: one each, then one more for whoever holds least."""
    if nodes == 1:
        return [len(rest)]
    counts = [1] * nodes
    load = [terms.mem_per_layer_mb] * nodes
    load[0] += terms.embedding_mb * (rest.start == 0)
    load[-1] += terms.head_mb
    for _ in range(len(rest) - nodes):
        least = load.index(min(load))
        counts[least] += 1
        load[least] += terms.mem_per_layer_mb
    return counts
