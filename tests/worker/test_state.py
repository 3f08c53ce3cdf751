from __future__ import annotations

from typing import Any, cast

import pytest

from tessella.core.layers import LayerRange
from tessella.core.pauses import Why
from tessella.core.peers import NodeStatus
from tessella.worker.state import Loaded, NodeState, Pause

FRONT, BACK = LayerRange(0, 3), LayerRange(3, 6)
LOADED = cast("Loaded", object())


@pytest.mark.parametrize("status", NodeStatus)
def test_only_a_node_that_serves_takes_sessions(status: NodeStatus) -> None:
    closed = {NodeStatus.DRAINING, NodeStatus.PAUSED, NodeStatus.SATURATED}
    state = NodeState(0.0, status=status, loaded=LOADED)
    assert state.takes_sessions is (status not in closed)
    assert not NodeState(0.0, status=status).takes_sessions


@pytest.mark.parametrize(
    ("given", "state", "retry_after", "eta"),
    [
        pytest.param({}, "loading", 30.0, None, id="nobody knows how long it loads"),
        pytest.param(
            {"status": NodeStatus.DRAINING, "moving_to": BACK},
            "draining",
            30.0,
            None,
            id="it moves",
        ),
        pytest.param({"status": NodeStatus.DRAINING}, None, None, None, id="it leaves"),
        pytest.param(
            {"status": NodeStatus.PAUSED, "pause": Pause(Why.OWNER)},
            "paused",
            30.0,
            None,
            id="paused for good",
        ),
        pytest.param(
            {"status": NodeStatus.PAUSED, "pause": Pause(Why.OWNER, until=112.0)},
            "paused",
            12.0,
            12.0,
            id="paused for seconds",
        ),
        pytest.param(
            {"status": NodeStatus.PAUSED, "pause": Pause(Why.OWNER, until=4000.0)},
            "paused",
            30.0,
            3900.0,
            id="paused for an hour",
        ),
        pytest.param(
            {"pause": Pause(Why.GPU)}, "paused", 30.0, None, id="its load was given up for a pause"
        ),
    ],
)
async def test_a_node_that_takes_no_session_says_why_and_when_to_ask_again(
    given: dict[str, Any], state: str | None, retry_after: float | None, eta: float | None
) -> None:
    said = NodeState(0.0, layers=FRONT, **given).unavailable(100.0)
    assert (said.code, said.status, said.retry) == ("model_unavailable", 503, True)
    assert said.details.get("state") == state
    assert said.retry_after == retry_after
    assert said.details.get("eta_seconds") == eta


async def test_a_node_without_memory_says_so() -> None:
    said = NodeState(0.0, layers=FRONT, status=NodeStatus.SATURATED, loaded=LOADED).unavailable(0.0)
    assert (said.details["state"], said.retry_after) == ("saturated", 30.0)
