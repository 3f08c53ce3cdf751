"""One connection over memory: what Hypercorn leaves open is closed here, in virtual time."""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest
import trio
from hypercorn.trio.worker_context import WorkerContext
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from trio.testing import lockstep_stream_pair, memory_stream_pair

from tessella.web.connections import (
    HEADER_BYTES,
    LINGER_BYTES,
    LINGER_SECONDS,
    Connection,
    Ends,
    PatientStream,
    hypercorn_settings,
)

IDLE = 5.0
SEND = 30.0
GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
Stream = trio.abc.HalfCloseableStream


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers with the request's body."""
    await PlainTextResponse(await Request(scope, receive).body())(scope, receive, send)


async def deaf(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers without reading."""
    await PlainTextResponse("no", status_code=413)(scope, receive, send)


async def seen(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers with what kind of request it got."""
    text = f"{scope['type']} {scope['http_version']} {scope['method']} {scope['client'][0]}"
    await PlainTextResponse(text)(scope, receive, send)


async def endless(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers until nobody listens."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    while True:
        await send({"type": "http.response.body", "body": b"x" * 1000, "more_body": True})
        await trio.sleep(1)


def ways(small: bool = False) -> tuple[Stream, Stream]:
    """The client's end and ours; `small` is a socket that is full at once."""
    return lockstep_stream_pair() if small else memory_stream_pair()


async def connected(app: ASGIApp, stream: Stream) -> None:
    """Serve one connection."""
    ends = Ends(("203.0.113.7", 1), ("127.0.0.1", 80))
    patient = PatientStream(stream, SEND)
    await Connection(app, hypercorn_settings(IDLE), WorkerContext(None), patient, ends).run()


async def read(stream: Stream) -> bytes:
    """All that comes until the other end closes."""
    got = bytearray()
    while piece := await stream.receive_some(65_536):
        got += piece
    return bytes(got)


async def conversation(app: ASGIApp, *sent: bytes) -> bytes:
    """What a client that sends this and waits gets, until the connection is closed."""
    client, ours = ways()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(connected, app, ours)
        for piece in sent:
            await client.send_all(piece)
        got = await read(client)
        await client.aclose()
    return got


async def test_requests_follow_each_other_until_the_client_is_idle(
    autojump_clock: object,
) -> None:
    got = await conversation(
        echo, b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nab", GET
    )
    assert got.count(b"HTTP/1.1 200") == 2
    assert b"\r\n\r\nab" in got
    assert b"server:" not in got.lower()
    assert trio.current_time() == pytest.approx(IDLE)


@pytest.mark.parametrize("every", [0.1, 1.0, 4.9])
async def test_headers_that_trickle_are_given_up(every: float, autojump_clock: object) -> None:
    client, ours = ways()

    async def trickle() -> None:
        for byte in GET + b"x" * 1000:
            try:
                await client.send_all(bytes([byte if byte != 13 else 32]))
            except trio.BrokenResourceError:
                return
            await trio.sleep(every)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(trickle)
        await connected(echo, ours)
        assert trio.current_time() == pytest.approx(IDLE)
        nursery.cancel_scope.cancel()


async def test_a_client_that_does_not_read_is_given_up(autojump_clock: object) -> None:
    client, ours = ways(small=True)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(client.send_all, GET)
        await connected(endless, ours)
    assert trio.current_time() == pytest.approx(SEND)


async def test_a_client_that_only_sends_is_given_up(autojump_clock: object) -> None:
    client, ours = ways(small=True)

    async def flood() -> None:
        with suppress(trio.BrokenResourceError):
            await client.send_all(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999\r\n\r\n")
            await client.send_all(b"x" * 99_999_999)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(flood)
        await connected(endless, ours)
    assert trio.current_time() == pytest.approx(SEND, abs=1.1)


async def test_a_long_answer_is_not_cut_while_it_is_read(autojump_clock: object) -> None:
    client, ours = ways()
    got = 0
    async with trio.open_nursery() as nursery:
        nursery.start_soon(connected, endless, ours)
        await client.send_all(GET)
        with trio.move_on_after(600):
            while True:
                got += len(await client.receive_some(65_536))
        await client.aclose()
    assert got > 500_000


@pytest.mark.parametrize("size", [10, 65_536, 500_000])
async def test_a_body_that_was_not_read_takes_no_answer_and_no_connection_with_it(
    size: int, autojump_clock: object
) -> None:
    head = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % size
    got = await conversation(deaf, head, b"x" * size, GET)
    assert got.count(b"HTTP/1.1 413") == 2
    assert trio.current_time() == pytest.approx(IDLE)


async def test_a_body_that_goes_on_after_its_answer_ends_the_connection(
    autojump_clock: object,
) -> None:
    head = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    pieces = 4 * LINGER_BYTES // 1000
    got = await conversation(deaf, head, (b"3e8\r\n" + b"x" * 1000 + b"\r\n") * pieces)
    assert b"HTTP/1.1 413" in got
    assert trio.current_time() == 0


async def test_a_body_that_stops_after_its_answer_ends_the_connection(
    autojump_clock: object,
) -> None:
    got = await conversation(deaf, b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nab")
    assert b"HTTP/1.1 413" in got
    assert trio.current_time() == pytest.approx(LINGER_SECONDS)


@pytest.mark.parametrize("begins", [True, False])
async def test_who_leaves_with_a_second_request_waiting_leaves_nothing_behind(
    begins: bool, autojump_clock: object
) -> None:
    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        begin = {"type": "http.response.start", "status": 200, "headers": []}
        if begins:
            await send(begin)
        await trio.sleep(60)
        if not begins:
            await send(begin)
        await send({"type": "http.response.body", "body": b"late"})

    client, ours = ways()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(connected, slow, ours)
        await client.send_all(GET + GET)
        await trio.sleep(1)
        await client.aclose()
    assert trio.current_time() == pytest.approx(60)


async def test_who_leaves_is_not_waited_for(autojump_clock: object) -> None:
    client, ours = ways()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(connected, echo, ours)
        await client.send_all(GET)
        await client.receive_some(65_536)
        await client.aclose()
    assert trio.current_time() == 0


async def test_an_app_learns_that_its_client_left(autojump_clock: object) -> None:
    messages: list[Message] = []

    async def watcher(scope: Scope, receive: Receive, send: Send) -> None:
        while not messages or messages[-1]["type"] != "http.disconnect":
            messages.append(await receive())

    client, ours = ways()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(connected, watcher, ours)
        await client.send_all(GET)
        await trio.sleep(3600)
        await client.aclose()
    assert [each["type"] for each in messages] == ["http.request", "http.disconnect"]


async def raising(scope: Scope, receive: Receive, send: Send) -> None:
    """Fails before it answers."""
    raise KeyError("a bug")


async def torn(scope: Scope, receive: Receive, send: Send) -> None:
    """Fails while it answers."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"begun", "more_body": True})
    raise KeyError("a bug")


async def unfinished(scope: Scope, receive: Receive, send: Send) -> None:
    """Stops while it answers."""
    await send({"type": "http.response.start", "status": 200, "headers": []})


@pytest.mark.parametrize("app", [raising, torn, unfinished])
@pytest.mark.parametrize("size", [0, 500_000])
async def test_an_app_that_fails_ends_its_connection(
    app: Callable[..., Awaitable[None]],
    size: int,
    autojump_clock: object,
    caplog: pytest.LogCaptureFixture,
) -> None:
    head = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % size
    with caplog.at_level(logging.ERROR):
        got = await conversation(app, head + b"x" * size)
    assert b"0\r\n\r\n" not in got[-5:]
    assert trio.current_time() == 0
    assert [record.levelname for record in caplog.records] == ["ERROR"] * (app is not unfinished)


@pytest.mark.parametrize(
    "offer",
    [
        b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
        b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n",
        b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n",
    ],
    ids=["websocket", "h2c"],
)
async def test_an_offer_of_another_protocol_is_a_request_like_any_other(
    offer: bytes, autojump_clock: object
) -> None:
    got = await conversation(seen, b"GET / HTTP/1.1\r\nHost: x\r\n" + offer + b"\r\n", GET)
    assert got.count(b"HTTP/1.1 200") == 2
    assert got.count(b"http 1.1 GET 203.0.113.7") == 2
    assert b"101" not in got


async def test_http_2_without_asking_is_not_spoken(autojump_clock: object) -> None:
    got = await conversation(seen, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0" * 9)
    assert got.startswith(b"HTTP/1.1 ")
    assert b"\0" not in got


@pytest.mark.parametrize(
    ("sent", "status", "code"),
    [
        (b"nonsense\r\n\r\n", 400, "bad_request"),
        (b"GET / HTTP/1.1\r\n\r\n", 400, "bad_request"),
        (b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: x\r\n\r\n", 400, "bad_request"),
        (
            b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: " + b"0" * 5000 + b"\r\n\r\n",
            400,
            "bad_request",
        ),
        (b"GET /\xff HTTP/1.1\r\nHost: x\r\n\r\n", 400, "bad_request"),
        (
            b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
            400,
            "bad_request",
        ),
        (b"GET / HTTP/1.1\r\na: " + b"x" * HEADER_BYTES, 431, "headers_too_large"),
    ],
)
async def test_what_is_no_request_is_refused_in_the_shape_of_all_errors(
    sent: bytes, status: int, code: str, autojump_clock: object
) -> None:
    got = await conversation(echo, sent)
    head, _, body = got.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 %d" % status)
    assert json.loads(body)["error"]["code"] == code
    assert trio.current_time() == 0
