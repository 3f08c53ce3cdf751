"""The id that is told is the id to ask for."""

from __future__ import annotations

import httpx

from tessella.core.errors import ModelUnavailable
from tests.worker.api.conftest import PATHS, Node, minimal

TOLD = {
    "id": "org/small",
    "object": "model",
    "created": 1_800_000_000,
    "owned_by": "tessella",
    "context_size": 256,
    "max_input_tokens": 200,
}


async def test_the_model_is_told_in_a_list_and_alone(client: httpx.AsyncClient) -> None:
    assert (await client.get("/v1/models")).json() == {"object": "list", "data": [TOLD]}
    assert (await client.get("/v1/models/org/small")).json() == TOLD
    assert (await client.get("/v1/models/org%2Fsmall")).json() == TOLD


async def test_its_id_is_what_requests_call_it(client: httpx.AsyncClient) -> None:
    (model,) = (await client.get("/v1/models")).json()["data"]
    for path in PATHS:
        answer = await client.post(path, json=minimal(path, model=model["id"]))
        assert (answer.status_code, answer.json()["model"]) == (200, model["id"])


async def test_another_is_not_found(client: httpx.AsyncClient) -> None:
    answers = [await client.get("/v1/models/org/other")]
    answers += [await client.post(path, json=minimal(path, model="org/other")) for path in PATHS]
    for answer in answers:
        assert answer.status_code == 404
        assert answer.json()["error"]["code"] == "unknown_model"
        assert "org/small" in answer.json()["error"]["message"]


async def test_while_it_loads_it_has_a_name_and_no_size(
    node: Node, client: httpx.AsyncClient
) -> None:
    node.limits = ModelUnavailable("loading")
    told = {**TOLD, "context_size": None, "max_input_tokens": None}
    assert (await client.get("/v1/models")).json()["data"] == [told]
