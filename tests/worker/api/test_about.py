"""How the node is."""

from __future__ import annotations

import httpx
import pytest

from tessella.core.errors import ModelUnavailable
from tessella.core.peers import NodeStatus
from tests.worker.api.conftest import Node


async def test_a_node_that_answers_is_healthy(client: httpx.AsyncClient) -> None:
    answer = await client.get("/health")
    assert (answer.status_code, answer.json()) == (200, {"status": "ok", "node": "Healthy"})


@pytest.mark.parametrize("status", [each for each in NodeStatus if each is not NodeStatus.HEALTHY])
async def test_one_that_does_not_says_why(
    node: Node, client: httpx.AsyncClient, status: NodeStatus
) -> None:
    node.health = status
    node.why = ModelUnavailable("it loads", 2.5, state="loading", progress=0.5, eta_seconds=2.5)
    answer = await client.get("/health")
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "3")
    error = answer.json()["error"]
    assert (error["code"], error["message"]) == ("model_unavailable", "it loads")
    assert error["details"] == {"state": "loading", "progress": 0.5, "eta_seconds": 2.5}
    head = await client.head("/health")
    assert (head.status_code, head.headers["Retry-After"]) == (503, "3")


async def test_a_balancer_may_ask_without_a_body(client: httpx.AsyncClient) -> None:
    assert (await client.head("/health")).status_code == 200


async def test_the_status_is_the_document_of_the_node(client: httpx.AsyncClient) -> None:
    document = (await client.get("/status")).json()
    assert document == {"status": "Healthy", "sessions": [{}], "kv_bytes": 12}


@pytest.mark.parametrize("path", ["/health", "/status", "/metrics", "/v1/models", "/v1/models/x"])
async def test_a_parameter_that_nobody_reads_is_refused(
    client: httpx.AsyncClient, path: str
) -> None:
    answer = await client.get(path, params={"verbose": "1"})
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "verbose"
