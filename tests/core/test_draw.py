"""A chain that is drawn is about as good as the best, and nobody can say which it will be."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tessella.core.draw import MAX_ALIKE, MAX_SPARES, TOLERANCE, as_measured, draw_chain, spares_of
from tessella.core.errors import ModelUnavailable
from tessella.core.ids import ModelId, PeerId
from tessella.core.layers import LayerRange
from tessella.core.messages import Stage
from tessella.core.peers import NodeStatus, PeerRow
from tessella.core.route import choose_chain, stage_cost

TOTAL = 10


def row(
    name: str,
    start: int,
    stop: int,
    *,
    step_ms: float = 20.0,
    status: NodeStatus = NodeStatus.HEALTHY,
    contract: str = "c",
    canary: bool = False,
) -> PeerRow:
    return PeerRow(
        peer_id=PeerId(name),
        model=ModelId("m"),
        contract=contract,
        layers=LayerRange(start, stop),
        total_layers=TOTAL,
        status=status.value,
        addrs=(),
        device="cpu",
        dtype="f32",
        queue_depth=0,
        step_ms=step_ms,
        canary=canary,
    )


def drawn(rows: list[PeerRow], seed: int = 0, first: str | None = None) -> tuple[Stage, ...]:
    lot = random.Random(seed).random
    return draw_chain(rows, TOTAL, PeerId(first) if first else None, lot)


def cost(chain: tuple[Stage, ...], rows: list[PeerRow]) -> int:
    known = {each.peer_id: each for each in rows}
    return sum(stage_cost(known[stage.peer_id], len(stage.layers)) for stage in chain)


def test_each_of_equal_nodes_is_drawn_about_as_often() -> None:
    rows = [row("a", 0, 5), row("b", 5, 10), row("c", 5, 10), row("d", 5, 10)]
    tails = Counter(drawn(rows, seed)[-1].peer_id for seed in range(600))
    assert set(tails) == {"b", "c", "d"}
    assert min(tails.values()) > 140


def test_a_node_that_is_a_little_slower_is_drawn_too_and_a_slow_one_never() -> None:
    rows = [row("a", 0, 10), row("b", 0, 10, step_ms=22.0), row("c", 0, 10, step_ms=40.0)]
    entries = Counter(drawn(rows, seed)[0].peer_id for seed in range(300))
    assert set(entries) == {"a", "b"}
    assert entries[PeerId("b")] > 30


def test_where_layers_cost_nothing_beside_the_hop_nodes_are_alike() -> None:
    rows = [row("a", 0, 10, step_ms=0.1), row("b", 0, 10, step_ms=0.2)]
    entries = Counter(drawn(rows, seed)[0].peer_id for seed in range(200))
    assert min(entries[PeerId("a")], entries[PeerId("b")]) > 60


@st.composite
def meshes(draw: st.DrawFn) -> list[PeerRow]:
    edges = st.integers(0, TOTAL)
    spans = draw(
        st.lists(st.tuples(edges, edges).filter(lambda pair: pair[0] < pair[1]), max_size=7)
    )
    steps = st.floats(0.0, 300.0)
    whole = [row("x", 0, 4, step_ms=draw(steps)), row("y", 4, 10, step_ms=draw(steps))]
    more = [row(f"n{at}", *span, step_ms=draw(steps)) for at, span in enumerate(spans)]
    return whole + more


@settings(max_examples=150, deadline=None)
@given(meshes(), st.integers(0, 1000), st.sampled_from([None, "x"]))
def test_no_chain_is_farther_from_the_best_than_the_tolerance(
    rows: list[PeerRow], seed: int, first: str | None
) -> None:
    chain = drawn(rows, seed, first)
    best = choose_chain(rows, TOTAL, PeerId(first) if first else None)
    assert first in (None, chain[0].peer_id)
    assert [layer for stage in chain for layer in stage.layers] == list(range(TOTAL))
    # Prices are whole microseconds a layer.
    assert cost(chain, rows) <= (1 + TOLERANCE) * cost(best, rows) + 2 * TOTAL


def test_of_many_alike_each_may_be_drawn() -> None:
    rows = [row(f"n{at:02}", 0, 10) for at in range(3 * MAX_ALIKE)]
    entries = Counter(drawn(rows, seed)[0].peer_id for seed in range(400))
    assert len(entries) > 2.5 * MAX_ALIKE
    assert max(entries.values()) < 40
    assert drawn(rows, first="n40")[0].peer_id == "n40"


def test_one_lot_gives_one_chain_however_the_rows_are_listed() -> None:
    rows = [row(f"n{at}", 0, 10) for at in range(6)]
    assert drawn(rows, 7) == drawn(rows[::-1], 7)


def test_without_a_tolerance_it_is_the_cheapest() -> None:
    rows = [row("a", 0, 10, step_ms=20.0), row("b", 0, 10, step_ms=20.1)]
    chains = {
        draw_chain(rows, TOTAL, None, random.Random(seed).random, 0.0)[0].peer_id
        for seed in range(20)
    }
    assert chains == {"a"}


def test_what_serves_nothing_is_no_stage_and_holes_are_named() -> None:
    rows = [
        row("a", 0, 5),
        row("canary", 5, 10, canary=True),
        row("loading", 5, 10, status=NodeStatus.PENDING_LOAD),
    ]
    with pytest.raises(ModelUnavailable, match="layers 5:10"):
        drawn(rows)
    with pytest.raises(ModelUnavailable, match="0:10"):
        drawn([])


def shown(spares: tuple[Stage, ...]) -> str:
    return " ".join(f"{stage.peer_id}={stage.layers}" for stage in spares)


def test_spares_hold_the_whole_range_of_a_stage_and_the_cheapest_of_each_come_first() -> None:
    rows = [
        row("a", 0, 5),
        row("b", 5, 10),
        row("slow", 0, 5, step_ms=90.0),
        row("fast", 0, 6, step_ms=12.0),
        row("whole", 0, 10, step_ms=500.0),
        row("part", 6, 10),
        row("other", 0, 10, contract="d"),
        row("canary", 0, 10, canary=True),
        row("paused", 0, 10, status=NodeStatus.PAUSED),
    ]
    chain = (Stage(PeerId("a"), LayerRange(0, 5)), Stage(PeerId("b"), LayerRange(5, 10)))
    assert shown(spares_of(rows, chain)) == "fast=0:5 whole=5:10 slow=0:5 whole=0:5"
    assert shown(spares_of(rows, chain, 2)) == "fast=0:5 whole=5:10"


def test_spares_are_no_more_than_there_may_be() -> None:
    rows = [row(f"n{at:02}", 0, 10) for at in range(20)]
    chain = (Stage(PeerId("n00"), LayerRange(0, 10)),)
    assert len(spares_of(rows, chain)) == MAX_SPARES
    assert spares_of(rows[:1], chain) == ()


def test_who_measured_nothing_is_taken_to_be_as_fast_as_its_twins() -> None:
    rows = [
        row("fast", 0, 4, step_ms=10.0),
        row("slow", 0, 4, step_ms=30.0),
        row("new", 0, 4, step_ms=0.0),
        row("alone", 4, 6, step_ms=0.0),
    ]
    assert [each.step_ms for each in as_measured(rows)] == [10.0, 30.0, 20.0, 10.0]
