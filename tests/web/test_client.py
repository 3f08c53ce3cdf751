"""Calls to JSON routes: what comes back, and every way in which nothing useful does."""

from __future__ import annotations

import json
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from ipaddress import ip_address

import httpx
import pytest
import trio

from tessella.core.errors import (
    BadAddress,
    BadFrame,
    ModelUnavailable,
    PeerClosed,
    PeerSilent,
    PeerUnreachable,
    RemoteFailure,
    TessellaError,
    UnknownModel,
)
from tessella.web.client import CallLimits, get_bytes, get_json, open_client, post_json
from tessella.web.errors import error_answer
from tessella.web.targets import HttpUrl, Target

URL = "http://peer.example/x?token=secret"
Handler = Callable[[httpx.Request], httpx.Response]


def answering(body: bytes, status: int = 200, **headers: str) -> Handler:
    return lambda _: httpx.Response(status, content=body, headers=headers)


def failing(error: Exception) -> Handler:
    def handler(_: httpx.Request) -> httpx.Response:
        raise error

    return handler


async def called(handler: Handler, most: int = 100) -> object:
    async with open_client(httpx.MockTransport(handler)) as client:
        return await get_json(client, URL, limits=CallLimits(answer=most))


async def test_an_answer_is_parsed() -> None:
    assert await called(answering(b'{"a": [1, null]}')) == {"a": [1, None]}
    assert await called(answering(b"true", status=201)) is True


async def test_another_client_takes_no_time_to_open(monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_client():
        pass
    monkeypatch.setattr(ssl.SSLContext, "load_verify_locations", None)
    async with open_client() as client:
        assert not client.trust_env


async def test_a_body_is_sent_as_json_and_bytes_as_they_are() -> None:
    seen: list[tuple[bytes, str]] = []

    def handler(request: httpx.Request) -> httpx.Response:
        seen.append((request.content, request.headers["content-type"]))
        return httpx.Response(200, content=b"1")

    async with open_client(httpx.MockTransport(handler)) as client:
        await post_json(client, URL, {"a": 1})
        await post_json(client, URL, b'{"signed":1}', headers={"X-Signature": "s"})
    assert seen == [(b'{"a": 1}', "application/json"), (b'{"signed":1}', "application/json")]


async def test_bytes_come_with_their_headers_and_as_they_are() -> None:
    async with open_client(httpx.MockTransport(answering(b"{ no json", x_signed="s"))) as client:
        headers, body = await get_bytes(client, URL)
        assert (headers["X_SIGNED"], body) == ("s", b"{ no json")
        with pytest.raises(BadFrame, match="more than 8 bytes"):
            await get_bytes(client, URL, limits=CallLimits(answer=8))


@pytest.mark.parametrize(
    "body", [b"", b"{", b"<html>", b"\xff\xfe", b"NaN", b"[-Infinity]", b"[" * 99]
)
async def test_what_is_no_json_is_refused(body: bytes) -> None:
    with pytest.raises(BadFrame, match=r"peer\.example/x answered with what is no JSON"):
        await called(answering(body))


async def test_nesting_beyond_all_reason_is_refused() -> None:
    with pytest.raises(BadFrame):
        await called(answering(b"[" * 60_000), most=60_000)


async def test_an_answer_is_read_to_its_cap_and_no_further() -> None:
    assert await called(answering(b'"' + b"x" * 98 + b'"')) == "x" * 98
    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        while True:
            sent += 1
            await trio.lowlevel.checkpoint()
            yield b"x" * 60

    with pytest.raises(BadFrame, match="more than 100 bytes"):
        await called(lambda _: httpx.Response(200, content=endless()))
    assert sent <= 3


async def test_an_encoding_that_was_not_asked_for_is_not_unpacked() -> None:
    def handler(request: httpx.Request) -> httpx.Response:
        assert request.headers["accept-encoding"] == "identity"
        return httpx.Response(
            200, headers={"Content-Encoding": "gzip"}, stream=httpx.ByteStream(b"")
        )

    with pytest.raises(BadFrame, match="encoding"):
        await called(handler)


@pytest.mark.parametrize(
    ("error", "retry"),
    [(UnknownModel("no such model"), False), (ModelUnavailable("a hole"), True)],
)
async def test_an_error_of_this_program_comes_back_as_one(
    error: TessellaError, retry: bool
) -> None:
    answer = error_answer(error, now=0.0)
    with pytest.raises(RemoteFailure) as caught:
        await called(answering(bytes(answer.body), answer.status_code), most=1000)
    assert (caught.value.code, str(caught.value)) == (error.code, str(error))
    assert caught.value.retry is retry


@pytest.mark.parametrize(
    ("body", "status", "retry"),
    [
        (b"<h1>Bad Gateway</h1>", 502, True),
        (b'{"detail": "Not Found"}', 404, False),
        (b'{"error": "text"}', 500, False),
        (b'{"error": {"code": 1, "message": "x"}}', 429, True),
        (b'{"error": {"code": "x"}}', 400, False),
        (b"[]", 503, True),
        (b"null", 504, True),
        (b"", 302, False),
    ],
)
async def test_an_error_of_another_program_is_its_status(
    body: bytes, status: int, retry: bool
) -> None:
    with pytest.raises(RemoteFailure, match=f"peer.example/x answered with status {status}") as got:
        await called(answering(body, status, Location="http://127.0.0.1/"))
    assert (got.value.code, got.value.retry) == (f"http_{status}", retry)


async def test_what_a_peer_calls_its_error_is_cut_and_printable() -> None:
    body = json.dumps({"error": {"code": "c" * 999, "message": "\x1b[31m" + "m" * 9999}}).encode()
    with pytest.raises(RemoteFailure) as caught:
        await called(answering(body, 400), most=20_000)
    assert caught.value.code == "c" * 64
    assert str(caught.value) == " [31m" + "m" * 995


@pytest.mark.parametrize(
    ("error", "ours"),
    [
        (httpx.ConnectError("refused"), PeerUnreachable),
        (httpx.ConnectTimeout(""), PeerUnreachable),
        (httpx.PoolTimeout(""), PeerUnreachable),
        (httpx.ReadTimeout(""), PeerSilent),
        (httpx.WriteTimeout(""), PeerSilent),
        (httpx.ReadError(""), PeerClosed),
        (httpx.WriteError(""), PeerClosed),
        (httpx.RemoteProtocolError("disconnected"), PeerClosed),
        (httpx.UnsupportedProtocol("no"), BadAddress),
    ],
)
async def test_every_failure_of_a_call_is_ours_and_names_the_url_without_its_query(
    error: Exception, ours: type[TessellaError]
) -> None:
    with pytest.raises(ours, match=r"http://peer\.example/x") as caught:
        await called(failing(error))
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "url", ["", "peer.example", "ftp://peer.example", "http://a:b", "http://\x01"]
)
async def test_what_is_no_url_is_named(url: str) -> None:
    async with open_client() as client:
        with pytest.raises(BadAddress, match="cannot be called"):
            await get_json(client, url)


async def test_a_call_ends_after_its_time_however_the_answer_trickles(
    autojump_clock: object,
) -> None:
    async def trickle() -> AsyncIterator[bytes]:
        while True:
            await trio.sleep(1)
            yield b" "

    with pytest.raises(PeerSilent, match="within 10 s"):
        await called(lambda _: httpx.Response(200, content=trickle()))
    assert trio.current_time() == 10.0


async def test_redirects_are_not_followed_and_the_environment_is_not_heeded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    async with open_client() as client:
        assert client.trust_env is False
        assert client.follow_redirects is False
        assert client._mounts == {}


async def test_a_target_is_called_at_its_addresses_in_turn_under_its_own_name() -> None:
    seen: list[httpx.Request] = []

    def handler(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        if request.url.host == "8.8.8.8":
            raise httpx.ConnectError("down")
        return httpx.Response(200, content=b"7")

    url = HttpUrl("https", "peer.example", 8443, "/x?y=1")
    target = Target(url, (ip_address("8.8.8.8"), ip_address("2606:4700::1")))
    async with open_client(httpx.MockTransport(handler)) as client:
        assert await get_json(client, target) == 7
        with pytest.raises(PeerUnreachable, match=r"https://peer\.example:8443/x cannot"):
            await get_json(client, Target(url, target.addresses[:1]))
    assert [str(request.url) for request in seen[:2]] == [
        "https://8.8.8.8:8443/x?y=1",
        "https://[2606:4700::1]:8443/x?y=1",
    ]
    assert {request.headers["host"] for request in seen} == {"peer.example:8443"}
    assert {request.extensions["sni_hostname"] for request in seen} == {"peer.example"}


@pytest.mark.mesh
async def test_a_port_where_nobody_listens_is_unreachable() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/"
        async with open_client() as client:
            with pytest.raises(PeerUnreachable, match=url):
                await get_json(client, url)
