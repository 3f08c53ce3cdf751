"""The life of one node: what each call makes of it, in every state that it can be in."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import pytest

from musivum.nodes.node import Load, Node, check_announcement, joined
from musivum.nodes.registration import read_registration
from musivum.testing import HOUSE, a_registration
from tessella.core.errors import BadFrame, Refused
from tessella.core.ids import PeerId
from tessella.core.layers import LayerRange
from tessella.core.messages import Announce
from tessella.core.peers import NodeStatus

WISH = read_registration(a_registration(), HOUSE)
OLD, NEW, OTHER = LayerRange(0, 4), LayerRange(4, 10), LayerRange(10, 12)


def says(status: str, loaded: int = 0, total: int = 0, step_ms: float = 0.0) -> Announce:
    return Announce(status, 0, step_ms, loaded, total)


LOADING = joined(PeerId("a"), WISH, OLD, 0.0)
HALF = LOADING.announced(says("PendingLoad", 50, 100), 1.0)
READY = LOADING.ready(OLD, 1.0)
SATURATED = READY.announced(says("Saturated"), 1.0)
PAUSED = READY.announced(says("Paused"), 1.0)
DRAINING = READY.announced(says("Draining"), 1.0)
GONE = READY.with_status(NodeStatus.OFFLINE, seen=1.0)
STALLED = HALF.with_status(NodeStatus.OFFLINE, seen=1.0)
MOVING = READY.moved(NEW)
MOVED_AWAY = GONE.moved(NEW)

Call = Callable[[Node], Node]


def announce(status: str, loaded: int = 0, total: int = 0) -> Call:
    return lambda node: node.announced(says(status, loaded, total), 9.0)


def ready(layers: LayerRange) -> Call:
    return lambda node: node.ready(layers, 9.0)


def seen_as(node: Node) -> tuple[str, str, str, bool]:
    return node.row.status, str(node.row.layers), str(node.target), node.is_ready


@pytest.mark.parametrize(
    ("before", "call", "status", "is_ready"),
    [
        # Before `ready` a word changes nothing, but for a pause: nothing is loaded then.
        *[
            pytest.param(LOADING, announce(word), "PendingLoad", False, id=f"loading says {word}")
            for word in ("PendingLoad", "Healthy", "Saturated", "Draining")
        ],
        pytest.param(LOADING, announce("Paused"), "Paused", False, id="paused while it loads"),
        pytest.param(LOADING, ready(OLD), "Healthy", True, id="loading is ready"),
        pytest.param(HALF, ready(OLD), "Healthy", True, id="half loaded is ready"),
        # After it the node says how it is.
        *[
            pytest.param(node, announce(word), word, True, id=f"{name} says {word}")
            for name, node in {
                "healthy": READY,
                "saturated": SATURATED,
                "paused": PAUSED,
                "draining": DRAINING,
                "gone": GONE,
            }.items()
            for word in ("Healthy", "Saturated", "Paused", "Draining")
        ],
        *[
            pytest.param(node, ready(OLD), "Healthy", True, id=f"{name} is ready again")
            for name, node in {"saturated": SATURATED, "paused": PAUSED, "gone": GONE}.items()
        ],
        *[
            pytest.param(node, announce("PendingLoad"), "PendingLoad", False, id=f"{name} reloads")
            for name, node in {"healthy": READY, "draining": DRAINING, "gone": GONE}.items()
        ],
        # Given up while it loaded: back once it is further, or ready.
        pytest.param(STALLED, announce("PendingLoad", 50, 100), "Offline", False, id="stands"),
        pytest.param(STALLED, announce("Healthy", 50, 100), "Offline", False, id="only talks"),
        pytest.param(STALLED, announce("PendingLoad"), "Offline", False, id="says nothing of it"),
        pytest.param(STALLED, announce("PendingLoad", 40, 100), "Offline", False, id="falls back"),
        pytest.param(STALLED, announce("PendingLoad", 51, 100), "PendingLoad", False, id="goes on"),
        pytest.param(STALLED, ready(OLD), "Healthy", True, id="was done after all"),
    ],
)
def test_every_call_in_every_state(before: Node, call: Call, status: str, is_ready: bool) -> None:
    after = call(before)
    assert seen_as(after) == (status, "0:4", "None", is_ready)
    if status != "Offline":
        assert after.seen == 9.0


@pytest.mark.parametrize(
    ("before", "call", "expected"),
    [
        pytest.param(MOVING, announce("Healthy"), ("Healthy", "0:4", "4:10", True), id="serves on"),
        pytest.param(
            MOVING, announce("Draining"), ("Draining", "0:4", "4:10", True), id="lets sessions end"
        ),
        pytest.param(
            MOVING, announce("PendingLoad"), ("PendingLoad", "4:10", "None", False), id="begins"
        ),
        pytest.param(MOVING, ready(NEW), ("Healthy", "4:10", "None", True), id="is there at once"),
        pytest.param(
            MOVING, ready(OLD), ("Healthy", "0:4", "4:10", True), id="ready for the old range"
        ),
        pytest.param(
            MOVED_AWAY, announce("Healthy"), ("Healthy", "0:4", "4:10", True), id="is back"
        ),
        pytest.param(
            MOVED_AWAY,
            announce("PendingLoad"),
            ("PendingLoad", "4:10", "None", False),
            id="is back and begins",
        ),
        pytest.param(
            MOVING, lambda node: node.moved(OLD), ("Healthy", "0:4", "None", True), id="taken back"
        ),
        pytest.param(
            MOVING,
            lambda node: node.moved(OTHER),
            ("Healthy", "0:4", "10:12", True),
            id="another range",
        ),
    ],
)
def test_a_node_that_is_moved(
    before: Node, call: Call, expected: tuple[str, str, str, bool]
) -> None:
    assert seen_as(call(before)) == expected


@pytest.mark.parametrize(
    ("node", "layers", "named"),
    [
        (LOADING, NEW, "layers 0:4 were assigned, not 4:10"),
        (READY, LayerRange(0, 5), "layers 0:4 were assigned, not 0:5"),
        (MOVING, OTHER, "layers 4:10 were assigned, not 10:12"),
        (MOVING.moved(OLD), NEW, "layers 0:4 were assigned, not 4:10"),
    ],
)
def test_nobody_serves_a_range_that_it_was_not_given(
    node: Node, layers: LayerRange, named: str
) -> None:
    with pytest.raises(Refused, match=named):
        node.ready(layers, 9.0)


def begins_and_says_its_old_pace(node: Node) -> Node:
    return node.announced(says("PendingLoad", step_ms=20.0), 9.0)


@pytest.mark.parametrize("arrives", [begins_and_says_its_old_pace, ready(NEW)])
def test_what_was_measured_through_other_layers_is_forgotten(arrives: Call) -> None:
    measured = READY.announced(says("Healthy", step_ms=20.0), 2.0)
    assert measured.row.step_ms == 20.0
    assert arrives(measured.moved(NEW)).row.step_ms == 0.0
    assert measured.ready(OLD, 3.0).row.step_ms == 20.0


def test_a_moving_node_reserves_both_ranges_and_is_slow_in_neither() -> None:
    measured = MOVING.announced(says("Healthy", step_ms=20.0), 2.0)
    old, new = measured.holdings()
    assert (old.layers, old.status, old.steps_per_second) == (OLD, NodeStatus.HEALTHY, 50.0)
    assert (new.layers, new.status, new.steps_per_second) == (NEW, NodeStatus.PENDING_LOAD, 0.0)
    assert old.claim_mb == new.claim_mb == WISH.claim_mb


@pytest.mark.parametrize("word", ["Healthy", "Saturated", "Paused", "Draining"])
def test_a_moving_node_reserves_its_target_whatever_it_says(word: str) -> None:
    held = MOVING.announced(says(word), 2.0).holdings()
    assert [str(one.layers) for one in held] == ["0:4", "4:10"]


def test_a_node_that_is_gone_reserves_no_target() -> None:
    assert [one.status for one in MOVED_AWAY.holdings()] == [NodeStatus.OFFLINE]


def test_a_load_is_as_far_as_its_node_says_and_takes_as_long_as_so_far() -> None:
    fresh = LOADING.load
    assert (fresh.progress, fresh.eta_seconds(10.0)) == (0.0, None)
    quarter = LOADING.announced(says("PendingLoad", 25, 100), 5.0).load
    assert (quarter.progress, quarter.eta_seconds(10.0)) == (0.25, 30.0)
    assert LOADING.announced(says("PendingLoad", 100, 100), 5.0).load.eta_seconds(10.0) == 0.0
    over = LOADING.announced(says("PendingLoad", 300, 100), 5.0).load
    assert (over.progress, over.eta_seconds(10.0)) == (1.0, 0.0)


def test_nobody_knows_how_long_a_load_of_unknown_size_takes() -> None:
    load = LOADING.announced(says("PendingLoad", 25, 0), 5.0).load
    assert (load.progress, load.eta_seconds(10.0)) == (0.0, None)


def test_bytes_from_before_a_load_was_given_up_are_no_pace() -> None:
    back = STALLED.announced(says("PendingLoad", 60, 100), 100.0).load
    assert back.eta_seconds(110.0) is None
    assert back.noted(70, 100, 110.0).eta_seconds(110.0) == 30.0


def test_bytes_from_before_a_restart_are_no_pace() -> None:
    known_again = Load(began=100.0, advanced=100.0, began_bytes=None)
    first = known_again.noted(60, 100, 105.0)
    assert first.eta_seconds(110.0) is None
    assert first.noted(80, 100, 110.0).eta_seconds(110.0) == 10.0


def test_a_load_advances_when_more_is_loaded_and_not_by_being_told_again() -> None:
    load = Load(began=0.0, advanced=0.0).noted(10, 100, 1.0)
    assert load.advanced == 1.0
    assert load.noted(10, 100, 2.0).advanced == 1.0
    assert load.noted(5, 100, 2.0).advanced == 1.0
    assert load.noted(0, 0, 2.0) == load
    assert load.noted(11, 100, 2.0).advanced == 2.0


def test_a_node_that_begins_to_load_is_at_its_beginning() -> None:
    ready_late = HALF.ready(OLD, 50.0).moved(NEW)
    load = ready_late.announced(says("PendingLoad", 1, 10), 90.0).load
    assert (load.began, load.advanced, load.progress) == (90.0, 90.0, 0.1)
    assert load.eta_seconds(91.0) == 9.0


@pytest.mark.parametrize(
    "said",
    [
        Announce("Offline", 0, 0.0),
        Announce("Healthy", 0, math.nan),
        Announce("Healthy", 0, math.inf),
        Announce("Healthy", 0, 0.0, loaded_bytes=-1),
        Announce("Healthy", 0, 0.0, loaded_bytes=1 << 61),
        Announce("Healthy", 0, 0.0, total_bytes=-1),
        Announce("Healthy", 0, 0.0, total_bytes=1 << 61),
    ],
)
def test_what_no_node_may_say(said: Announce) -> None:
    with pytest.raises(BadFrame, match="Announce"):
        check_announcement(said)


def test_nodes_fit_together_that_are_of_one_shape() -> None:
    assert LOADING.group == ("small", WISH.contract, 12)
    other = replace(LOADING, row=replace(LOADING.row, contract="x"))
    assert other.group != LOADING.group


def test_a_canary_is_listed_as_one_and_leaves_its_layers_open() -> None:
    canary = joined(PeerId("c"), replace(WISH, is_canary=True), OLD, 0.0).ready(OLD, 1.0)
    assert canary.row.canary
    assert not canary.row.serves
    assert [one.status.holds for one in canary.moved(NEW).holdings()] == [False]
