"""Orders of musivum over HTTP, as musivum sends them."""

from __future__ import annotations

import json
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
from trio.testing import MockClock

from musivum.pages.mesh import assigned
from musivum.placing.assigning import HTTP_PATH
from tessella.core.errors import Refused
from tessella.core.identity import Identity
from tessella.core.ids import ModelId
from tessella.core.layers import LayerRange
from tessella.core.signed_request import Request, sign_request
from tessella.web.app import make_app
from tessella.web.byte_calls import Pieces
from tessella.worker.api.orders import MAX_ORDER, PATH, OrderRoom, add_orders
from tessella.worker.orders import Orders
from tests.worker.http_net import wall

OURS, MUSIVUM = Identity(b"n" * 32), Identity(b"m" * 32)
MODEL = ModelId("toy")
GOOD = {"model_repo": "toy", "layer_ranges": [[2, 4]], "replica_group_id": 0, "expert_range": None}


@dataclass
class Scene:
    client: httpx.AsyncClient
    wanted: list[LayerRange] = field(default_factory=list)
    insists: bool = False

    def want(self, layers: LayerRange) -> None:
        if self.insists:
            raise Refused("this node insists on layers 0:3")
        self.wanted.append(layers)

    async def send(self, body: bytes) -> httpx.Response:
        asked = Request("POST", PATH, (), body, OURS.peer_id)
        headers = sign_request(asked, MUSIVUM, wall(), secrets.token_bytes(16))
        length = {"Content-Length": str(len(body))}
        request = self.client.build_request("POST", PATH, headers={**headers, **length})
        request.stream = Pieces(body)
        return await self.client.send(request)


@asynccontextmanager
async def scene(*, musivums: bool = True) -> AsyncIterator[Scene]:
    app = make_app("node", "0", rate=None, clock=wall)
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://node.test") as client:
        found = Scene(client)
        orders = Orders([MUSIVUM.peer_id] if musivums else [], found.want, wall)
        add_orders(app, OrderRoom.of(OURS.peer_id, orders, MODEL, wall))
        yield found


def told(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


async def test_what_musivum_sends_is_taken(autojump_clock: MockClock) -> None:
    assert HTTP_PATH == PATH
    body = json.dumps(assigned(MODEL, LayerRange(2, 4)).model_dump()).encode()
    assert json.loads(body) == GOOD
    async with scene() as s:
        answer = await s.send(body)
        assert (answer.status_code, answer.json()) == (200, {"ok": True})
        assert s.wanted == [LayerRange(2, 4)]


async def test_a_node_that_insists_says_so(autojump_clock: MockClock) -> None:
    async with scene() as s:
        s.insists = True
        answer = await s.send(json.dumps(GOOD).encode())
        assert told(answer) == (409, "refused")
        assert "insists" in answer.json()["error"]["message"]


async def test_an_order_for_another_model_is_not_ours(autojump_clock: MockClock) -> None:
    async with scene() as s:
        answer = await s.send(json.dumps({**GOOD, "model_repo": "other"}).encode())
        assert told(answer) == (409, "refused")
        assert s.wanted == []


@pytest.mark.parametrize(
    ("body", "named"),
    [
        (b"", "not JSON"),
        (b'{"model_repo": "\\ud800"}', "not JSON"),
        (b"NaN", "not JSON"),
        (b"{", "not JSON"),
        (b"[" * 4000, "not JSON"),
        (b"[]", "body|dictionary|object"),
        ({"layer_ranges": []}, "layer_ranges"),
        ({"layer_ranges": [[0, 1], [1, 2]]}, "layer_ranges"),
        ({"layer_ranges": [[4, 2]]}, "layer_ranges"),
        ({"layer_ranges": [[2, 2]]}, "layer_ranges"),
        ({"layer_ranges": [[2]]}, "layer_ranges"),
        ({"layer_ranges": [[-1, 2]]}, "layer_ranges"),
        ({"layer_ranges": [[0, 10**9]]}, "layer_ranges"),
        ({"layer_ranges": [["0", "2"]]}, "layer_ranges"),
        ({"model_repo": ""}, "model_repo"),
        ({"expert_range": [0, 1]}, "expert_range"),
    ],
)
async def test_what_is_no_order_is_refused_by_its_field(
    body: bytes | dict[str, Any], named: str, autojump_clock: MockClock
) -> None:
    sent = body if isinstance(body, bytes) else json.dumps({**GOOD, **body}).encode()
    async with scene() as s:
        answer = await s.send(sent)
        assert told(answer) == (400, "bad_request")
        assert any(word in answer.json()["error"]["message"] for word in named.split("|"))
        assert s.wanted == []


async def test_a_field_that_no_order_has_is_named_unless_it_asks_for_nothing(
    autojump_clock: MockClock,
) -> None:
    async with scene() as s:
        answer = await s.send(json.dumps({**GOOD, "more": 1}).encode())
        assert told(answer) == (400, "unsupported_parameter")
        assert answer.json()["error"]["param"] == "more"
        assert s.wanted == []
        assert (await s.send(json.dumps({**GOOD, "more": None}).encode())).status_code == 200


async def test_an_order_is_short(autojump_clock: MockClock) -> None:
    async with scene() as s:
        answer = await s.send(json.dumps(GOOD).encode() + b" " * MAX_ORDER)
        assert told(answer) == (413, "body_too_large")


async def test_a_node_of_no_musivum_takes_no_orders(autojump_clock: MockClock) -> None:
    async with scene(musivums=False) as s:
        assert told(await s.send(json.dumps(GOOD).encode())) == (401, "bad_signature")


async def test_a_musivum_that_orders_without_end_is_not_heeded(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tessella.worker.orders.MAX_NONCES", few := 8)
    async with scene() as s:
        body = json.dumps(GOOD).encode()
        for _ in range(few):
            assert (await s.send(body)).status_code == 200
        assert told(await s.send(body)) == (429, "too_many_requests")
        assert len(s.wanted) == few


async def test_openapi_tells_what_an_order_is() -> None:
    app = make_app("node", "0", rate=None)
    orders = Orders([MUSIVUM.peer_id], lambda layers: None, lambda: 0.0)
    add_orders(app, OrderRoom.of(OURS.peer_id, orders, MODEL, lambda: 0.0))
    operation = app.openapi()["paths"][PATH]["post"]
    schema = operation["requestBody"]["content"]["application/json"]["schema"]
    assert {"model_repo", "layer_ranges"} <= set(schema["required"])
    assert set(operation["responses"]) == {"200", "400", "401", "408", "409", "413", "429"}
