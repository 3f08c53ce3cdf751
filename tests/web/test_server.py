"""An app on real sockets: where it listens, what strangers hold of it, what stays when it ends."""

from __future__ import annotations

import gc
import re
import signal
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial

import pytest
import trio
from fastapi import FastAPI
from pydantic import BaseModel
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from tessella.core.errors import BadAddress, PortInUse, RemoteFailure
from tessella.web.app import make_app
from tessella.web.client import get_json, open_client, post_json
from tessella.web.listening import parse_http_listen
from tessella.web.server import ServeLimits, serve_http

pytestmark = pytest.mark.mesh

LIMITS = ServeLimits(idle_seconds=0.5, send_seconds=1.0, grace_seconds=0.2)
SOON = 3.0
"""Seconds within which anything here is over; two busy cores need some of them."""


class Flood(Response):
    """An answer without end."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send until the client is gone."""
        await send({"type": "http.response.start", "status": 200, "headers": []})
        while True:
            await send({"type": "http.response.body", "body": b"x" * 65_536, "more_body": True})


class Text(BaseModel):
    """A body."""

    text: str


def example() -> FastAPI:
    app = make_app("Example", "1")

    @app.get("/")
    async def root() -> str:
        return "here"

    @app.post("/echo")
    async def echo(body: Text) -> str:
        return body.text

    @app.get("/slow/{seconds}")
    async def slow(seconds: float) -> str:
        await trio.sleep(seconds)
        return "late"

    @app.get("/flood")
    async def flood() -> Response:
        return Flood()

    return app


@asynccontextmanager
async def served(limits: ServeLimits = LIMITS) -> AsyncIterator[str]:
    """The URL of the example, which ends with the block."""
    async with trio.open_nursery() as nursery:
        serve = partial(serve_http, example(), ["127.0.0.1:0"], limits=limits)
        (url,) = await nursery.start(serve)
        yield url
        nursery.cancel_scope.cancel()


async def dialled(url: str) -> trio.SocketStream:
    host, port = parse_http_listen(url.removeprefix("http://"))
    return await trio.open_tcp_stream(host, port)


async def rest(stream: trio.SocketStream) -> bytes:
    """All that comes until the other end closes; fails if it does not, soon."""
    got = bytearray()
    with trio.fail_after(SOON):
        try:
            while piece := await stream.receive_some(65_536):
                got += piece
        except trio.BrokenResourceError:
            pass
    await stream.aclose()
    return bytes(got)


async def test_what_is_bound_is_told_as_urls_that_answer() -> None:
    async with served() as url, open_client() as client:
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+", url)
        assert await get_json(client, url) == "here"
        assert await post_json(client, f"{url}/echo", {"text": "é"}) == "é"
        with pytest.raises(RemoteFailure, match="nothing is answered at /x") as caught:
            await get_json(client, f"{url}/x")
        assert caught.value.code == "unknown_route"


async def test_ipv6_is_told_in_brackets() -> None:
    async with trio.open_nursery() as nursery:
        try:
            (url,) = await nursery.start(serve_http, example(), ["[::1]:0"])
        except BadAddress:
            pytest.skip("this machine has no IPv6")
        assert re.fullmatch(r"http://\[::1\]:\d+", url)
        async with open_client() as client:
            assert await get_json(client, url) == "here"
        nursery.cancel_scope.cancel()


async def test_a_port_that_is_taken_is_named_and_the_others_are_given_back() -> None:
    async with served() as url:
        with trio.socket.socket() as probe:
            await probe.bind(("127.0.0.1", 0))
            free = f"127.0.0.1:{probe.getsockname()[1]}"
        taken = url.removeprefix("http://")
        with pytest.raises(PortInUse, match=re.escape(taken)):
            await serve_http(example(), [free, taken])
        with pytest.raises(BadAddress, match="nonsense"):
            await serve_http(example(), [free, "nonsense"])
        with trio.socket.socket() as probe:
            await probe.bind(("127.0.0.1", int(free.partition(":")[2])))


async def test_ending_leaves_no_socket_task_handler_or_thread_behind() -> None:
    before = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)}
    tasks = trio.lowlevel.current_statistics().tasks_living
    async with served() as url:
        during = {each: signal.getsignal(each) for each in before}
        streams = [await dialled(url) for _ in range(3)]
        await streams[1].send_all(b"GET /slow/60 HTTP/1.1\r\nHost: x\r\n\r\n")
        await streams[2].send_all(b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{")
        await trio.sleep(0.05)
    assert during == before
    assert trio.lowlevel.current_statistics().tasks_living == tasks
    for stream in streams:
        assert b" 200 " not in await rest(stream)
    with pytest.raises(OSError, match="127"):
        await dialled(url)
    gc.collect()
    assert [each.name for each in threading.enumerate() if "ercorn" in each.name] == []


async def test_an_answer_under_way_is_finished_when_the_serving_ends() -> None:
    async with served(replace(LIMITS, grace_seconds=SOON)) as url:
        stream = await dialled(url)
        await stream.send_all(b"GET /slow/0.2 HTTP/1.1\r\nHost: x\r\n\r\n")
        await trio.sleep(0.05)
        began = trio.current_time()
    assert trio.current_time() - began < SOON - 1
    assert b'"late"' in await rest(stream)


async def test_who_is_idle_does_not_keep_the_serving_from_its_end() -> None:
    async with served(replace(LIMITS, grace_seconds=60.0, idle_seconds=60.0)) as url:
        stream = await dialled(url)
        await trio.sleep(0.05)
        began = trio.current_time()
    assert trio.current_time() - began < SOON
    assert await rest(stream) == b""


async def test_a_client_that_does_not_read_does_not_keep_the_serving_from_its_end() -> None:
    async with served(replace(LIMITS, send_seconds=60.0)) as url:
        stream = await dialled(url)
        await stream.send_all(b"GET /flood HTTP/1.1\r\nHost: x\r\n\r\n")
        await trio.sleep(0.2)
        began = trio.current_time()
    assert trio.current_time() - began < SOON
    await stream.aclose()


async def test_trickling_sockets_are_dropped_and_hurt_nobody() -> None:
    async with served(replace(LIMITS, connections=9)) as url, open_client() as client:
        dropped: list[float] = []

        async def trickle(every: float) -> None:
            stream = await dialled(url)
            began = trio.current_time()
            try:
                for byte in b"GET / HTTP/1.1\r\nHost: x\r\nX-Slow: " + b"x" * 999:
                    await stream.send_all(bytes([byte]))
                    await trio.sleep(every)
            except trio.BrokenResourceError:
                dropped.append(trio.current_time() - began)
            await stream.aclose()

        with trio.fail_after(2 * SOON):
            async with trio.open_nursery() as nursery:
                for _ in range(8):
                    nursery.start_soon(trickle, 0.05)
                slowest = 0.0
                while len(dropped) < 8:
                    began = trio.current_time()
                    assert await get_json(client, url) == "here"
                    slowest = max(slowest, trio.current_time() - began)
                    await trio.sleep(0.05)
        assert slowest < 1.0
        assert all(0.4 < each < SOON for each in dropped), dropped


async def held(url: str, count: int) -> tuple[list[trio.SocketStream], int]:
    """So many idle connections, and how many of them stay open."""
    streams = [await dialled(url) for _ in range(count)]
    await trio.sleep(0.1)
    open_still = 0
    for stream in streams:
        with trio.move_on_after(0.02) as waited:
            with suppress(trio.BrokenResourceError):
                await stream.receive_some(1)
        open_still += waited.cancelled_caught
    return streams, open_still


@pytest.mark.parametrize(
    ("limits", "kept"),
    [
        (replace(LIMITS, idle_seconds=60.0, per_address=3, exempt=()), 3),
        (replace(LIMITS, idle_seconds=60.0, per_address=3), 6),
        (replace(LIMITS, idle_seconds=60.0, connections=4), 4),
    ],
    ids=["of one address", "exempt", "in all"],
)
async def test_connections_are_bounded_and_their_places_come_back(
    limits: ServeLimits, kept: int
) -> None:
    async with served(limits) as url:
        streams, open_still = await held(url, 6)
        assert open_still == kept
        for stream in streams:
            await stream.aclose()
        await trio.sleep(0.1)
        streams, open_still = await held(url, 2)
        assert open_still == 2
        for stream in streams:
            await stream.aclose()


@pytest.mark.parametrize(
    ("headers", "status", "code"),
    [
        (b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400, b"bad_request"),
        (b"Content-Length: 99999999\r\n\r\n", 413, b"body_too_large"),
        (b"a: b\r\n" * 128 + b"\r\n", 431, b"headers_too_large"),
        (b"a: " + b"b" * 17_000 + b"\r\n\r\n", 431, b"headers_too_large"),
        (b"no header\r\n\r\n", 400, b"bad_request"),
    ],
    ids=["two framings", "too long", "too many lines", "too many bytes", "no HTTP"],
)
async def test_requests_beyond_the_limits_are_answered_and_closed(
    headers: bytes, status: int, code: bytes
) -> None:
    async with served() as url:
        stream = await dialled(url)
        await stream.send_all(b"POST /echo HTTP/1.1\r\nHost: x\r\n" + headers)
        got = await rest(stream)
    assert got.startswith(b"HTTP/1.1 %d " % status)
    assert b'"code":"%s"' % code in got
    assert got.count(b"HTTP/1.1 ") == 1


async def test_a_client_that_leaves_in_the_middle_hurts_nobody() -> None:
    async with served() as url, open_client() as client:
        for _ in range(5):
            stream = await dialled(url)
            await stream.send_all(b"GET /flood HTTP/1.1\r\nHost: x\r\n\r\n")
            await stream.receive_some(1000)
            await stream.aclose()
        assert await get_json(client, url) == "here"
        await trio.sleep(0.2)
        assert trio.lowlevel.current_statistics().tasks_living < 30
