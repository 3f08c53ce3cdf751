"""The app as a whole: its document, and how large a body may be."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from tessella.core.completions import MAX_REQUEST_BYTES
from tessella.worker.api.app import node_app
from tests.worker.api.conftest import PATHS, Node, minimal

ROUTES = {
    *(("post", path) for path in PATHS),
    ("get", "/v1/models"),
    ("get", "/v1/models/{model}"),
    ("get", "/health"),
    ("get", "/status"),
    ("get", "/metrics"),
}


async def test_the_document_has_every_route_and_its_refusals(client: httpx.AsyncClient) -> None:
    document = (await client.get("/openapi.json")).json()
    assert document["info"]["title"] == "Tessella node"
    found = {
        (method, path): operation
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    }
    assert set(found) == ROUTES
    names = [operation["operationId"] for operation in found.values()]
    assert sorted(names) == sorted(set(names))
    assert all(operation["description"] for operation in found.values())
    for path in PATHS:
        responses = found["post", path]["responses"]
        refusals = {"400", "401", "403", "404", "409", "413", "429", "500", "502", "503"}
        assert set(responses) == {"200"} | refusals
        assert set(responses["200"]["content"]) == {"application/json", "text/event-stream"}


@pytest.mark.parametrize("path", PATHS)
async def test_a_long_prompt_is_read_and_a_longer_one_refused(
    client: httpx.AsyncClient, path: str
) -> None:
    field = "prefix" if "fim" in path else "prompt"
    room = MAX_REQUEST_BYTES - 200

    def body(size: int) -> dict[str, Any]:
        text = "x" * size
        return (
            minimal(path, **{field: text})
            if "chat" not in path
            else {"messages": [{"role": "user", "content": text}]}
        )

    assert (await client.post(path, json=body(room))).status_code == 200
    refused = await client.post(path, json=body(room + 300))
    assert (refused.status_code, refused.json()["error"]["code"]) == (413, "body_too_large")


async def test_routes_of_others_have_caps_of_their_own(node: Node) -> None:
    app = node_app(node.rooms(), bodies={"/v1/forward": 100_000})

    @app.post("/v1/forward")
    async def forward(body: str) -> int:
        return len(body)

    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://node.test") as client:
        for size, status in ((100_001, 413), (90_000, 400)):
            answer = await client.post("/v1/forward", content=b"x" * size)
            assert answer.status_code == status


@pytest.mark.parametrize("method", ["OPTIONS", "POST"])
async def test_a_page_in_somebodys_browser_asks_in_vain(
    node: Node, client: httpx.AsyncClient, method: str
) -> None:
    headers = {"Origin": "http://evil.example:8080", "Host": "evil.example:8080"}
    answer = await client.request(method, PATHS[0], json=minimal(PATHS[0]), headers=headers)
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "not_authorized")
    assert not [name for name in answer.headers if name.startswith("access-control")]
    assert node.asked == []


HOSTILE = {
    "arrays": b'{"messages": [' + b"[]," * 1_300_000 + b"[]]}",
    "numbers": b'{"messages": [' + b"1," * 2_000_000 + b"1]}",
    "messages": b'{"messages": [' + b"{}," * 60_000 + b"{}]}",
    "parts": b'{"messages": [{"role": "user", "content": [' + b"0," * 60_000 + b"0]}]}",
    "fields": b"{" + b",".join(b'"%d":1' % each for each in range(60_000)) + b"}",
    "strings": b'{"messages": [' + b'"",' * 1_300_000 + b'""]}',
}


@pytest.mark.parametrize("name", HOSTILE)
async def test_a_body_made_to_be_slow_is_refused(client: httpx.AsyncClient, name: str) -> None:
    headers = {"Content-Type": "application/json"}
    answer = await client.post(PATHS[0], content=HOSTILE[name], headers=headers)
    # What takes longest is 0.1 seconds; unbounded, some of them are seconds.
    assert answer.status_code == 400
    assert len(answer.content) < 1000


async def test_a_conversation_of_the_longest_kind_is_read(
    node: Node, client: httpx.AsyncClient
) -> None:
    part = {"type": "text", "text": 'a, "b", [c] ' * 80}
    messages = [{"role": "user", "content": [part]}] * 3500
    body = json.dumps({"messages": messages}).encode()
    assert 3_500_000 < len(body) < MAX_REQUEST_BYTES
    headers = {"Content-Type": "application/json"}
    assert (await client.post(PATHS[0], content=body, headers=headers)).status_code == 200
    assert len(node.asked[0].messages) == 3500
