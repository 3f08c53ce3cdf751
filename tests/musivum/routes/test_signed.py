"""Calls that are signed wrongly, over HTTP: what each is answered, and that nothing comes of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import httpx
import pytest
from trio.testing import MockClock

from musivum.bodies.rules import MAX_FIELDS
from musivum.config import MusivumConfig
from musivum.testing import clock
from musivum.testing_http import Body, HttpNode, answering, http_node
from p2p.testing import MemoryNetwork
from tessella.core.identity import PURPOSE_TRACKER, Identity
from tessella.core.signed_request import (
    CREATED,
    DIGEST,
    NONCE,
    PEER,
    PURPOSE_HTTP,
    SIGNATURE,
    Request,
    sign_request,
    signed_text,
)
from tessella.web.errors import ErrorBody

MUSIVUM_SEED, NODE_SEED, OTHER_SEED = b"m" * 32, b"n" * 32, b"o" * 32
CONFIG = MusivumConfig(min_vram_mb=0)
OTHER = Identity(OTHER_SEED)

ROUTES = ("/register", "/announce", "/ready", "/deregister", "/report_failure")
Headers = dict[str, str]
# What a call is made of before it is sent: the request as signed, and the node.
Bad = Callable[[HttpNode, Request], Headers]


def body_of(path: str, node: HttpNode) -> Body:
    bodies: dict[str, Body] = {
        "/register": node.registration(),
        "/announce": {"status": "Healthy", "queue_depth": 3},
        "/ready": {"layers": [0, 4]},
        "/deregister": {},
        "/report_failure": {"peer_id": OTHER.peer_id, "code": "peer_silent"},
    }
    return bodies[path]


def told(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, ErrorBody.model_validate_json(answer.content).error.code


def text_of(node: HttpNode, asked: Request, headers: Headers) -> bytes:
    return signed_text(asked, node.peer_id, headers[CREATED], headers[NONCE])


def without(*names: str) -> Bad:
    def bad(node: HttpNode, asked: Request) -> Headers:
        return {key: value for key, value in node.sign(asked).items() if key not in names}

    return bad


def with_header(name: str, value: str) -> Bad:
    return lambda node, asked: {**node.sign(asked), name: value}


def for_another(**changes: Any) -> Bad:
    return lambda node, asked: node.sign(replace(asked, **changes))


def made(seconds_from_now: float) -> Bad:
    return lambda node, asked: node.sign(asked, clock() + seconds_from_now)


def by_a_foreign_key(node: HttpNode, asked: Request) -> Headers:
    headers = node.sign(asked)
    foreign = OTHER.sign(PURPOSE_HTTP, text_of(node, asked, headers))
    return {**headers, SIGNATURE: foreign.hex()}


def for_another_purpose(node: HttpNode, asked: Request) -> Headers:
    headers = node.sign(asked)
    signature = node.identity.sign(PURPOSE_TRACKER, text_of(node, asked, headers))
    return {**headers, SIGNATURE: signature.hex()}


def in_anothers_name(node: HttpNode, asked: Request) -> Headers:
    return {**node.sign(asked), PEER: OTHER.peer_id}


BAD: dict[str, tuple[Bad, tuple[int, str]]] = {
    "unsigned": (lambda node, asked: {}, (401, "bad_signature")),
    "no signature": (without(SIGNATURE), (401, "bad_signature")),
    "no peer": (without(PEER), (401, "bad_signature")),
    "no time": (without(CREATED), (401, "bad_signature")),
    "no nonce": (without(NONCE), (401, "bad_signature")),
    "no digest": (without(DIGEST), (401, "bad_signature")),
    "another digest": (with_header(DIGEST, "ab" * 32), (401, "bad_signature")),
    "a digest that is none": (with_header(DIGEST, "ab"), (400, "bad_request")),
    "a signature too short": (with_header(SIGNATURE, "ab" * 63), (401, "bad_signature")),
    "a nonce that is no hex": (with_header(NONCE, "z" * 32), (400, "bad_request")),
    "a nonce too short": (with_header(NONCE, "ab" * 7), (400, "bad_request")),
    "a time that is none": (with_header(CREATED, "yesterday"), (400, "bad_request")),
    "a foreign key": (by_a_foreign_key, (401, "bad_signature")),
    "another purpose": (for_another_purpose, (401, "bad_signature")),
    "another body": (for_another(body=b'{"status": "Paused"}'), (401, "bad_signature")),
    "another path": (for_another(path="/api/v1/audit_report"), (401, "bad_signature")),
    "another method": (for_another(method="PUT"), (401, "bad_signature")),
    "a query": (for_another(query=(("dry", "true"),)), (401, "bad_signature")),
    "another musivum": (for_another(audience=OTHER.peer_id), (401, "bad_signature")),
    "61 s ago": (made(-61.0), (401, "clock_skew")),
    "31 s ahead": (made(31.0), (401, "clock_skew")),
    "before musivum began": (made(-1.0), (401, "clock_skew")),
}


@pytest.mark.parametrize("path", ROUTES)
async def test_a_call_that_is_not_signed_right_changes_nothing(
    path: str, autojump_clock: MockClock
) -> None:
    net = MemoryNetwork()
    async with (
        answering(net, MUSIVUM_SEED, CONFIG) as door,
        http_node(net, NODE_SEED, door) as node,
    ):
        assert await node.join() == [0, 4]
        content = json.dumps(body_of(path, node)).encode()
        asked = node.asked(path, content)
        before = await door.remembered()
        seen = {}
        for why, (bad, _) in BAD.items():
            answer = await node.send(path, content, bad(node, asked))
            seen[why] = told(answer)
            assert ("tessella-time" in answer.headers) == (answer.status_code == 401)
            assert await door.remembered() == before, why
        assert seen == {why: expected for why, (_, expected) in BAD.items()}
        assert (await node.send(path, content, node.sign(asked))).status_code == 200
        assert await door.remembered() != before


@pytest.mark.parametrize("path", ROUTES)
async def test_a_call_in_the_name_of_another_is_refused(
    path: str, autojump_clock: MockClock
) -> None:
    """A registration says whose it is twice, so there the contradiction is told."""
    net = MemoryNetwork()
    async with (
        answering(net, MUSIVUM_SEED, CONFIG) as door,
        http_node(net, NODE_SEED, door) as node,
        http_node(net, OTHER_SEED, door) as other,
    ):
        await other.join()
        content = json.dumps(body_of(path, node)).encode()
        before = await door.remembered()
        answer = await node.send(path, content, in_anothers_name(node, node.asked(path, content)))
        wanted = (403, "not_authorized") if path == "/register" else (401, "bad_signature")
        assert told(answer) == wanted
        assert await door.remembered() == before


@pytest.mark.parametrize("path", ROUTES)
async def test_a_call_is_taken_once(path: str, autojump_clock: MockClock) -> None:
    net = MemoryNetwork()
    async with (
        answering(net, MUSIVUM_SEED, CONFIG) as door,
        http_node(net, NODE_SEED, door) as node,
    ):
        await node.join()
        content = json.dumps(body_of(path, node)).encode()
        asked = node.asked(path, content)
        headers = node.sign(asked)
        assert (await node.send(path, content, headers)).status_code == 200
        before = await door.remembered()
        assert told(await node.send(path, content, headers)) == (401, "call_replayed")
        assert await door.remembered() == before
        assert (await node.send(path, content, node.sign(asked))).status_code == 200


@pytest.mark.parametrize("config", [
    MusivumConfig(min_vram_mb=0, allow=(OTHER.peer_id,)),
    MusivumConfig(min_vram_mb=0, block=(Identity(NODE_SEED).peer_id,)),
], ids=["private", "blocked"])  # fmt: skip
@pytest.mark.parametrize("path", ROUTES)
async def test_who_is_not_let_in_hears_so_before_a_signature_is_looked_at(
    path: str, config: MusivumConfig, autojump_clock: MockClock
) -> None:
    net = MemoryNetwork()
    async with (
        answering(net, MUSIVUM_SEED, config) as door,
        http_node(net, NODE_SEED, door) as node,
        http_node(net, OTHER_SEED, door) as listed,
    ):
        content = json.dumps(body_of(path, node)).encode()
        right = node.sign(node.asked(path, content))
        before = await door.remembered()
        for headers in (
            right,
            {**right, SIGNATURE: "00" * 64},
            {**right, CREATED: "1"},
            {PEER: node.peer_id},
        ):
            answer = await node.send(path, content, headers)
            assert told(answer) == (403, "worker_not_authorized")
        assert await door.remembered() == before
        assert await listed.join() == [0, 4]


async def test_a_registration_without_any_header_hears_the_policy_first(
    autojump_clock: MockClock,
) -> None:
    net = MemoryNetwork()
    config = replace(CONFIG, allow=(OTHER.peer_id,))
    async with (
        answering(net, MUSIVUM_SEED, config) as door,
        http_node(net, NODE_SEED, door) as node,
        http_node(net, OTHER_SEED, door) as listed,
    ):
        for asking, expected in (
            (node, (403, "worker_not_authorized")),
            (listed, (401, "bad_signature")),
        ):
            answer = await asking.send("/register", json.dumps(asking.registration()).encode(), {})
            assert told(answer) == expected


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"peer_id": OTHER.peer_id}, (403, "not_authorized")),
        ({"public_key": "00" * 32}, (401, "bad_signature")),
        ({"peer_id": "nobody"}, (403, "not_authorized")),
    ],
)
async def test_a_registration_is_of_whoever_signs_it(
    changes: Body, expected: tuple[int, str], autojump_clock: MockClock
) -> None:
    net = MemoryNetwork()
    async with (
        answering(net, MUSIVUM_SEED, CONFIG) as door,
        http_node(net, NODE_SEED, door) as node,
    ):
        before = await door.remembered()
        assert told(await node.register(**changes)) == expected
        assert await door.remembered() == before
        assert (await node.register()).status_code == 200


async def test_a_query_that_is_signed_is_still_refused_by_its_name(
    autojump_clock: MockClock,
) -> None:
    net = MemoryNetwork()
    async with (
        answering(net, MUSIVUM_SEED, CONFIG) as door,
        http_node(net, NODE_SEED, door) as node,
    ):
        asked = Request("POST", "/deregister", (("dry", "1"),), b"{}", door.peer.peer_id)
        headers = sign_request(asked, node.identity, clock(), b"n" * 16)
        answer = await node.send("/deregister?dry=1", b"{}", headers)
        assert told(answer) == (400, "bad_request")
        assert "query.dry" in answer.text


async def test_a_proxy_may_rewrite_the_host_and_nothing_else(autojump_clock: MockClock) -> None:
    net = MemoryNetwork()
    async with (
        answering(net, MUSIVUM_SEED, CONFIG) as door,
        http_node(net, NODE_SEED, door) as node,
    ):
        headers = {**node.sign(node.asked("/deregister", b"{}")), "Host": "inner:8080"}
        assert (await node.send("/deregister", b"{}", headers)).json()["ok"] is True


@pytest.mark.parametrize("path", ROUTES)
async def test_a_body_of_too_many_fields_is_refused_as_a_whole(
    path: str, autojump_clock: MockClock
) -> None:
    net = MemoryNetwork()
    async with (
        answering(net, MUSIVUM_SEED, CONFIG) as door,
        http_node(net, NODE_SEED, door) as node,
    ):
        answer = await node.call(path, {f"{number:x}": 0 for number in range(MAX_FIELDS + 1)})
    assert told(answer) == (400, "bad_request")
    # Not one error for each of them.
    assert answer.json()["error"]["message"].endswith(f"{MAX_FIELDS + 1} fields, over {MAX_FIELDS}")
