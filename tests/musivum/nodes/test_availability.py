"""Why a model cannot be asked: which layers, whether they are coming, and what would help."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from musivum.config import MusivumConfig
from musivum.nodes.availability import MOST_RETRY_SECONDS, RETRY_SECONDS, pending, unavailable
from musivum.nodes.node import Node, joined
from musivum.nodes.registration import read_registration
from musivum.nodes.roster import Roster
from musivum.testing import HOUSE, a_registration
from tessella.core.errors import ModelUnavailable
from tessella.core.ids import ModelId, PeerId
from tessella.core.layers import LayerRange
from tessella.core.messages import Announce
from tessella.core.peers import MeshHealth, NodeStatus
from tessella.core.plan import Refuse, place, replica_claim
from tessella.core.route import coverage

SMALL_ID = ModelId("small")
WISH = read_registration(a_registration(), HOUSE)
NOW = 100.0


def serving(layers: str, name: str = "") -> Node:
    part = LayerRange.parse(layers)
    return joined(PeerId(name or layers), WISH, part, 0.0).ready(part, 0.0)


def loading(layers: str, loaded: int = 0, total: int = 0, name: str = "") -> Node:
    node = joined(PeerId(name or layers), WISH, LayerRange.parse(layers), 0.0)
    return node.announced(Announce("PendingLoad", 0, 0.0, loaded, total), NOW)


def as_if(node: Node, status: NodeStatus) -> Node:
    return node.with_status(status, seen=NOW)


def why(*nodes: Node) -> ModelUnavailable:
    error = unavailable(SMALL_ID, nodes, WISH.terms, NOW)
    assert error is not None
    return error


def details(error: ModelUnavailable) -> dict[str, Any]:
    plain: dict[str, Any] = json.loads(json.dumps(error.details, allow_nan=False))
    return plain


@pytest.mark.parametrize(
    ("nodes", "health"),
    [
        ([serving("0:4"), serving("4:12")], MeshHealth.HEALTHY),
        ([serving("0:12")], MeshHealth.HEALTHY),
        ([serving("0:4"), serving("6:12")], MeshHealth.DEGRADED),
        ([serving("4:12")], MeshHealth.DEGRADED),
        ([serving("0:4"), serving("4:10")], MeshHealth.INCOMPLETE),
        ([serving("0:4"), loading("4:12")], MeshHealth.INCOMPLETE),
        ([], MeshHealth.INCOMPLETE),
    ],
)
def test_a_model_can_be_asked_where_its_mesh_is_healthy_and_only_there(
    nodes: list[Node], health: MeshHealth
) -> None:
    assert coverage([node.row for node in nodes], 12).health is health
    error = unavailable(SMALL_ID, nodes, WISH.terms, NOW)
    assert (error is None) == (health is MeshHealth.HEALTHY)


def test_layers_that_nobody_serves_are_named_with_the_claim_that_would() -> None:
    error = why(serving("0:4"))
    assert str(error) == (
        "small: layers 4:12 are served by nobody: a node with a claim of 13 MB would serve them"
    )
    assert error.retry_after == RETRY_SECONDS
    assert details(error) == {
        "state": "missing",
        "missing": [[4, 12]],
        "claim_mb": 13,
        "progress": None,
        "eta_seconds": None,
    }


@pytest.mark.parametrize("nodes", [[], [serving("0:4")], [serving("2:10")], [serving("0:11")]])
def test_the_claim_that_is_named_would_be_given_the_hole_and_a_smaller_one_would_not(
    nodes: list[Node],
) -> None:
    error = why(*nodes)
    held = [one for node in nodes for one in node.holdings()]
    claim = details(error)["claim_mb"]
    start, stop = details(error)["missing"][0]
    assert place(WISH.terms, held, claim) == LayerRange(start, stop)
    assert place(WISH.terms, held, claim - 1) != LayerRange(start, stop)


def test_a_whole_model_is_missing_no_more_than_a_replica_takes() -> None:
    large = replace(WISH.terms, weights_per_layer_mb=1000.0)
    error = unavailable(SMALL_ID, [], large, NOW)
    assert error is not None
    assert error.details["claim_mb"] == replica_claim(large)
    assert place(large, [], replica_claim(large)) == large.whole
    assert not isinstance(place(large, [], replica_claim(large) - 1), Refuse)
    assert place(large, [], replica_claim(large) - 1) != large.whole


def test_only_what_nobody_loads_either_is_asked_for() -> None:
    error = why(serving("0:2"), loading("2:6", 50, 100), serving("8:10"))
    assert "layers 6:8 are served by nobody" in str(error)
    assert "layers 10:12 are served by nobody" in str(error)
    assert "layers 2:" not in str(error)
    found = details(error)
    assert found["state"] == "missing"
    assert found["missing"] == [[2, 8], [10, 12]]
    assert (found["progress"], found["eta_seconds"]) == (0.5, None)


def test_all_that_is_missing_is_on_its_way() -> None:
    error = why(serving("0:4"), loading("4:12", 25, 100))
    assert str(error) == "small: layers 4:12 are loading, 25%"
    assert error.retry_after == 300
    assert details(error) == {
        "state": "loading",
        "missing": [[4, 12]],
        "claim_mb": 0,
        "progress": 0.25,
        "eta_seconds": 300.0,
    }


def test_the_slowest_load_that_is_waited_for_counts() -> None:
    error = why(serving("0:2"), loading("2:6", 90, 100), loading("6:12", 50, 100))
    assert (details(error)["progress"], details(error)["eta_seconds"]) == (0.5, 100.0)


def test_a_load_that_nobody_waits_for_does_not() -> None:
    needed = loading("4:12", 80, 100)
    twin = loading("4:12", 10, 100, name="slower twin")
    replica = loading("0:12", 0, 0, name="not begun")
    elsewhere = loading("0:4", 1, 100, name="served already")
    error = why(serving("0:4"), needed, twin, replica, elsewhere)
    assert (details(error)["progress"], details(error)["eta_seconds"]) == (0.8, 25.0)
    assert error.retry_after == 25


def test_while_nobody_knows_how_long_a_load_takes_a_client_comes_back_soon() -> None:
    error = why(serving("0:4"), loading("4:10", 50, 100), loading("10:12"))
    found = details(error)
    assert (found["state"], found["progress"], found["eta_seconds"]) == ("loading", 0.0, None)
    assert error.retry_after == RETRY_SECONDS


@pytest.mark.parametrize(
    ("loaded", "total", "seconds"), [(100, 100, 1), (99, 100, 2), (1, 1 << 60, MOST_RETRY_SECONDS)]
)
def test_nobody_is_told_to_come_back_at_once_or_never(
    loaded: int, total: int, seconds: float
) -> None:
    error = why(serving("0:4"), loading("4:12", loaded, total))
    assert error.retry_after == seconds
    assert isinstance(error.retry_after, int)
    details(error)


@pytest.mark.parametrize(
    "status", [each for each in NodeStatus if each is not NodeStatus.HEALTHY], ids=str
)
def test_only_healthy_nodes_serve(status: NodeStatus) -> None:
    assert why(serving("0:4"), as_if(serving("4:12"), status))


def test_what_is_loading_is_listed_by_its_first_layer() -> None:
    nodes = [loading("4:10", 50, 100), serving("10:12"), loading("0:4", 25, 100)]
    found = [(str(one.layers), one.progress, one.eta_seconds) for one in pending(nodes, NOW)]
    assert found == [("0:4", 0.25, 300.0), ("4:10", 0.5, 100.0)]


def test_a_node_that_moves_away_serves_until_it_begins() -> None:
    roster = Roster(MusivumConfig(min_vram_mb=0))
    for name in "abc":
        node = roster.join(PeerId(name), WISH, 0.0)
        roster.ready(node.peer_id, node.row.layers, 0.0)
    roster.move(PeerId("c"), LayerRange(0, 4))
    assert unavailable(SMALL_ID, roster.nodes(), WISH.terms, NOW) is None
    roster.announce(PeerId("c"), Announce("PendingLoad", 0, 0.0, 0, 0), NOW)
    assert details(why(*roster.nodes()))["missing"] == [[10, 12]]
