"""Laws of placement: they hold for every mesh, and a planner that drops a layer breaks them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tessella.core.costs import Weights, kv_bytes, shard_bytes
from tessella.core.errors import BadConfig
from tessella.core.formats import WeightFormat
from tessella.core.ids import PeerId
from tessella.core.layers import LayerRange
from tessella.core.peers import NodeStatus
from tessella.core.plan import (
    MB,
    Holding,
    MemoryTerms,
    Refuse,
    Reservations,
    claim_for,
    even_claims,
    place,
    place_among,
    replica_claim,
    reservations,
    terms_of,
)
from tessella.core.shapes import DType, ModelShape

SMOLLM2 = ModelShape(
    family="llama",
    layers=30,
    hidden=576,
    intermediate=1536,
    heads=9,
    kv_heads=3,
    head_dim=64,
    vocab=49152,
    context=8192,
    tied=True,
)
PLAIN = MemoryTerms(
    layers=10,
    tied=False,
    weights_per_layer_mb=90.0,
    kv_per_layer_mb=10.0,
    embedding_mb=150.0,
    head_mb=250.0,
    usable_vram_pct=100,
    min_vram_mb=0,
)

Mesh = tuple[MemoryTerms, list[Holding], int]
Planner = Callable[[MemoryTerms, Iterable[Holding], int], LayerRange | Refuse]


def smollm2(min_vram_mb: int = 0) -> MemoryTerms:
    return terms_of(SMOLLM2, DType.F32, context=2048, slots=4, min_vram_mb=min_vram_mb)


def held(*ranges: tuple[int, int], status: NodeStatus = NodeStatus.HEALTHY) -> list[Holding]:
    return [
        Holding(PeerId(f"p{number}"), LayerRange(*pair), status)
        for number, pair in enumerate(ranges)
    ]


@st.composite
def all_terms(draw: st.DrawFn) -> MemoryTerms:
    size = st.integers(1, 40_000).map(lambda tenths: tenths / 16)
    return MemoryTerms(
        layers=draw(st.integers(1, 24)),
        tied=draw(st.booleans()),
        weights_per_layer_mb=draw(size),
        kv_per_layer_mb=draw(size),
        embedding_mb=draw(size),
        head_mb=draw(size),
        usable_vram_pct=draw(st.sampled_from((50, 90, 100))),
        min_vram_mb=draw(st.sampled_from((0, 256))),
    )


@st.composite
def meshes(draw: st.DrawFn) -> Mesh:
    terms = draw(all_terms())
    steps = st.sampled_from((0.0, 3.5, 40.0))
    starts = draw(st.lists(st.integers(0, terms.layers - 1), max_size=5))
    nodes = [
        Holding(
            PeerId(f"p{number}"),
            LayerRange(start, draw(st.integers(start + 1, terms.layers))),
            draw(st.sampled_from(NodeStatus)),
            draw(steps),
        )
        for number, start in enumerate(starts)
    ]
    if starts and max(starts) > 0 and draw(st.booleans()):
        # Random pieces alone hardly ever cover a model.
        halves = held((0, max(starts)), (max(starts), terms.layers))
        nodes += [replace(one, steps_per_second=draw(steps)) for one in halves]
    return terms, nodes, draw(st.integers(0, replica_claim(terms) + 10))


def need(terms: MemoryTerms, layers: LayerRange) -> int:
    """The price of a range, spelled out once more."""
    first, last = layers.start == 0, layers.stop == terms.layers
    ends = terms.embedding_mb * first + terms.head_mb * last
    if first and last and terms.tied:
        ends = max(terms.embedding_mb, terms.head_mb)
    layers_mb = len(layers) * (terms.weights_per_layer_mb + terms.kv_per_layer_mb)
    return max(terms.min_vram_mb, math.ceil((layers_mb + ends) * 100 / terms.usable_vram_pct))


def missing(terms: MemoryTerms, nodes: Iterable[Holding]) -> set[int]:
    """The layers that nobody has promised to hold."""
    promised = (one.layers for one in nodes if one.status.holds)
    return set(terms.whole) - {layer for layers in promised for layer in layers}


def single(layer: int) -> LayerRange:
    return LayerRange(layer, layer + 1)


def check_one_join(planner: Planner, mesh: Mesh) -> None:
    """A replica first, then the shortest prefix, then the weakest; and never beyond the claim."""
    terms, nodes, claim = mesh
    answer = planner(terms, nodes, claim)
    if isinstance(answer, Refuse):
        assert answer.needed_mb > claim
        assert isinstance(planner(terms, nodes, answer.needed_mb), LayerRange)
        assert isinstance(planner(terms, nodes, answer.needed_mb - 1), Refuse)
        return
    if claim >= replica_claim(terms):
        assert answer == terms.whole
        return
    assert need(terms, answer) <= claim
    open_layers = missing(terms, nodes)
    able = [layer for layer in terms.whole if need(terms, single(layer)) <= claim]
    if open_layers:
        assert open_layers.issuperset(answer)
        assert answer.start == min(open_layers.intersection(able))
        beyond = LayerRange(answer.start, answer.stop + 1)
        assert answer.stop not in open_layers or need(terms, beyond) > claim
        return
    carried = [
        math.fsum(one.throughput for one in nodes if one.layers.holds(single(layer)))
        for layer in terms.whole
    ]
    assert min(carried[layer] for layer in answer) == min(carried[layer] for layer in able)


def check_a_life(planner: Planner, terms: MemoryTerms, acts: Iterable[int]) -> None:
    """Who comes fills a gap while there is one, whoever has left; enough claims cover all."""
    nodes: list[Holding] = []
    least = max(need(terms, single(0)), need(terms, single(terms.layers - 1)))
    for number, act in enumerate([*acts, *[0] * terms.layers]):
        if act < 0:
            nodes = [one for place, one in enumerate(nodes) if place != -act % len(nodes)]
            continue
        before = missing(terms, nodes)
        answer = planner(terms, nodes, least + act)
        assert isinstance(answer, LayerRange)
        nodes.append(Holding(PeerId(f"p{number}"), answer, NodeStatus.PENDING_LOAD))
        assert missing(terms, nodes) < before or not before
    assert not missing(terms, nodes)


@settings(max_examples=50)
@given(meshes())
def test_one_join_keeps_the_laws(mesh: Mesh) -> None:
    check_one_join(place, mesh)


@settings(max_examples=50)
@given(meshes())
def test_the_order_of_what_is_held_changes_nothing(mesh: Mesh) -> None:
    terms, nodes, claim = mesh
    for other in (nodes[::-1], nodes[1:] + nodes[:1]):
        assert place(terms, nodes, claim) == place(terms, other, claim)


@settings(max_examples=30)
@given(all_terms(), st.lists(st.integers(-3, 3000), max_size=30))
def test_nodes_come_and_go_and_all_is_covered(terms: MemoryTerms, acts: list[int]) -> None:
    check_a_life(place, terms, acts)


def last_gap(found: Reservations) -> Reservations:
    return replace(found, gaps=found.gaps[-1:])


def dropping(first: int, last: int) -> Planner:
    """The mutant: a layer at one end of what should be assigned is on nobody."""

    def planner(terms: MemoryTerms, nodes: Iterable[Holding], claim: int) -> LayerRange | Refuse:
        answer = place(terms, nodes, claim)
        if isinstance(answer, LayerRange) and len(answer) > 1:
            return LayerRange(answer.start + first, answer.stop - last)
        return answer

    return planner


MUTANTS: dict[str, Planner] = {
    "drops the last layer": dropping(0, 1),
    "drops the first layer": dropping(1, 0),
    "loses the tail": lambda t, n, c: place(replace(t, layers=max(1, t.layers - 1)), n, c),
    "ignores the ends": lambda t, n, c: place(replace(t, embedding_mb=0.0, head_mb=0.0), n, c),
    "ignores replicas": lambda t, n, c: place(t, n, min(c, replica_claim(t) - 1)),
    "ignores speed": lambda t, n, c: place(t, [replace(o, steps_per_second=0.0) for o in n], c),
    "takes the last hole": lambda t, n, c: place_among(t, last_gap(reservations(t, n)), c),
}


@pytest.mark.parametrize("mutant", MUTANTS.values(), ids=MUTANTS)
def test_a_planner_that_leaves_a_rule_out_breaks_the_laws(mutant: Planner) -> None:
    @settings(
        max_examples=1000, phases=[Phase.generate], report_multiple_bugs=False, derandomize=True
    )
    @given(meshes())
    def law(mesh: Mesh) -> None:
        check_one_join(mutant, mesh)

    with pytest.raises((AssertionError, ValueError)):
        law()


def test_a_claim_is_the_layers_and_the_ends_by_the_usable_part() -> None:
    terms = replace(PLAIN, usable_vram_pct=90)
    assert claim_for(terms, LayerRange(3, 5)) == 223  # ceil(200 * 100 / 90)
    assert claim_for(terms, LayerRange(0, 2)) == 389  # and the embedding, 150
    assert claim_for(terms, LayerRange(8, 10)) == 500  # and the head, 250
    assert claim_for(terms, terms.whole) == 1556
    assert claim_for(replace(terms, min_vram_mb=256), LayerRange(3, 5)) == 256


def test_a_tied_table_is_charged_once_where_both_ends_are() -> None:
    terms = replace(PLAIN, tied=True)
    assert claim_for(terms, terms.whole) == 10 * 100 + 250
    assert claim_for(terms, LayerRange(0, 9)) == 9 * 100 + 150
    assert claim_for(terms, LayerRange(1, 10)) == 9 * 100 + 250


@pytest.mark.parametrize("layers", [(0, 30), (0, 10), (10, 20), (20, 30)])
def test_prices_are_the_bytes_that_a_shard_holds(layers: tuple[int, int]) -> None:
    piece = LayerRange(*layers)
    terms = replace(smollm2(), usable_vram_pct=100)
    weights = shard_bytes(SMOLLM2, piece, DType.F32)
    kv = kv_bytes(SMOLLM2, len(piece), 2048 * 4, DType.F32)
    assert claim_for(terms, piece) == -(-(weights + kv) // MB)


def test_a_claim_that_holds_the_whole_model_makes_a_replica() -> None:
    assert replica_claim(PLAIN) == 1300 + 100 + 39 + 384 + 5
    assert place(PLAIN, held((0, 5)), 1828) == PLAIN.whole
    assert place(PLAIN, held((0, 5)), 1827) == LayerRange(5, 10)


@pytest.mark.parametrize(
    ("ranges", "claim", "expected"),
    [
        pytest.param([], 450, (0, 3), id="an empty mesh begins at layer 0, with the embedding"),
        pytest.param([(0, 3)], 450, (3, 7), id="the prefix grows from its end"),
        pytest.param([(0, 3), (7, 10)], 900, (3, 7), id="a hole bounds what is given"),
        pytest.param([(0, 3), (5, 7)], 450, (3, 5), id="the shortest prefix comes first"),
        pytest.param([(0, 8)], 440, (8, 9), id="the head does not fit beside a second layer"),
        pytest.param([], 240, (1, 3), id="too small for the embedding: the layers behind it"),
        pytest.param([(0, 9)], 350, (9, 10), id="the last layer, with the head"),
    ],
)
def test_holes_are_filled(
    ranges: list[tuple[int, int]], claim: int, expected: tuple[int, int]
) -> None:
    assert place(PLAIN, held(*ranges), claim) == LayerRange(*expected)


def test_a_claim_that_no_open_layer_fits_is_told_how_many_mb_would() -> None:
    refusal = place(PLAIN, held((0, 9)), 349)
    assert refusal == Refuse(349, 350)
    assert str(refusal) == "a claim of 349 MB holds no layer here: 350 MB would"
    assert place(replace(PLAIN, min_vram_mb=256), [], 255) == Refuse(255, 256)
    assert place(PLAIN, held((0, 10)), 99) == Refuse(99, 100)


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (NodeStatus.PENDING_LOAD, (4, 8)),
        (NodeStatus.DRAINING, (4, 8)),
        (NodeStatus.PAUSED, (0, 2)),
        (NodeStatus.OFFLINE, (0, 2)),
    ],
)
def test_what_is_loading_is_reserved_and_what_is_paused_or_offline_is_not(
    status: NodeStatus, expected: tuple[int, int]
) -> None:
    assert place(PLAIN, held((0, 4), status=status), 400) == LayerRange(*expected)


def test_a_covered_mesh_is_strengthened_where_it_is_weakest() -> None:
    slow = Holding(PeerId("slow"), LayerRange(4, 7), NodeStatus.HEALTHY, 2.0)
    fast = [
        Holding(PeerId("left"), LayerRange(0, 4), NodeStatus.HEALTHY, 20.0),
        Holding(PeerId("right"), LayerRange(7, 10), NodeStatus.HEALTHY, 20.0),
    ]
    assert place(PLAIN, [slow, *fast], 300) == LayerRange(4, 7)
    # Both windows hold the slow layers; the one with less throughput beside them is the first.
    assert place(PLAIN, [slow, *fast], 400) == LayerRange(3, 7)
    twice = replace(slow, peer_id=PeerId("second"), steps_per_second=30.0)
    assert place(PLAIN, [slow, twice, *fast], 300) == LayerRange(1, 4)


def test_a_draining_node_holds_its_range_and_carries_nothing() -> None:
    draining = Holding(PeerId("old"), LayerRange(6, 9), NodeStatus.DRAINING, 90.0)
    serving = Holding(PeerId("new"), LayerRange(0, 10), NodeStatus.HEALTHY, 1.0)
    more = Holding(PeerId("more"), LayerRange(0, 6), NodeStatus.HEALTHY, 1.0)
    assert place(PLAIN, [draining, serving, more], 300) == LayerRange(6, 9)
    assert place(PLAIN, [replace(serving, status=NodeStatus.DRAINING)], 300) == LayerRange(1, 4)


@pytest.mark.parametrize(
    ("weights", "context", "slots"),
    [(DType.F32, 0, 4), (DType.F32, 2048, 0), (WeightFormat.Q8_0, 2048, 4)],
)
def test_kv_of_unknown_size_is_refused(weights: Weights, context: int, slots: int) -> None:
    with pytest.raises(BadConfig, match="cannot be sized"):
        terms_of(SMOLLM2, weights, context=context, slots=slots)


def split(terms: MemoryTerms, claims: list[int]) -> list[LayerRange]:
    nodes: list[Holding] = []
    for number, claim in enumerate(claims):
        answer = place(terms, nodes, claim)
        assert isinstance(answer, LayerRange)
        nodes.append(Holding(PeerId(f"p{number}"), answer, NodeStatus.PENDING_LOAD))
    return [one.layers for one in nodes]


@given(all_terms().filter(lambda terms: terms.mem_per_layer_mb >= 1), st.data())
def test_even_claims_split_a_model_over_exactly_that_many_nodes(
    terms: MemoryTerms, data: st.DataObject
) -> None:
    terms = replace(terms, min_vram_mb=0)
    workers = data.draw(st.integers(1, terms.layers))
    try:
        claims = even_claims(terms, workers)
    except BadConfig:
        # Ends so large that one node's share would hold the whole model.
        biggest = claim_for(terms, LayerRange(0, terms.layers - 1))
        assert max(biggest, claim_for(terms, LayerRange(1, terms.layers))) >= replica_claim(terms)
        return
    pieces = split(terms, claims)
    assert len(pieces) == workers
    assert [layer for piece in pieces for layer in piece] == list(terms.whole)
    assert claims == [claim_for(terms, piece) for piece in pieces]


@pytest.mark.parametrize("workers", range(1, 31))
def test_smollm2_is_split_over_any_number_of_workers(workers: int) -> None:
    terms = smollm2()
    claims = even_claims(terms, workers)
    pieces = split(terms, claims)
    assert [layer for piece in pieces for layer in piece] == list(range(30))
    ends = claim_for(terms, LayerRange(0, 1))
    one_layer = claim_for(terms, LayerRange(1, 2))
    middle = claims[1:-1]
    assert all(claim <= max(ends, min(claims) + 2 * one_layer) for claim in middle)


def test_smollm2_on_three_workers() -> None:
    pieces = split(smollm2(), even_claims(smollm2(), 3))
    assert [str(piece) for piece in pieces] == ["0:9", "9:22", "22:30"]
    # The same claims serve under the usual floor, which three workers do not reach.
    assert split(smollm2(256), even_claims(smollm2(256), 3)) == pieces


@pytest.mark.parametrize(
    ("terms", "workers", "named"),
    [
        pytest.param(smollm2(), 31, "30 layers cannot be split over 31", id="fewer layers"),
        pytest.param(smollm2(), 0, "over 0 workers", id="nobody"),
        pytest.param(smollm2(256), 8, "no claim is below 256 MB", id="the floor"),
        pytest.param(
            replace(PLAIN, weights_per_layer_mb=0.01, kv_per_layer_mb=0.01),
            9,
            "a layer takes 0.02 MB",
            id="layers smaller than a MB",
        ),
    ],
)
def test_what_cannot_be_split_is_refused_by_name(
    terms: MemoryTerms, workers: int, named: str
) -> None:
    with pytest.raises(BadConfig, match=named):
        even_claims(terms, workers)
