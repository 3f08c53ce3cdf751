"""Bodies and headers are bounded before they are read, and a body that trickles is given up."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

import httpx
import pytest
import trio
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse
from starlette.types import Message, Receive, Scope, Send

from tessella.core.errors import BodyTooLarge, RemoteError, TessellaError
from tessella.web.app import ErrorAnswers
from tessella.web.bodies import (
    MAX_HEADER_BYTES,
    MAX_HEADER_LINES,
    MAX_PARAMETERS,
    SLOW_START_SECONDS,
    BodyCaps,
    BodyLimits,
    check_headers,
    seconds_allowed,
)
from tessella.web.errors import BadFraming, HttpRefusal, error_answer

CAPS = BodyCaps(default=100, larger={"/a/b": 1000, "/a/": 500, "/a/b/": 2000, "/c": 700})


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers with what it read."""
    body = await Request(scope, receive).body()
    await PlainTextResponse(body)(scope, receive, send)


async def careless(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers with success whatever it met, as frameworks do."""
    try:
        await Request(scope, receive).body()
        text = "whole"
    except (RemoteError, ClientDisconnect):
        text = "torn"
    await PlainTextResponse(text)(scope, receive, send)


async def early(scope: Scope, receive: Receive, send: Send) -> None:
    """Begins to answer before it reads."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    try:
        await Request(scope, receive).body()
    except BodyTooLarge:
        await send({"type": "http.response.body", "body": b"torn"})
        return
    await send({"type": "http.response.body", "body": b"whole"})


def client_of(app: object) -> httpx.AsyncClient:
    limited = ErrorAnswers(BodyLimits(app, CAPS))  # type: ignore[arg-type]
    return httpx.AsyncClient(transport=httpx.ASGITransport(limited), base_url="http://test")


async def pieces(*sizes: int, every: float = 0.0) -> AsyncIterator[bytes]:
    for size in sizes:
        await trio.sleep(every)
        yield b"x" * size


@pytest.mark.parametrize(
    ("path", "cap"),
    [
        *(("/", 100), ("/a", 100), ("/a/", 500), ("/a/x", 500), ("/a/b", 1000), ("/a/b/", 2000)),
        *(("/a/b/x/y", 2000), ("/c", 700), ("/c/x", 100), ("/A/b", 100)),
    ],
)
def test_the_closest_path_says_the_cap(path: str, cap: int) -> None:
    assert CAPS.of(path) == cap


async def test_a_body_of_the_cap_passes_and_one_byte_more_does_not() -> None:
    async with client_of(echo) as client:
        for path, cap in (("/x", 100), ("/a/b", 1000)):
            assert (await client.post(path, content=b"x" * cap)).text == "x" * cap
            refused = await client.post(path, content=b"x" * (cap + 1))
            assert refused.status_code == 413
            assert refused.json()["error"]["code"] == "body_too_large"
            assert str(cap) in refused.json()["error"]["message"]


async def test_an_announced_length_is_refused_before_a_byte_is_read() -> None:
    async def never() -> Message:
        raise AssertionError("read")

    scope: Scope = {"type": "http", "path": "/", "headers": [(b"content-length", b"101")]}
    with pytest.raises(BodyTooLarge):
        await BodyLimits(echo, CAPS)(scope, never, never)  # type: ignore[arg-type]


@pytest.mark.parametrize("app", [echo, careless])
async def test_a_body_in_chunks_is_counted_whatever_the_app_makes_of_it(app: object) -> None:
    async with client_of(app) as client:
        assert (await client.post("/", content=pieces(50, 50))).status_code == 200
        refused = await client.post("/", content=pieces(50, 50, 1))
        assert (refused.status_code, refused.json()["error"]["code"]) == (413, "body_too_large")
        assert refused.headers["connection"] == "close"


async def test_an_answer_that_has_begun_is_left_to_the_app() -> None:
    async with client_of(early) as client:
        assert (await client.post("/", content=pieces(50, 51))).text == "torn"


def test_the_time_for_a_body_grows_with_what_came() -> None:
    assert seconds_allowed(0) == SLOW_START_SECONDS == 10.0
    assert seconds_allowed(500) == 11.0
    assert seconds_allowed(64 << 20) == 10.0 + (64 << 20) / 500


@pytest.mark.parametrize(
    ("sizes", "every", "status", "after"),
    [
        ((50, 50), 4.9, 200, 9.8),
        ((1, 1, 1), 4.0, 408, 10.0 + 2 / 500),
        ((1,), 60.0, 408, 10.0),
        ((500, 100), 10.5, 408, 10.0),
    ],
)
async def test_a_body_that_trickles_is_given_up(
    sizes: Sequence[int], every: float, status: int, after: float, autojump_clock: object
) -> None:
    async with client_of(careless) as client:
        answer = await client.post("/a/b", content=pieces(*sizes, every=every))
    assert answer.status_code == status
    assert trio.current_time() == pytest.approx(after)
    if status == 408:
        assert answer.json()["error"]["code"] == "request_timeout"
        assert answer.headers["connection"] == "close"


async def test_an_app_may_take_its_time_with_each_piece(autojump_clock: object) -> None:
    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        size = 0
        async for piece in Request(scope, receive).stream():
            size += len(piece)
            await trio.sleep(60)
        await PlainTextResponse(str(size))(scope, receive, send)

    async with client_of(slow) as client:
        assert (await client.post("/", content=pieces(10, 10, 10))).text == "30"


async def test_waiting_for_the_client_to_go_is_not_waiting_for_a_body(
    autojump_clock: object,
) -> None:
    async def watcher(scope: Scope, receive: Receive, send: Send) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    messages = iter([{"type": "http.request"}, {"type": "http.disconnect"}])

    async def receive() -> Message:
        message = next(messages)
        await trio.sleep(0 if message["type"] == "http.request" else 3600)
        return message

    scope: Scope = {"type": "http", "path": "/", "headers": []}
    await BodyLimits(watcher, CAPS)(scope, receive, None)  # type: ignore[arg-type]
    assert trio.current_time() == 3600


def line(name: str, value: str) -> tuple[bytes, bytes]:
    return name.encode(), value.encode()


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [line("content-length", "100")],
        [line("content-length", "0" * 5000 + "100")],
        [line("content-length", "000")],
        [line("transfer-encoding", "chunked")],
        [line("a", "b")] * MAX_HEADER_LINES,
        [line("a", "b" * (MAX_HEADER_BYTES - 5))],
    ],
)
def test_headers_within_their_limits_pass(headers: list[tuple[bytes, bytes]]) -> None:
    check_headers(headers, 100)


@pytest.mark.parametrize(
    ("headers", "kind", "status"),
    [
        ([line("content-length", "101")], BodyTooLarge, 413),
        ([line("Content-Length", "9" * 5000)], BodyTooLarge, 413),
        ([line("content-length", "-1")], BadFraming, 400),
        ([line("content-length", "1e1")], BadFraming, 400),
        ([line("content-length", "")], BadFraming, 400),
        ([line("content-length", "٣")], BadFraming, 400),
        ([line("content-length", "1")] * 2, BadFraming, 400),
        ([line("content-length", "1"), line("Transfer-Encoding", "chunked")], BadFraming, 400),
        ([line("transfer-encoding", "x"), line("content-length", "0")], BadFraming, 400),
        ([line("a", "b")] * (MAX_HEADER_LINES + 1), HttpRefusal, 431),
        ([line("a", "b" * (MAX_HEADER_BYTES - 4))], HttpRefusal, 431),
    ],
)
def test_headers_beyond_their_limits_are_refused(
    headers: list[tuple[bytes, bytes]], kind: type[TessellaError], status: int
) -> None:
    with pytest.raises((kind,)) as caught:
        check_headers(headers, 100)
    assert caught.value.status == status
    assert error_answer(caught.value, now=0.0).headers["connection"] == "close"


@pytest.mark.parametrize(("count", "status"), [(MAX_PARAMETERS, 200), (MAX_PARAMETERS + 1, 400)])
async def test_a_query_has_a_bounded_number_of_parameters(count: int, status: int) -> None:
    async with client_of(echo) as client:
        answer = await client.get("/?" + "&".join(f"{number:x}=" for number in range(count)))
    assert answer.status_code == status


async def test_long_bodies_are_counted_together_until_they_are_answered(
    autojump_clock: object,
) -> None:
    caps = BodyCaps(
        default=100, larger={"/a": 100, "/b/": 100}, together=150, apart=frozenset(["/b/"])
    )
    limited = ErrorAnswers(BodyLimits(echo, caps))
    transport = httpx.ASGITransport(limited)
    statuses: dict[str, list[int]] = {"/a": [], "/b/x": [], "/c": []}

    async def post(path: str, size: int) -> None:
        # It is not whole until the others have come.
        answer = await client.post(path, content=pieces(size, 0, every=1.0))
        statuses[path].append(answer.status_code)

    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        async with trio.open_nursery() as nursery:
            for path, size in (("/a", 80), ("/a", 80), ("/b/x", 100), ("/b/x", 100), ("/c", 100)):
                nursery.start_soon(post, path, size)
        assert {path: sorted(each) for path, each in statuses.items()} == {
            "/a": [200, 503],
            "/b/x": [200, 200],
            "/c": [200],
        }
        # Nothing of those is left, however they ended.
        for _ in range(3):
            await post("/a", 90)
        assert statuses["/a"][2:] == [200, 200, 200]
