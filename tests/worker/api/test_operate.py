from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest
import trio
from trio.testing import MockClock

from tessella.core.identity import Identity
from tessella.core.layers import LayerRange
from tessella.core.pauses import Why
from tessella.core.peers import NodeStatus
from tessella.core.signed_request import NONCE, Request, sign_request
from tessella.web.app import make_app
from tessella.worker.api.operate import PATH, OwnerRoom, add_operate
from tessella.worker.assignment import Assignment
from tessella.worker.pausing import Pausing
from tessella.worker.state import NodeState

OWNER, OTHER = Identity(b"o" * 32), Identity(b"x" * 32)
BEGAN = 1_800_000_000.0


class Node:
    """A node that is told by HTTP."""

    def __init__(self) -> None:
        self.stop = trio.Event()
        self.state = NodeState(trio.current_time(), status=NodeStatus.HEALTHY)
        self.assignment = Assignment(6, None)
        self.assignment.begin(LayerRange(0, 3))
        pausing = Pausing(self.assignment, self.state, self.stop)
        self.app = make_app("A node", "1", rate=None)
        room = OwnerRoom.of(OWNER.peer_id, pausing, self.state, self.clock)
        add_operate(self.app, room)
        self.nonce = 0

    def clock(self) -> float:
        return BEGAN + trio.current_time()

    async def told(self, order: Any, by: Identity = OWNER, **changes: Any) -> tuple[int, Any]:
        body = json.dumps(order).encode()
        self.nonce += 1
        asked = Request("POST", PATH, (), body, audience=changes.get("audience", OWNER.peer_id))
        nonce = changes.get("nonce", self.nonce.to_bytes(16, "big"))
        headers = sign_request(asked, by, changes.get("at", self.clock()), nonce)
        return await self.sent(changes.get("body", body), headers)

    async def sent(self, body: bytes, headers: dict[str, str]) -> tuple[int, Any]:
        transport = httpx.ASGITransport(app=self.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://node") as client:
            answer = await client.post(PATH, content=body, headers=headers)
        return answer.status_code, answer.json()


async def test_the_owner_pauses_and_resumes(autojump_clock: MockClock) -> None:
    node = Node()
    status, said = await node.told({"order": "pause"})
    assert (status, said["paused_by"], said["resumes_in_seconds"]) == (200, "owner", None)
    assert node.assignment.is_resting
    assert node.state.pause is not None
    assert node.state.pause.why is Why.OWNER
    status, said = await node.told({"order": "resume"})
    assert (status, said["paused_by"]) == (200, None)
    assert not node.assignment.is_resting


async def test_a_pause_may_be_for_minutes(autojump_clock: MockClock) -> None:
    status, said = await Node().told({"order": "pause", "minutes": 1.5})
    assert (status, said["resumes_in_seconds"]) == (200, pytest.approx(90.0))


async def test_the_owner_drains(autojump_clock: MockClock) -> None:
    node = Node()
    status, said = await node.told({"order": "drain"})
    assert (status, said["order"]) == (200, "drain")
    assert node.stop.is_set()


@pytest.mark.parametrize(
    "order",
    [
        {},
        {"order": "dance"},
        {"order": "pause", "minutes": 0},
        {"order": "pause", "minutes": -3},
        {"order": "pause", "minutes": "10"},
        {"order": "pause", "minutes": 1e9},
        {"order": "pause", "until": 5},
        {"order": "resume", "minutes": 5},
        {"order": "drain", "minutes": 5},
        [],
        "pause",
    ],
    ids=json.dumps,
)
async def test_an_order_out_of_its_rule_changes_nothing(
    autojump_clock: MockClock, order: Any
) -> None:
    node = Node()
    status, said = await node.told(order)
    assert status == 400
    assert said["error"]["message"]
    assert (node.state.pause, node.stop.is_set()) == (None, False)


Tell = Callable[[Node], Any]


async def twice(node: Node) -> tuple[int, Any]:
    await node.told({"order": "resume"}, nonce=b"n" * 16)
    return await node.told({"order": "pause"}, nonce=b"n" * 16)


async def unsigned(node: Node) -> tuple[int, Any]:
    return await node.sent(b'{"order": "pause"}', {"content-type": "application/json"})


async def without_a_nonce(node: Node) -> tuple[int, Any]:
    asked = Request("POST", PATH, (), b"{}", audience=OWNER.peer_id)
    headers = sign_request(asked, OWNER, node.clock(), b"n" * 16)
    del headers[NONCE]
    return await node.sent(b"{}", headers)


@pytest.mark.parametrize(
    "tell",
    [
        pytest.param(lambda node: node.told({"order": "pause"}, by=OTHER), id="another peer"),
        pytest.param(unsigned, id="anybody"),
        pytest.param(without_a_nonce, id="without a nonce"),
        pytest.param(twice, id="an order that was overheard"),
        pytest.param(
            lambda node: node.told({"order": "pause"}, at=node.clock() - 120), id="an old one"
        ),
        pytest.param(
            lambda node: node.told({"order": "pause"}, audience=OTHER.peer_id),
            id="one for another node",
        ),
        pytest.param(
            lambda node: node.told({"order": "resume"}, body=b'{"order": "pause"}'),
            id="another body",
        ),
    ],
)
async def test_nobody_but_the_owner_is_heard(autojump_clock: MockClock, tell: Tell) -> None:
    node = Node()
    status, said = await tell(node)
    assert status == 401, said
    assert (node.state.pause, node.stop.is_set()) == (None, False)


async def test_a_stranger_does_not_learn_what_an_order_looks_like(
    autojump_clock: MockClock,
) -> None:
    status, _ = await Node().told({"order": "dance"}, by=OTHER)
    assert status == 401


async def test_the_document_tells_the_route(autojump_clock: MockClock) -> None:
    operation = Node().app.openapi()["paths"][PATH]["post"]
    assert set(operation["responses"]) >= {"200", "400", "401"}
    schema = operation["requestBody"]["content"]["application/json"]["schema"]
    assert schema["properties"]["order"]["enum"] == ["pause", "resume", "drain"]
