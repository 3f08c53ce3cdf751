"""Laws of placement: they hold for every mesh, and a planner that drops a layer breaks them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tessella.core.costs import kv_bytes, shard_bytes
from tessella.core.errors import BadConfig
from tessella.core.ids import PeerId
from tessella.core.layers import LayerRange, holes
from tessella.core.peers import NodeStatus
from tessella.core.plan import (
    MB,
    Holding,
    MemoryTerms,
    Refuse,
    claim_for,
    even_claims,
    fits,
    place,
    replica_claim,
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
def meshes(draw: st.DrawFn) -> tuple[MemoryTerms, list[Holding], int]:
    terms = draw(all_terms())
    starts = draw(st.lists(st.integers(0, terms.layers - 1), max_size=5))
    nodes = [
        Holding(
            PeerId(f"p{number}"),
            LayerRange(start, draw(st.integers(start + 1, terms.layers))),
            draw(st.sampled_from(NodeStatus)),
            draw(st.sampled_from((0.0, 3.5, 40.0))),
        )
        for number, start in enumerate(starts)
    ]
    return terms, nodes, draw(st.integers(0, replica_claim(terms) + 10))


def check_one_join(planner: Planner, mesh: tuple[MemoryTerms, list[Holding], int]) -> None:
    """A range never exceeds its claim, and the shortest prefix grows first, as far as it can."""
    terms, nodes, claim = mesh
    answer = planner(terms, nodes, claim)
    promised = [one.layers for one in nodes if one.status is not NodeStatus.OFFLINE]
    gaps = holes(promised, terms.layers)
    if isinstance(answer, Refuse):
        assert answer.needed_mb > claim
        assert isinstance(planner(terms, nodes, answer.needed_mb), LayerRange)
        return
    assert fits(terms, answer, claim)
    assert terms.whole.holds(answer)
    if answer == terms.whole or not gaps:
        return
    gap = next(gap for gap in gaps if gap.holds(answer))
    before = [layer for hole in gaps for layer in hole if layer < answer.start]
    assert not any(claim_for(terms, LayerRange(layer, layer + 1)) <= claim for layer in before)
    longer = LayerRange(answer.start, answer.stop + 1)
    assert answer.stop == gap.stop or claim_for(terms, longer) > claim


def check_many_joins(planner: Planner, terms: MemoryTerms, claims: list[int]) -> None:
    """Every join covers more, until enough claims cover everything."""
    nodes: list[Holding] = []
    missing = terms.layers
    for number, claim in enumerate(claims):
        answer = planner(terms, nodes, claim)
        assert isinstance(answer, LayerRange)
        nodes.append(Holding(PeerId(f"p{number}"), answer, NodeStatus.HEALTHY))
        left = sum(map(len, holes([one.layers for one in nodes], terms.layers)))
        assert left < missing or missing == 0
        missing = left
    assert missing == 0


@settings(max_examples=50)
@given(meshes())
def test_one_join_keeps_the_laws(mesh: tuple[MemoryTerms, list[Holding], int]) -> None:
    check_one_join(place, mesh)


@settings(max_examples=50)
@given(meshes(), st.randoms(use_true_random=False))
def test_the_order_of_what_is_held_changes_nothing(
    mesh: tuple[MemoryTerms, list[Holding], int], chance: object
) -> None:
    terms, nodes, claim = mesh
    shuffled = list(nodes)
    chance.shuffle(shuffled)  # type: ignore[attr-defined]
    assert place(terms, nodes, claim) == place(terms, shuffled, claim)


@settings(max_examples=50)
@given(all_terms(), st.data())
def test_enough_claims_in_any_sizes_cover_everything(
    terms: MemoryTerms, data: st.DataObject
) -> None:
    # Each claim holds at least one layer of either end, so each join fills at least one layer.
    least = max(claim_for(terms, LayerRange(n, n + 1)) for n in (0, terms.layers - 1))
    claims = data.draw(
        st.lists(st.integers(least, least + 3000), min_size=terms.layers, max_size=terms.layers + 3)
    )
    check_many_joins(place, terms, claims)


def drops_a_layer(terms: MemoryTerms, nodes: Iterable[Holding], claim: int) -> LayerRange | Refuse:
    """The mutant: the last layer of what it should assign is on nobody."""
    answer = place(terms, nodes, claim)
    if isinstance(answer, LayerRange) and len(answer) > 1:
        return LayerRange(answer.start, answer.stop - 1)
    return answer


def never_assigns_the_last_layer(
    terms: MemoryTerms, nodes: Iterable[Holding], claim: int
) -> LayerRange | Refuse:
    """The mutant: rounding lost the tail of the model."""
    return place(replace(terms, layers=terms.layers - 1), nodes, claim)


MUTANTS = [drops_a_layer, never_assigns_the_last_layer]


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_planner_that_drops_a_layer_breaks_the_law_of_one_join(mutant: Planner) -> None:
    @settings(phases=[Phase.generate], report_multiple_bugs=False, database=None)
    @given(meshes())
    def law(mesh: tuple[MemoryTerms, list[Holding], int]) -> None:
        check_one_join(mutant, mesh)

    with pytest.raises((AssertionError, ValueError)):
        law()


@pytest.mark.parametrize("planner", [place, *MUTANTS])
def test_a_planner_that_drops_a_layer_breaks_the_law_of_many_joins(planner: Planner) -> None:
    if planner is place:
        check_many_joins(planner, PLAIN, [700] * 3)
        return
    with pytest.raises(AssertionError):
        check_many_joins(planner, PLAIN, [700] * 3)


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
        (NodeStatus.OFFLINE, (0, 2)),
    ],
)
def test_what_is_loading_is_reserved_and_what_is_offline_is_not(
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


def test_kv_of_unknown_size_is_refused() -> None:
    for context, slots in ((0, 4), (2048, 0)):
        with pytest.raises(BadConfig, match="cannot be sized"):
            terms_of(SMOLLM2, DType.F32, context=context, slots=slots)


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
