"""Whose a URL is: the challenge as it goes out, and every answer that proves nothing."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from ipaddress import ip_address

import httpx
import pytest
import trio
from trio.testing import MockClock

from musivum.placing import node_calls
from musivum.placing.node_calls import (
    CHALLENGE_SECONDS,
    MAX_CHALLENGE_ANSWER,
    Http,
    UrlProof,
    prove_url,
)
from tessella.core.challenge import Challenge, read_challenge
from tessella.core.identity import Identity
from tessella.core.signed_request import sign_answer
from tessella.web.client import open_client
from tessella.web.targets import Target, parse_url

OURS, NODE, OTHER = (Identity(letter * 32) for letter in (b"m", b"n", b"o"))
URL = "https://8.8.8.8:8443"
BODY = b'{"peer_id": "x", "multiaddrs": []}'
Handler = Callable[[httpx.Request], Awaitable[httpx.Response]]


def asked_of(request: httpx.Request) -> Challenge:
    asked = read_challenge(request.headers)
    assert asked is not None
    return asked


def answer_of(asked: Challenge, identity: Identity = NODE, body: bytes = BODY) -> httpx.Response:
    return httpx.Response(200, content=body, headers=sign_answer(identity, asked.text(body)))


async def node(request: httpx.Request) -> httpx.Response:
    return answer_of(asked_of(request))


async def proven(
    handler: Handler, url: str = URL, *, allow_private: bool = False
) -> tuple[UrlProof, list[httpx.Request]]:
    """What came of it, and what was sent."""
    sent: list[httpx.Request] = []

    async def noting(request: httpx.Request) -> httpx.Response:
        sent.append(request)
        return await handler(request)

    async with open_client(httpx.MockTransport(noting)) as client:
        http = Http(client, allow_private)
        return await prove_url(http, OURS.peer_id, NODE.peer_id, url), sent


@pytest.mark.parametrize("url", [URL, f"{URL}/", f"{URL}/node/"])
async def test_the_key_that_signs_for_this_call_is_proven(url: str) -> None:
    proof, (request,) = await proven(node, url)
    assert proof == UrlProof(ip_address("8.8.8.8"))
    assert (request.method, str(request.url)) == ("GET", f"{url.rstrip('/')}/p2p_id")
    assert request.headers["tessella-peer"] == OURS.peer_id
    assert len(request.headers["tessella-nonce"]) == 32


async def test_no_two_challenges_have_one_nonce() -> None:
    nonces = {(await proven(node))[1][0].headers["tessella-nonce"] for _ in range(5)}
    assert len(nonces) == 5


async def another_key(request: httpx.Request) -> httpx.Response:
    return answer_of(asked_of(request), OTHER)


async def another_nonce(request: httpx.Request) -> httpx.Response:
    return answer_of(Challenge(OURS.peer_id, bytes(16)))


async def another_caller(request: httpx.Request) -> httpx.Response:
    return answer_of(Challenge(OTHER.peer_id, asked_of(request).nonce))


async def another_body(request: httpx.Request) -> httpx.Response:
    return httpx.Response(
        200, content=b"{}", headers=sign_answer(NODE, asked_of(request).text(BODY))
    )


async def unsigned(request: httpx.Request) -> httpx.Response:
    return httpx.Response(200, content=BODY)


async def too_long(request: httpx.Request) -> httpx.Response:
    return answer_of(asked_of(request), body=bytes(MAX_CHALLENGE_ANSWER + 1))


async def moved(request: httpx.Request) -> httpx.Response:
    return httpx.Response(302, headers={"Location": "http://169.254.169.254/"})


async def secret(request: httpx.Request) -> httpx.Response:
    error = {"code": "hush", "message": "hush", "type": "hush"}
    return httpx.Response(500, json={"error": error})


async def refused(request: httpx.Request) -> httpx.Response:
    raise httpx.ConnectError("nobody listens")


async def broken(request: httpx.Request) -> httpx.Response:
    raise httpx.RemoteProtocolError("hush")


async def silent(request: httpx.Request) -> httpx.Response:
    await trio.sleep_forever()
    raise AssertionError


@pytest.mark.parametrize(
    ("handler", "reason"),
    [
        (another_key, "answered without a signature of that key"),
        (another_nonce, "answered without a signature of that key"),
        (another_caller, "answered without a signature of that key"),
        (another_body, "answered without a signature of that key"),
        (unsigned, "answered without a signature of that key"),
        (too_long, "answered with something else"),
        (moved, "answered with an error"),
        (secret, "answered with an error"),
        (refused, "cannot be reached"),
        (broken, "ended the connection"),
        (silent, "did not answer in time"),
    ],
)
async def test_any_other_answer_proves_nothing_and_its_words_are_not_told(
    handler: Handler, reason: str, autojump_clock: MockClock
) -> None:
    proof, sent = await proven(handler)
    assert proof == UrlProof(None, f"{URL}/p2p_id {reason}")
    assert len(sent) == 1
    assert trio.current_time() <= CHALLENGE_SECONDS + 0.001


@pytest.mark.parametrize(
    ("url", "allow_private"),
    [
        ("http://127.0.0.1:8000", False),
        ("https://10.0.0.7", False),
        ("https://localhost:8000", False),
        ("http://169.254.169.254", True),
        ("http://8.8.8.8:8000", True),
    ],
)
async def test_where_nobody_may_be_sent_nobody_is_called(url: str, allow_private: bool) -> None:
    proof, sent = await proven(node, url, allow_private=allow_private)
    assert sent == []
    assert "is not called from here" in proof.failure


async def test_of_several_addresses_the_one_that_answered_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ips = tuple(map(ip_address, ("192.0.2.1", "192.0.2.2", "192.0.2.3")))

    async def resolve(url: str, *_: object, **__: object) -> Target:
        return Target(parse_url(url), ips)

    async def second(request: httpx.Request) -> httpx.Response:
        return await (refused if request.url.host == "192.0.2.1" else node)(request)

    monkeypatch.setattr(node_calls, "resolve_target", resolve)
    proof, sent = await proven(second, "https://pod.example.net")
    assert proof == UrlProof(ips[1])
    assert [request.url.host for request in sent] == ["192.0.2.1", "192.0.2.2"]
    assert {request.headers["host"] for request in sent} == {"pod.example.net"}


async def test_the_log_has_what_is_not_told(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        await proven(secret)
    assert "hush" in caplog.text
