"""An answer over HTTP, from the request to its last event, and every way it may go wrong."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import aclosing
from typing import Any

import httpx
import pytest
import trio
from trio.testing import MockClock

from tessella.core.completions import CompletionRequest
from tessella.core.errors import (
    BadFrame,
    PeerClosed,
    PeerSilent,
    PeerUnreachable,
    RemoteFailure,
)
from tessella.core.ids import ModelId
from tessella.core.messages import Begun, Delta
from tessella.web.client import open_client
from tessella.web.completions import SILENCE_SECONDS, complete_http

REQUEST = CompletionRequest(model=ModelId("toy"), prompt="Once")
EVENTS = {"Content-Type": "text/event-stream; charset=utf-8", "X-Request-Id": "r1"}
STREAM = (
    'data: {"choices": [{"text": "é汉"}]}\n\n'
    'data: {"choices": [{"text": "", "finish_reason": "stop"}]}\n\n'
    "data: [DONE]\n\n"
).encode()


async def pieces_of(stream: bytes, size: int) -> AsyncIterator[bytes]:
    for place in range(0, len(stream), size):
        await trio.lowlevel.checkpoint()
        yield stream[place : place + size]


def answering(
    body: Any, status: int = 200, headers: Mapping[str, str] = EVENTS
) -> Callable[..., httpx.Response]:
    # What is given to httpx whole counts as read already.
    told = {"stream": httpx.ByteStream(body)} if isinstance(body, bytes) else {"content": body}
    return lambda _: httpx.Response(status, headers=headers, **told)


async def asked(handler: Callable[..., httpx.Response]) -> list[Any]:
    async with open_client(httpx.MockTransport(handler)) as client:
        coming = complete_http(client, "http://node.example/api", REQUEST)
        return [event async for event in coming]


@pytest.mark.parametrize("size", [1, 7, 1000])
async def test_an_answer_is_its_events_however_it_was_cut(size: int) -> None:
    begun, delta, _, done = await asked(answering(pieces_of(STREAM, size)))
    assert begun == Begun("r1", ModelId("toy"), 0, 0, ())
    assert delta == Delta("é汉", 0, 0.0, ())
    assert (done.reason, done.completion_tokens) == ("stop", 1)


async def test_the_request_is_posted_below_the_api() -> None:
    seen: list[httpx.Request] = []

    def handler(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(200, stream=httpx.ByteStream(STREAM), headers=EVENTS)

    await asked(handler)
    assert (seen[0].method, str(seen[0].url)) == ("POST", "http://node.example/api/v1/completions")
    assert json.loads(seen[0].content)["prompt"] == "Once"
    assert seen[0].headers["accept"] == "text/event-stream"


async def test_an_error_answer_is_the_nodes_error() -> None:
    body = b'{"error": {"code": "model_unavailable", "message": "a hole", "retry_after": 3}}'
    with pytest.raises(RemoteFailure, match="a hole") as caught:
        await asked(answering(body, 503, {"Content-Type": "application/json"}))
    assert (caught.value.code, caught.value.retry) == ("model_unavailable", True)


@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        ({"Content-Type": "application/json"}, "without a stream"),
        ({"Content-Encoding": "gzip"}, "encoding"),
    ],
)
async def test_an_answer_of_another_kind_is_refused(headers: dict[str, str], reason: str) -> None:
    with pytest.raises(BadFrame, match=reason):
        await asked(answering(STREAM, headers=EVENTS | headers))


async def test_a_stream_that_ends_early_is_told() -> None:
    with pytest.raises(PeerClosed, match="broke off"):
        await asked(answering(STREAM.partition(b"\n\n")[0] + b"\n\n"))


async def test_nobody_there_is_told() -> None:
    def handler(_: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused")

    with pytest.raises(PeerUnreachable, match=r"node\.example"):
        await asked(handler)


async def test_silence_amid_an_answer_ends_it(autojump_clock: MockClock) -> None:
    async def stalling() -> AsyncIterator[bytes]:
        yield STREAM[:40]
        await trio.sleep_forever()

    with pytest.raises(PeerSilent):
        await asked(answering(stalling()))
    assert trio.current_time() == pytest.approx(SILENCE_SECONDS)


async def test_closing_the_iterator_ends_the_request(autojump_clock: MockClock) -> None:
    ended: list[str] = []

    async def talking() -> AsyncIterator[bytes]:
        try:
            while True:
                yield b'data: {"choices": [{"text": "x"}]}\n\n'
                await trio.sleep(1)
        finally:
            ended.append("by us")

    async with open_client(httpx.MockTransport(answering(talking()))) as client:
        async with aclosing(complete_http(client, "http://x", REQUEST)) as coming:  # type: ignore[type-var]
            async for event in coming:
                if isinstance(event, Delta):
                    break
        assert ended == ["by us"]


async def test_a_cancelled_answer_leaves_nothing_behind(autojump_clock: MockClock) -> None:
    async def silent() -> AsyncIterator[bytes]:
        yield STREAM[:40]
        await trio.sleep_forever()

    with trio.move_on_after(5) as scope:
        await asked(answering(silent()))
    assert scope.cancelled_caught
