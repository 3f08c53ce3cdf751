"""Events are bytes that every reader takes apart alike."""

from __future__ import annotations

import pytest
import trio
from starlette.types import Message
from trio.testing import MockClock

from tessella.web.streaming import EventStream, departure


async def test_events_are_one_line_of_ascii_each() -> None:
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    events = EventStream(send)
    assert not events.begun
    await events.begin({"X-Request-Id": "7"})
    assert events.begun
    await events.data({"a": "汉\u2028\n"}, {"b": float("nan")})
    await events.comment("progress")
    await events.text("[DONE]")
    await events.end()
    start, *bodies = sent
    assert start["status"] == 200
    assert dict(start["headers"]) == {
        b"x-request-id": b"7",
        b"content-type": b"text/event-stream; charset=utf-8",
        b"cache-control": b"no-store",
        b"x-accel-buffering": b"no",
    }
    assert [each["body"] for each in bodies] == [
        b'data: {"a":"\\u6c49\\u2028\\n"}\n\ndata: {"b":null}\n\n',
        b": progress\n\n",
        b"data: [DONE]\n\n",
        b"",
    ]
    assert [each["more_body"] for each in bodies] == [True, True, True, False]


async def test_a_departure_is_waited_for_behind_what_is_left_of_the_body(
    autojump_clock: MockClock,
) -> None:
    async def receive() -> Message:
        await trio.sleep(1)
        kind = "http.disconnect" if trio.current_time() - began > 2.5 else "http.request"
        return {"type": kind}

    began = trio.current_time()
    await departure(receive)
    assert trio.current_time() - began == pytest.approx(3)
