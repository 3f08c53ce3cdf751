"""Holes, and the laws of a move: no gap, a real gain, and in the end a mesh at rest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tessella.core import resplit
from tessella.core.ids import PeerId
from tessella.core.layers import LayerRange, holes
from tessella.core.peers import NodeStatus
from tessella.core.plan import (
    Holding,
    MemoryTerms,
    Refuse,
    fits,
    least_claim,
    place,
    replica_claim,
    reservations,
    what_serves,
)
from tessella.core.resplit import Move, next_move

Mover = Callable[[MemoryTerms, Sequence[Holding]], Move | None]
Mesh = tuple[MemoryTerms, list[Holding]]

# A layer takes 100 MB, so a claim of 402 holds any four of them.
PLAIN = MemoryTerms(
    layers=8,
    tied=False,
    weights_per_layer_mb=90.0,
    kv_per_layer_mb=10.0,
    embedding_mb=1.0,
    head_mb=1.0,
    usable_vram_pct=100,
    min_vram_mb=0,
)


def node(
    name: str, layers: str, steps: float = 10.0, claim: int = 402, *, says: str = "Healthy"
) -> Holding:
    return Holding(PeerId(name), LayerRange.parse(layers), NodeStatus(says), steps, claim)


def ranges(move: Move | None) -> tuple[str, str, str] | None:
    return None if move is None else (move.peer_id, str(move.old), str(move.new))


def serving(held: Sequence[Holding], but: Holding | None = None) -> set[int]:
    kept = (one for one in held if one is not but and one.status is NodeStatus.HEALTHY)
    return {layer for one in kept for layer in one.layers}


def at(one: Holding, layers: LayerRange, status: NodeStatus = NodeStatus.HEALTHY) -> Holding:
    """A node with another range, each layer of which takes it as long as before."""
    steps = one.steps_per_second * len(one.layers) / len(layers)
    return replace(one, layers=layers, status=status, steps_per_second=steps)


def is_spare(terms: MemoryTerms, held: Sequence[Holding], one: Holding) -> bool:
    replicas = [each for each in held if each.layers == terms.whole and each is not one]
    beside = any(each.status is NodeStatus.HEALTHY for each in replicas)
    is_covered = serving(held, but=one).issuperset(one.layers)
    return is_covered and (one.layers != terms.whole or beside)


def is_worth_it(terms: MemoryTerms, held: Sequence[Holding], one: Holding, new: LayerRange) -> bool:
    """Whether a move fills a gap, or leaves what it touches 20 % above the weakest."""
    now = reservations(terms, held)
    if now.gaps:
        return any(gap.holds(new) or new.holds(gap) for gap in now.gaps)
    after = reservations(terms, [*(each for each in held if each is not one), at(one, new)])
    weakest = min(now.throughput)
    touched = min(after.throughput[layer] for layer in {*one.layers, *new})
    lifts = any(now.throughput[layer] == weakest for layer in new)
    return lifts and 5 * touched >= 6 * weakest and touched > weakest


def possible_moves(terms: MemoryTerms, held: Sequence[Holding]) -> list[tuple[PeerId, LayerRange]]:
    if any(one.status is NodeStatus.PENDING_LOAD for one in held):
        return []
    placed = [(one, place(terms, held, one.claim_mb)) for one in held]
    return [
        (one.peer_id, new)
        for one, new in placed
        if one.status is NodeStatus.HEALTHY and isinstance(new, LayerRange) and new != one.layers
        if is_spare(terms, held, one) and is_worth_it(terms, held, one, new)
    ]


def check_one_move(mover: Mover, mesh: Mesh) -> None:
    """A move is made if one is possible, opens no gap, and grows the shortest prefix first."""
    terms, held = mesh
    move = mover(terms, held)
    possible = possible_moves(terms, held)
    assert (move is None) == (not possible)
    if move is None:
        return
    (one,) = (each for each in held if each.peer_id == move.peer_id)
    assert move.old == one.layers
    assert fits(terms, move.new, one.claim_mb)
    assert serving(held, but=one) == serving(held)
    assert (move.peer_id, move.new) in possible
    if reservations(terms, held).gaps:
        assert move.new.start == min(new.start for _, new in possible)
    assert move.reason


@st.composite
def meshes(draw: st.DrawFn, *, says: tuple[NodeStatus, ...] = tuple(NodeStatus)) -> Mesh:
    terms = replace(PLAIN, layers=draw(st.integers(1, 8)), tied=draw(st.booleans()))
    bounds = st.integers(0, terms.layers)
    pieces = st.tuples(bounds, bounds).filter(lambda pair: pair[0] < pair[1])
    status = st.sampled_from((*(NodeStatus.HEALTHY,) * 6, *says))
    steps = st.sampled_from((0.0, 1.0, 5.0, 6.0, 40.0))
    claims = st.sampled_from((0, 102, 202, 402, 1300, 1400))
    held = [
        Holding(PeerId(f"p{n}"), LayerRange(*piece), draw(status), draw(steps), draw(claims))
        for n, piece in enumerate(draw(st.lists(pieces, max_size=7)))
    ]
    return terms, held


@settings(max_examples=50)
@given(meshes())
def test_one_move_keeps_the_laws(mesh: Mesh) -> None:
    check_one_move(next_move, mesh)


@settings(max_examples=50)
@given(meshes(), st.randoms(use_true_random=False))
def test_the_order_of_what_is_held_changes_nothing(mesh: Mesh, chance: object) -> None:
    terms, held = mesh
    shuffled = list(held)
    chance.shuffle(shuffled)  # type: ignore[attr-defined]
    assert next_move(terms, held) == next_move(terms, shuffled)


@settings(max_examples=40)
@given(meshes(says=(NodeStatus.SATURATED, NodeStatus.DRAINING, NodeStatus.OFFLINE)))
def test_moves_end_and_never_take_a_layer_away(mesh: Mesh) -> None:
    terms, held = mesh
    weakest, served = min(reservations(terms, held).throughput), serving(held)
    moves = 0
    while (move := next_move(terms, held)) is not None:
        moves += 1
        assert moves <= len(held) * terms.layers
        (one,) = (each for each in held if each.peer_id == move.peer_id)
        others = [each for each in held if each is not one]
        loading = [*others, at(one, move.new, NodeStatus.PENDING_LOAD)]
        assert serving(loading) == served
        assert next_move(terms, loading) is None
        held = [*others, at(one, move.new)]
        assert serving(held) >= served
        assert min(reservations(terms, held).throughput) >= weakest
        weakest, served = min(reservations(terms, held).throughput), serving(held)


def opens_gaps(terms: MemoryTerms, held: Sequence[Holding]) -> Move | None:
    """The mutant: whoever is Healthy may leave its layers."""
    with pytest.MonkeyPatch.context() as patch:
        healthy = [one for one in held if one.status is NodeStatus.HEALTHY]
        patch.setattr(resplit, "_spare", lambda _terms, _held: healthy)
        return next_move(terms, held)


def moves_for_any_gain(terms: MemoryTerms, held: Sequence[Holding]) -> Move | None:
    """The mutant: a twentieth is as good as a fifth."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(resplit, "LEAST_GAIN_PCT", 5)
        return next_move(terms, held)


def saying(was: NodeStatus, then: NodeStatus) -> Mover:
    def mutant(terms: MemoryTerms, held: Sequence[Holding]) -> Move | None:
        lied = [replace(one, status=then) if one.status is was else one for one in held]
        return next_move(terms, lied)

    return mutant


def ignores_claims(terms: MemoryTerms, held: Sequence[Holding]) -> Move | None:
    """The mutant: every node is taken for one that holds four layers."""
    return next_move(terms, [replace(one, claim_mb=402) for one in held])


def takes_the_last_gap(terms: MemoryTerms, held: Sequence[Holding]) -> Move | None:
    """The mutant: the first gaps are taken for promised."""
    gaps = holes((one.layers for one in held if one.status.holds), terms.layers)
    promised = [Holding(PeerId("?"), gap, NodeStatus.DRAINING) for gap in gaps[:-1]]
    return next_move(terms, [*held, *promised])


OTHERS = tuple(NodeStatus)
PENDING, SATURATED, DRAINING = NodeStatus.PENDING_LOAD, NodeStatus.SATURATED, NodeStatus.DRAINING
# With each mutant the statuses that a mesh needs for it to be seen soon.
MUTANTS = [
    pytest.param(opens_gaps, OTHERS, id="opens gaps"),
    pytest.param(moves_for_any_gain, (), id="moves for any gain"),
    pytest.param(saying(PENDING, NodeStatus.HEALTHY), (PENDING,), id="moves beside a load"),
    pytest.param(saying(SATURATED, NodeStatus.HEALTHY), (SATURATED,) * 6, id="trusts the full"),
    pytest.param(
        saying(DRAINING, NodeStatus.OFFLINE), (DRAINING,) * 6, id="fills what is promised"
    ),
    pytest.param(ignores_claims, (), id="ignores claims"),
    pytest.param(takes_the_last_gap, (), id="takes the last gap"),
    pytest.param(lambda _terms, _held: None, (), id="never moves"),
]


@pytest.mark.parametrize(("mutant", "says"), MUTANTS)
def test_a_rule_that_is_left_out_breaks_the_laws(
    mutant: Mover, says: tuple[NodeStatus, ...]
) -> None:
    @settings(
        max_examples=1000, phases=[Phase.generate], report_multiple_bugs=False, derandomize=True
    )
    @given(meshes(says=says))
    def law(mesh: Mesh) -> None:
        check_one_move(mutant, mesh)

    with pytest.raises((AssertionError, ValueError)):
        law()


@pytest.mark.parametrize(
    ("held", "expected"),
    [
        pytest.param([], None, id="an empty mesh"),
        pytest.param([node("a", "0:4"), node("b", "4:8")], None, id="covered and balanced"),
        pytest.param(
            [node("a", "0:4"), node("b", "4:8"), node("c", "0:4")],
            None,
            id="one more than needed: to move it would only move the weakness",
        ),
        pytest.param(
            [node("a", "0:4"), node("b", "0:4")], ("a", "0:4", "4:8"), id="an idle one fills a gap"
        ),
        pytest.param([node("a", "0:4")], None, id="the only one stays, whatever is missing"),
        pytest.param(
            [node("a", "0:4"), node("b", "0:4", claim=0)],
            ("a", "0:4", "4:8"),
            id="a claim that is unknown stays",
        ),
        pytest.param(
            [node("a", "0:4", claim=101), node("b", "0:4", claim=202)],
            ("b", "0:4", "4:6"),
            id="who lets the prefix grow by most",
        ),
        pytest.param(
            [node("b", "2:6"), node("a", "2:6")], ("a", "2:6", "0:2"), id="the first gap first"
        ),
        pytest.param(
            [*(node(name, "0:3") for name in "ab"), *(node(name, "3:6") for name in "cde")],
            ("c", "3:6", "6:8"),
            id="of equals, who is missed least",
        ),
        pytest.param(
            [node("a", "0:4"), node("b", "0:4", 12.0)],
            ("a", "0:4", "4:8"),
            id="of two, who is missed least",
        ),
        pytest.param(
            [node("a", "0:4"), node("b", "0:4", says="Saturated")], None, id="others are full"
        ),
        pytest.param(
            [node("a", "0:4"), node("b", "0:4"), node("c", "4:8", says="PendingLoad")],
            None,
            id="the gap is being loaded",
        ),
        pytest.param(
            [node("a", "0:4"), node("b", "0:4"), node("c", "4:8", says="Offline")],
            ("a", "0:4", "4:8"),
            id="who is offline holds nothing",
        ),
        pytest.param(
            [node("a", "0:4"), node("b", "0:4"), node("c", "4:8", says="Draining")],
            ("a", "0:4", "4:8"),
            id="who is about to leave carries nothing",
        ),
        pytest.param(
            [node("a", "0:8", claim=1500), node("b", "0:4"), node("c", "4:8", 0.1)],
            None,
            id="the only replica stays",
        ),
        pytest.param(
            [node("a", "0:4"), node("b", "0:4", claim=replica_claim(PLAIN))],
            ("b", "0:4", "0:8"),
            id="a claim that holds the model becomes a replica",
        ),
    ],
)
def test_who_moves_where(held: list[Holding], expected: tuple[str, str, str] | None) -> None:
    assert ranges(next_move(PLAIN, held)) == expected


def holes_of(terms: MemoryTerms, held: Sequence[Holding]) -> list[tuple[LayerRange, int]]:
    """What no Healthy node serves, and the least claim for each."""
    served = [one.layers for one in held if one.status is NodeStatus.HEALTHY]
    return [(gap, least_claim(terms, gap)) for gap in holes(served, terms.layers)]


def test_holes_are_named_with_the_claim_that_repairs_them() -> None:
    found = holes_of(
        PLAIN, [node("a", "0:2"), node("b", "2:4", says="Saturated"), node("c", "4:6")]
    )
    assert found == [(LayerRange(2, 4), 200), (LayerRange(6, 8), 201)]
    assert what_serves(*found[0]) == (
        "layers 2:4 are served by nobody: a node with a claim of 200 MB would serve them"
    )
    assert holes_of(PLAIN, [node("a", "0:8")]) == []


@settings(max_examples=50)
@given(meshes(), st.sampled_from((100, 20)))
def test_the_claim_of_a_hole_repairs_it_and_no_smaller_one_does(mesh: Mesh, usable: int) -> None:
    terms = replace(mesh[0], usable_vram_pct=usable)
    healthy = [one for one in mesh[1] if one.status is NodeStatus.HEALTHY]
    for layers, claim in holes_of(terms, mesh[1]):
        # The holes before it are repaired.
        before = [node("x", f"0:{layers.start}")] if layers.start else []
        answer = place(terms, [*healthy, *before], claim)
        assert isinstance(answer, LayerRange)
        assert answer.holds(layers)
        less = place(terms, [*healthy, *before], claim - 1)
        assert isinstance(less, Refuse) or not less.holds(layers)


@pytest.mark.parametrize(
    ("spare", "beside", "moves"),
    [
        pytest.param(2.0, 12.0, True, id="a fifth more is enough"),
        pytest.param(1.99, 12.0, False, id="less is not"),
        pytest.param(2.0, 11.99, False, id="what is left has to stay as strong"),
    ],
)
def test_the_weakest_layers_have_to_gain_a_fifth(spare: float, beside: float, moves: bool) -> None:
    held = [node("a", "0:4", beside), node("b", "4:8", 10.0), node("c", "0:4", spare)]
    expected = Move(
        PeerId("c"),
        LayerRange(0, 4),
        LayerRange(4, 8),
        "layers 4:8 go from 10 to 12 steps a second",
    )
    assert next_move(PLAIN, held) == (expected if moves else None)


def test_two_idle_nodes_do_not_both_jump_to_one_gap() -> None:
    idle = [node(name, "0:4") for name in "abc"]
    move = next_move(PLAIN, idle)
    assert move == Move(PeerId("a"), LayerRange(0, 4), LayerRange(4, 8), "nobody holds layers 4:8")
    loading = [at(idle[0], move.new, NodeStatus.PENDING_LOAD), *idle[1:]]
    assert next_move(PLAIN, loading) is None
    assert next_move(PLAIN, [at(idle[0], move.new), *idle[1:]]) is None


def test_two_weak_stretches_are_strengthened_one_after_the_other() -> None:
    terms = replace(PLAIN, layers=16)
    held = [node(f"{cut}{n}", cut) for cut in ("0:4", "8:12") for n in range(3)]
    held += [node("x", "4:8"), node("y", "12:16")]
    moved = []
    while (move := next_move(terms, held)) is not None:
        held = [at(one, move.new) if one.peer_id == move.peer_id else one for one in held]
        moved.append(ranges(move))
    assert moved == [("0:40", "0:4", "4:8"), ("8:120", "8:12", "12:16")]
    assert set(reservations(terms, held).throughput) == {20_000_000}
