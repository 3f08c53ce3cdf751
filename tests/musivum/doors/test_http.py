"""What HTTP itself asks of every route: methods, queries, sizes, and one shape for errors."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from trio.testing import MockClock

from musivum.config import MusivumConfig
from musivum.doors.questions import LEDGER, OPERATOR, PUBLIC
from musivum.routes import BODIES, http_app
from musivum.testing_http import Door, HttpNode, answering, http_node
from p2p.testing import MemoryNetwork
from tessella import __version__
from tessella.web.errors import ErrorBody
from tessella.web.limits import RateLimits

MUSIVUM_SEED, NODE_SEED = b"m" * 32, b"n" * 32
CONFIG = MusivumConfig(min_vram_mb=0)
TOKEN = "the-operators-token"
BEARER = {"Authorization": f"Bearer {TOKEN}"}
SIGNED = (
    "/register",
    "/announce",
    "/ready",
    "/deregister",
    "/report_failure",
    "/api/v1/audit_report",
)
NET = MemoryNetwork()
READ = [*PUBLIC, *LEDGER, "/status", "/metrics"]


@pytest.fixture
async def door(autojump_clock: MockClock) -> AsyncIterator[Door]:
    async with answering(NET, MUSIVUM_SEED, CONFIG, token=TOKEN) as opened:
        yield opened


@pytest.fixture
async def node(door: Door) -> AsyncIterator[HttpNode]:
    async with http_node(NET, NODE_SEED, door) as opened:
        yield opened


def told(answer: httpx.Response) -> tuple[int, str, str]:
    body = ErrorBody.model_validate_json(answer.content, strict=True).error
    assert set(answer.json()) == {"error"}
    assert answer.headers["content-type"] == "application/json"
    return answer.status_code, body.code, body.message


async def test_an_unknown_parameter_is_refused_by_its_name(door: Door) -> None:
    for path in READ:
        status, code, message = told(await door.client.get(path, params={"modle_id": "x"}))
        assert (status, code) == (400, "bad_request")
        assert "query.modle_id" in message or "query.model_id" in message


async def test_an_operators_unknown_parameter_too(door: Door) -> None:
    for question in OPERATOR.values():
        answer = await door.client.request(
            question.method, question.path, params={"dry": "1"}, headers=BEARER, json={}
        )
        assert told(answer)[:2] == (400, "bad_request")


WRONG = [
    ("/model_health", "model_id"),
    ("/model_health?model_id=", "model_id"),
    ("/model_health?model_id=m&device=tpu", "device"),
    ("/model_health?model_id=m&dtype=f64", "dtype"),
    ("/model_health?model_id=m&kv_cache_type=q2", "kv_cache_type"),
    ("/model_health?model_id=m&context_size=0", "context_size"),
    ("/model_health?model_id=m&parallel_slots=5000", "parallel_slots"),
    ("/api/v1/assignment?model_id=m", "vram_mb"),
    ("/api/v1/assignment?model_id=m&vram_mb=-1", "vram_mb"),
    ("/api/v1/assignment?model_id=m&vram_mb=2.5", "vram_mb"),
    ("/api/v1/assignment?model_id=m&vram_mb=" + "9" * 400, "vram_mb"),
    ("/api/v1/chain", "model_id"),
    ("/weights/manifest", "model_id"),
    ("/peers?model_id=" + "x" * 201, "model_id"),
    ("/ledger/proof?index=-1", "index"),
    ("/ledger/proof?index=" + "9" * 30, "index"),
    ("/ledger/proof?index=0&count=1001", "count"),
    ("/ledger/proof?from=x", "from"),
    ("/api/v1/session_grant?model_id=m", "max_tokens"),
    ("/api/v1/session_grant?model_id=m&max_tokens=1&after=0", "after"),
]


async def test_a_wrong_parameter_is_400_and_named(door: Door) -> None:
    for path, field in WRONG:
        status, code, message = told(await door.client.get(path))
        assert (status, code) == (400, "bad_request")
        assert message.startswith(f"query.{field}: ")
        assert len(message) < 600


UNREADABLE = {
    "empty": b"",
    "torn": b"{",
    "a list": b"[]",
    "null": b"null",
    "bytes": b"\xff",
    "deep": b"[" * 60_000,
    "an unknown field": b'{"x": 1}',
    "no range": b'{"layers": [3, 3]}',
}


@pytest.mark.parametrize("path", SIGNED)
async def test_a_body_that_cannot_be_read_is_400(path: str, node: HttpNode) -> None:
    for name, content in UNREADABLE.items():
        answer = await node.send(path, content, node.sign(node.asked(path, content)))
        assert told(answer)[:2] == (400, "bad_request"), name


REGISTRATIONS: list[tuple[dict[str, Any], tuple[int, str]]] = [
    ({"vram_mb": 0}, (409, "claim_too_small")),
    ({"vram_mb": -1}, (400, "bad_request")),
    ({"vram_mb": 1 << 31}, (400, "bad_request")),
    ({"device": "tpu"}, (400, "bad_request")),
    ({"dtype": "Q8_0"}, (400, "bad_request")),
    ({"context_size": 0}, (400, "bad_request")),
    ({"parallel_slots": 0}, (400, "bad_request")),
    ({"model_id": ""}, (400, "bad_request")),
    ({"model_id": "a\nb"}, (400, "bad_frame")),
    ({"total_layers": 11}, (400, "bad_manifest")),
    ({"contract": "0" * 64}, (400, "bad_manifest")),
    ({"contract": "short"}, (400, "bad_request")),
    ({"shape": {}}, (400, "bad_manifest")),
    ({"p2p_addrs": []}, (400, "bad_address")),
    ({"p2p_addrs": ["nowhere"]}, (400, "bad_address")),
    ({"p2p_addrs": ["/ip4/169.254.1.1/tcp/4001"]}, (400, "bad_address")),
    ({"p2p_addrs": ["/ip4/10.9.9.9/tcp/4001"]}, (400, "address_unproven")),
    ({"p2p_addrs": ["/ip4/10.9.9.9/tcp/4001"] * 17}, (400, "bad_request")),
    ({"api_addr": "ftp://10.0.0.1"}, (400, "bad_address")),
    ({"api_addr": "http://169.254.169.254/latest"}, (400, "bad_address")),
    ({"layers": [0, 13]}, (400, "bad_frame")),
    ({"layers": [4, 4]}, (400, "bad_request")),
    ({"layers": [0, 12]}, (409, "claim_too_small")),
    ({"kv_cache_type": "q2_0"}, (400, "bad_request")),
]


async def test_a_registration_out_of_its_rules_reserves_nothing(node: HttpNode) -> None:
    for changes, expected in REGISTRATIONS:
        assert told(await node.register(**changes))[:2] == expected, changes
        assert (await node.client.get("/peers")).json() == []
    assert (await node.register()).status_code == 200


HEARTBEATS: list[tuple[dict[str, Any], tuple[int, str]]] = [
    ({"status": "Offline"}, (400, "bad_request")),
    ({"status": "Sleepy"}, (400, "bad_request")),
    ({"status": "Healthy", "role": "boss"}, (400, "bad_request")),
    ({"status": "Healthy", "queue_depth": -1}, (400, "bad_request")),
    ({"status": "Healthy", "queue_depth": 10**30}, (400, "bad_request")),
    ({"status": "Healthy", "step_ms": 1e308}, (400, "bad_request")),
    ({"status": "Healthy", "loaded_bytes": 1 << 61}, (400, "bad_request")),
    ({}, (400, "bad_request")),
]


async def test_a_heartbeat_out_of_its_rules_changes_nothing(node: HttpNode) -> None:
    await node.join()
    before = (await node.client.get("/peers")).json()
    for said, expected in HEARTBEATS:
        assert told(await node.call("/announce", said))[:2] == expected, said
        assert (await node.client.get("/peers")).json() == before


async def test_who_is_not_registered_is_told_to(node: HttpNode) -> None:
    bodies: dict[str, dict[str, Any]] = {
        "/announce": {"status": "Healthy"},
        "/ready": {"layers": [0, 4]},
        "/report_failure": {"peer_id": node.peer_id, "code": "x"},
    }
    for path, body in bodies.items():
        assert told(await node.call(path, body))[:2] == (404, "unknown_worker")


async def test_a_node_may_not_report_itself(node: HttpNode) -> None:
    await node.join()
    answer = await node.call("/report_failure", {"peer_id": node.peer_id, "code": "x"})
    assert told(answer)[:2] == (409, "refused")


async def test_a_wrong_method_learns_the_right_ones(door: Door) -> None:
    allowed = {
        **dict.fromkeys(READ, "GET"),
        **dict.fromkeys((*SIGNED, "/rebalance"), "POST"),
        "/reputation": "GET",
        "/weights/manifest": "GET, POST",
        "/openapi.json": "GET, HEAD",
    }
    for path, right in allowed.items():
        for method in ("PUT", "DELETE", "PATCH", "OPTIONS", "BREW", "HEAD", "GET"):
            if method in right or (method == "HEAD" and "GET" in right):
                continue
            answer = await door.client.request(method, path)
            assert answer.status_code == 405, (method, path)
            assert answer.headers["allow"] == right
            assert method == "HEAD" or told(answer)[1] == "method_not_allowed"


async def test_head_is_answered_as_get_is(door: Door) -> None:
    for path in [*READ, "/openapi.json"]:
        answer = await door.client.head(path)
        assert answer.status_code == (await door.client.get(path)).status_code


async def test_a_large_body_is_refused_by_its_route(node: HttpNode) -> None:
    for path, most in [("/announce", BODIES.default), *BODIES.larger.items()]:
        content = json.dumps({"x": "x" * most}).encode()
        headers = {**node.sign(node.asked(path, content)), **BEARER}
        answer = await node.send(path, content, headers)
        assert told(answer)[:2] == (413, "body_too_large")
        assert str(most) in told(answer)[2]
        assert answer.headers["connection"] == "close"
        small = json.dumps({"x": "x" * (most - 100)}).encode()
        assert told(await node.send(path, small, headers))[0] == 400


async def test_who_asks_too_fast_is_told_so(door: Door) -> None:
    opened = door.opened
    app = http_app(opened.rooms, opened.page, opened.metrics, RateLimits(burst=2))
    transport = httpx.ASGITransport(app, client=("203.0.113.7", 1))
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as stranger:
        answers = [await stranger.get("/p2p_id") for _ in range(3)]
    assert [each.status_code for each in answers] == [200, 200, 429]
    assert told(answers[2])[1] == "too_many_requests"
    assert answers[2].headers["retry-after"] == "1"


async def test_guesses_at_the_token_are_few(door: Door) -> None:
    wrong = {"Authorization": "Bearer guess"}
    answers = [await door.client.get("/reputation?all=true", headers=wrong) for _ in range(7)]
    assert [told(each)[:2] for each in answers] == [(401, "admin_only")] * 5 + [
        (429, "too_many_requests")
    ] * 2


async def test_the_status_is_how_this_musivum_is(node: HttpNode) -> None:
    await node.join()
    status = (await node.client.get("/status")).json()
    assert (status["role"], status["version"]) == ("musivum", __version__)
    assert status["peer_id"] == node.musivum
    assert status["nodes"] == {"total": 1, "by_status": {"Healthy": 1}}
    (model,) = status["models"]
    assert (model["model"], model["health"]) == ("small", "incomplete")
    assert model["holes"] == [{"start": 4, "stop": 12, "claim_mb": 13}]
    assert set(status["frames"]) == {"received", "sent"}


async def test_a_bug_of_ours_is_told_as_one_and_no_more(
    door: Door, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> None:
        raise KeyError("a secret")

    monkeypatch.setattr(type(door.opened.rooms.books.roster), "nodes", broken)
    answer = await door.client.get("/peers")
    assert told(answer)[:2] == (500, "internal_error")
    assert "secret" not in answer.text
    assert [record.exc_info is not None for record in caplog.records] == [True]
