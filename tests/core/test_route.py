"""The chain a session takes: it tiles the model, and no other chain is cheaper."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tessella.core import route
from tessella.core.errors import ModelUnavailable
from tessella.core.ids import ModelId, PeerId
from tessella.core.layers import LayerRange
from tessella.core.messages import Stage
from tessella.core.peers import MeshHealth, NodeStatus, PeerRow
from tessella.core.route import choose_chain, coverage, stage_cost

TOTAL = 10


def row(
    name: str,
    start: int,
    stop: int,
    *,
    step_ms: float = 0.0,
    queue: int = 0,
    status: NodeStatus = NodeStatus.HEALTHY,
    contract: str = "c",
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
        queue_depth=queue,
        step_ms=step_ms,
    )


def shown(chain: Sequence[Stage]) -> str:
    return " ".join(f"{stage.peer_id}={stage.layers}" for stage in chain)


THREE = [row("a", 0, 4), row("b", 4, 7), row("c", 7, 10)]


@pytest.mark.parametrize(
    ("rows", "first", "expected"),
    [
        pytest.param(THREE, None, "a=0:4 b=4:7 c=7:10", id="a plain split"),
        pytest.param([*THREE, row("r", 0, 10)], None, "r=0:10", id="a replica saves the hops"),
        pytest.param(
            [*THREE, row("r", 0, 10, step_ms=900)],
            None,
            "a=0:4 b=4:7 c=7:10",
            id="unless it is slow",
        ),
        pytest.param(
            [*THREE, row("r", 0, 10)], "a", "a=0:4 r=4:10", id="the entry is the first stage"
        ),
        pytest.param(
            [row("a", 0, 6, step_ms=60), row("b", 4, 10, step_ms=6)],
            None,
            "a=0:4 b=4:10",
            id="the cut is where the faster node begins",
        ),
        pytest.param(
            [row("a", 0, 10, queue=9), row("b", 0, 10)], None, "b=0:10", id="a queue is avoided"
        ),
        pytest.param([row("b", 0, 10), row("a", 0, 10)], None, "a=0:10", id="ties go by peer id"),
        pytest.param(
            [row("a", 0, 5), row("b", 5, 10, contract="other"), row("c", 5, 10)],
            None,
            "a=0:5 c=5:10",
            id="contracts are not mixed",
        ),
        pytest.param(
            [row("a", 0, 10, step_ms=1000), row("fast", 3, 6, step_ms=3)],
            None,
            "a=0:10",
            id="a node that is wanted before and after another is used once",
        ),
    ],
)
def test_the_cheapest_chain_is_chosen(
    rows: list[PeerRow], first: str | None, expected: str
) -> None:
    assert shown(choose_chain(rows, TOTAL, PeerId(first) if first else None)) == expected


@pytest.mark.parametrize(
    ("rows", "first", "named"),
    [
        pytest.param([], None, "layers 0:10 are served by nobody", id="nobody"),
        pytest.param(
            [THREE[0], row("b", 4, 7, status=NodeStatus.PENDING_LOAD)],
            None,
            "layers 4:10 are served by nobody",
            id="a part of the hole is loading",
        ),
        pytest.param(
            [THREE[0], row("b", 4, 7, status=NodeStatus.PENDING_LOAD), THREE[2]],
            None,
            "layers 4:7 are still loading",
            id="all of the hole is loading",
        ),
        pytest.param(
            [THREE[1]],
            None,
            "layers 0:4 are served by nobody; layers 7:10 are served by nobody",
            id="two holes",
        ),
        pytest.param(
            [row("a", 0, 10, status=NodeStatus.DRAINING)],
            None,
            "layers 0:10 are served by nobody",
            id="a draining node serves nobody new",
        ),
        pytest.param(THREE, "b", "b serves no layer 0", id="an entry without layer 0"),
        pytest.param(THREE, "x", "x serves no layer 0", id="an entry that nobody knows"),
    ],
)
def test_a_mesh_without_a_chain_says_what_is_missing(
    rows: list[PeerRow], first: str | None, named: str
) -> None:
    with pytest.raises(ModelUnavailable, match=named) as caught:
        choose_chain(rows, TOTAL, PeerId(first) if first else None)
    assert caught.value.retry


def test_rows_of_another_size_of_the_model_are_not_used() -> None:
    with pytest.raises(ModelUnavailable):
        choose_chain(THREE, TOTAL + 1)


@pytest.mark.parametrize(
    ("rows", "health", "holes"),
    [
        (THREE, MeshHealth.HEALTHY, []),
        ([], MeshHealth.INCOMPLETE, ["0:10"]),
        (THREE[:2], MeshHealth.INCOMPLETE, ["7:10"]),
        ([THREE[0], THREE[2]], MeshHealth.DEGRADED, ["4:7"]),
        (THREE[1:], MeshHealth.DEGRADED, ["0:4"]),
        ([THREE[1]], MeshHealth.DEGRADED, ["0:4", "7:10"]),
    ],
)
def test_health_is_the_walk_from_layer_0(
    rows: list[PeerRow], health: MeshHealth, holes: list[str]
) -> None:
    found = coverage(rows, TOTAL)
    assert (found.health, [str(hole) for hole in found.holes]) == (health, holes)


def test_the_contract_that_covers_most_counts() -> None:
    rows = [row("x", 0, 2, contract="a"), *THREE]
    assert coverage(rows, TOTAL).health is MeshHealth.HEALTHY


@st.composite
def meshes(draw: st.DrawFn) -> list[PeerRow]:
    rows = []
    for name in "abcde"[: draw(st.integers(1, 5))]:
        start = draw(st.integers(0, TOTAL - 1))
        stop = draw(st.integers(start + 1, TOTAL))
        step_ms = draw(st.sampled_from((0.0, 1.0, 30.0, 333.3)))
        rows.append(row(name, start, stop, step_ms=step_ms, queue=draw(st.integers(0, 2))))
    return rows


def cheapest(rows: Sequence[PeerRow], reach: int, used: frozenset[str]) -> int | None:
    """By trying everything: any cut, any order, each node once."""
    if reach == TOTAL:
        return 0
    costs = []
    for one in rows:
        if one.peer_id in used or not one.layers.start <= reach < one.layers.stop:
            continue
        for stop in range(reach + 1, one.layers.stop + 1):
            rest = cheapest(rows, stop, used | {one.peer_id})
            if rest is not None:
                costs.append(stage_cost(one, stop - reach) + rest)
    return min(costs, default=None)


def check_chain(rows: Sequence[PeerRow], chain: Sequence[Stage]) -> int:
    """It tiles the model with each node once, within its range. Its cost."""
    known = {one.peer_id: one for one in rows}
    assert [layer for stage in chain for layer in stage.layers] == list(range(TOTAL))
    assert len({stage.peer_id for stage in chain}) == len(chain)
    assert all(known[stage.peer_id].layers.holds(stage.layers) for stage in chain)
    return sum(stage_cost(known[stage.peer_id], len(stage.layers)) for stage in chain)


@settings(max_examples=60)
@given(meshes())
def test_no_chain_is_cheaper(rows: list[PeerRow]) -> None:
    best = cheapest(rows, 0, frozenset())
    if best is None:
        with pytest.raises(ModelUnavailable):
            choose_chain(rows, TOTAL)
        return
    chain = choose_chain(rows, TOTAL)
    assert check_chain(rows, chain) == best
    assert choose_chain(list(reversed(rows)), TOTAL) == chain


@settings(max_examples=60)
@given(meshes(), st.sampled_from("abcde"))
def test_a_forced_entry_is_stage_0_of_the_cheapest_such_chain(
    rows: list[PeerRow], name: str
) -> None:
    costs = []
    for one in rows:
        if one.peer_id == name and one.layers.start == 0:
            for stop in range(1, one.layers.stop + 1):
                rest = cheapest(rows, stop, frozenset({name}))
                costs += [] if rest is None else [stage_cost(one, stop) + rest]
    if not costs:
        with pytest.raises(ModelUnavailable):
            choose_chain(rows, TOTAL, PeerId(name))
        return
    chain = choose_chain(rows, TOTAL, PeerId(name))
    assert chain[0].peer_id == name
    assert check_chain(rows, chain) == min(costs)


@settings(max_examples=60)
@given(meshes())
def test_a_search_that_grows_too_large_still_finds_a_chain(rows: list[PeerRow]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(route, "MAX_PATHS", 0)
        if cheapest(rows, 0, frozenset()) is None:
            return
        check_chain(rows, choose_chain(rows, TOTAL))


def test_a_large_mesh_is_searched_within_its_bound() -> None:
    rows = [row(f"n{n:03}", n % 9, min(TOTAL, n % 9 + 3), step_ms=1 + n % 7) for n in range(400)]
    check_chain(rows, choose_chain(rows, TOTAL))
