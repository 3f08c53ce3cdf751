"""Calls for bytes: long bodies in pieces, and every way in which no answer comes."""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import ip_address

import httpx
import pytest
import trio
from trio.testing import MockClock

from tessella.core.errors import (
    BadFrame,
    PeerClosed,
    PeerSilent,
    PeerUnreachable,
    RemoteFailure,
    TessellaError,
    TooManyHopBodies,
)
from tessella.web.byte_calls import (
    MAX_ANSWER_BYTES,
    PIECE_BYTES,
    SLOWEST,
    Answer,
    Pieces,
    Post,
    post_bytes,
)
from tessella.web.client import open_client
from tessella.web.errors import error_answer
from tessella.web.targets import Target, parse_url

TARGET = Target(
    parse_url("https://peer.example/x?token=secret"),
    (ip_address("192.0.2.1"), ip_address("192.0.2.2")),
)
Handler = Callable[[httpx.Request], httpx.Response]


async def called(handler: Handler, body: bytes = b"", stall: float = 5.0) -> Answer:
    async with open_client(httpx.MockTransport(handler)) as client:
        return await post_bytes(client, Post(TARGET, {"X-Signed": "s"}, body, stall))


async def test_what_is_sent_and_what_comes_back() -> None:
    seen: list[httpx.Request] = []

    def handler(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(200, content=b"back", headers={"Tessella-End": "finish"})

    body = bytes(range(256)) * 1024
    answer = await called(handler, body)
    assert (answer.body, answer.headers["tessella-end"]) == (b"back", "finish")
    (request,) = seen
    assert request.content == body
    assert str(request.url) == "https://192.0.2.1/x?token=secret"
    assert request.headers["host"] == "peer.example"
    assert request.headers["content-length"] == str(len(body))
    assert request.headers["content-type"] == "application/octet-stream"
    assert request.headers["x-signed"] == "s"
    assert "transfer-encoding" not in request.headers
    assert request.extensions["sni_hostname"] == "peer.example"


@pytest.mark.parametrize("length", [0, 1, PIECE_BYTES, PIECE_BYTES + 1, 3 * PIECE_BYTES])
async def test_a_body_is_sent_in_pieces(length: int) -> None:
    body = bytes(length)
    pieces = [piece async for piece in Pieces(body)]
    assert b"".join(pieces) == body
    assert all(0 < len(piece) <= PIECE_BYTES for piece in pieces)


async def test_the_next_address_is_tried_where_one_takes_no_connection() -> None:
    seen: list[str] = []

    def handler(request: httpx.Request) -> httpx.Response:
        seen.append(request.url.host)
        if request.url.host == "192.0.2.1":
            raise httpx.ConnectError("refused")
        return httpx.Response(200, content=request.content)

    assert (await called(handler, b"body")).body == b"body"
    assert seen == ["192.0.2.1", "192.0.2.2"]


@pytest.mark.parametrize(
    ("raised", "error"),
    [
        (httpx.ConnectError("refused"), PeerUnreachable),
        (httpx.ConnectTimeout("slow"), PeerUnreachable),
        (httpx.PoolTimeout("full"), PeerUnreachable),
        (httpx.ReadTimeout("slow"), PeerSilent),
        (httpx.WriteTimeout("slow"), PeerSilent),
        (httpx.RemoteProtocolError("closed"), PeerClosed),
        (httpx.WriteError("reset"), PeerClosed),
    ],
    ids=repr,
)
async def test_no_answer_is_an_error_that_names_the_url_without_its_query(
    raised: Exception, error: type[TessellaError]
) -> None:
    def handler(request: httpx.Request) -> httpx.Response:
        raise raised

    with pytest.raises(error, match=r"peer\.example/x") as caught:
        await called(handler)
    assert "secret" not in str(caught.value)


async def test_an_answer_that_is_an_error_is_told() -> None:
    body = error_answer(TooManyHopBodies("full"), now=0.0).body

    def handler(request: httpx.Request) -> httpx.Response:
        return httpx.Response(503, content=bytes(body))

    with pytest.raises(RemoteFailure, match="full") as caught:
        await called(handler)
    assert (caught.value.code, caught.value.retry) == ("too_many_hop_bodies", True)


async def test_an_answer_has_an_end() -> None:
    def handler(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, content=bytes(MAX_ANSWER_BYTES + 1))

    with pytest.raises(BadFrame, match="more than"):
        await called(handler)


async def test_an_encoding_that_was_not_asked_for_is_not_decoded() -> None:
    def handler(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, headers={"Content-Encoding": "gzip"}, stream=Pieces(b"bomb"))

    with pytest.raises(BadFrame, match="encoding"):
        await called(handler)


@pytest.mark.parametrize("length", [0, 100 * SLOWEST])
async def test_a_call_ends_and_a_long_body_has_longer(
    length: int, autojump_clock: MockClock
) -> None:
    class Hangs(httpx.AsyncBaseTransport):
        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            await trio.sleep_forever()
            raise AssertionError

    async with open_client(Hangs()) as client:
        with pytest.raises(PeerSilent):
            await post_bytes(client, Post(TARGET, {}, bytes(length), 5.0))
    assert trio.current_time() == 10.0 + length / SLOWEST
