"""The route of hops: its statuses, its quota, and what OpenAPI says of it."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from p2p.streams import FrameStream
from tessella.core.errors import PeerGone
from tessella.core.identity import Identity
from tessella.core.messages import AskStatus, Message, encode
from tessella.core.signed_request import Request, answer_text, check_answer, sign_request
from tessella.web.byte_calls import Pieces
from tessella.worker.http_hops.asks import (
    END,
    FORWARD_PATH,
    MAX_HOP_BODY,
    Act,
    Ask,
    Said,
    read_end,
)
from tessella.worker.http_hops.bodies import HopBodies
from tests.worker.http_net import Node, wall

OURS, CALLER = Identity(b"n" * 32), Identity(b"p" * 32)
NAME = bytes(16)


@dataclass
class Scene:
    node: Node
    client: httpx.AsyncClient
    frames: list[Message] = field(default_factory=list)

    async def serve(self, stream: FrameStream) -> None:
        try:
            while True:
                self.frames.append(await stream.receive())
                await stream.send(self.frames[-1])
        except PeerGone:
            pass

    async def post(self, ask: Ask, body: bytes = b"", **changes: Any) -> httpx.Response:
        """The answer to a signed POST; with `content` or `stream`, other bytes than were signed."""
        asked = Request("POST", FORWARD_PATH, ask.query(), body, OURS.peer_id)
        headers = sign_request(asked, CALLER, wall(), secrets.token_bytes(16))
        url = f"{FORWARD_PATH}?{urlencode(ask.query())}"
        content, more = changes.get("content", body), changes.get("and", {})
        request = self.client.build_request("POST", url, content=content, headers=headers | more)
        request.stream = changes.get("stream", request.stream)
        return await self.client.send(request)

    async def said(self, ask: Ask, body: bytes = b"") -> Said:
        answer = await self.post(ask, body)
        assert answer.status_code == 200, answer.json()
        return Said(answer.content, read_end(answer.headers))


@asynccontextmanager
async def scene(**of_node: Any) -> AsyncIterator[Scene]:
    async with trio.open_nursery() as nursery:
        node = Node(OURS, nursery, **of_node)
        transport = httpx.ASGITransport(node.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://node.test") as client:
            found = Scene(node, client)
            node.forward(found.serve)
            yield found
        nursery.cancel_scope.cancel()


def told(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


async def test_frames_go_in_and_come_out_under_one_name(autojump_clock: MockClock) -> None:
    async with scene() as s:
        await s.said(Ask(NAME, Act.OPEN))
        frames = encode(AskStatus())
        assert await s.said(Ask(NAME, Act.WRITE, 1), frames + frames) == Said()
        await wait_all_tasks_blocked()
        assert await s.said(Ask(NAME, Act.READ, 1, 5.0)) == Said(frames + frames)
        assert s.frames == [AskStatus(), AskStatus()]


async def test_a_poll_is_answered_as_soon_as_there_is_a_frame(autojump_clock: MockClock) -> None:
    async with scene() as s:
        await s.said(Ask(NAME, Act.OPEN))
        async with trio.open_nursery() as nursery:

            async def later() -> None:
                await trio.sleep(2)
                await s.said(Ask(NAME, Act.WRITE, 1), encode(AskStatus()))

            nursery.start_soon(later)
            began = trio.current_time()
            assert await s.said(Ask(NAME, Act.READ, 1, 9.0)) == Said(encode(AskStatus()))
            assert trio.current_time() - began == 2.0


async def test_the_answer_is_signed_for_this_call(autojump_clock: MockClock) -> None:
    async with scene() as s:
        await s.said(Ask(NAME, Act.OPEN))
        await s.said(Ask(NAME, Act.WRITE, 1), encode(AskStatus()))
        await wait_all_tasks_blocked()
        answer = await s.post(Ask(NAME, Act.READ, 1))
        assert answer.headers["content-type"] == "application/octet-stream"
        nonce = bytes.fromhex(answer.request.headers["tessella-nonce"])
        text = answer_text(CALLER.peer_id, nonce, "", answer.content)
        check_answer(OURS.peer_id, text, answer.headers)


async def test_bytes_that_are_no_frame_end_the_stream_with_the_reason(
    autojump_clock: MockClock,
) -> None:
    async with scene() as s:
        await s.said(Ask(NAME, Act.OPEN))
        await s.said(Ask(NAME, Act.WRITE, 1), b"\xff\xff\xff\xff")
        await wait_all_tasks_blocked()
        last = await s.post(Ask(NAME, Act.READ, 1))
        assert last.headers[END] == "reset"
        await wait_all_tasks_blocked()
        assert told(await s.post(Ask(NAME, Act.READ, 2))) == (400, "out_of_turn")


async def test_at_the_quota_a_body_is_refused_before_it_is_read(autojump_clock: MockClock) -> None:
    reads = 0

    async def body() -> AsyncIterator[bytes]:
        nonlocal reads
        reads += 1
        yield encode(AskStatus())

    async with scene() as s:
        await s.said(Ask(NAME, Act.OPEN))
        with s.node.bodies.place(), s.node.bodies.place():
            assert s.node.bodies.in_flight == 2
            answer = await s.post(
                Ask(NAME, Act.WRITE, 1),
                encode(AskStatus()),
                content=body(),
            )
            assert told(answer) == (503, "too_many_hop_bodies")
            assert int(answer.headers["Retry-After"]) >= 1
            assert reads == 0
            assert await s.said(Ask(NAME, Act.READ, 1)) == Said()
        assert await s.said(Ask(NAME, Act.WRITE, 1), encode(AskStatus())) == Said()
        assert s.node.bodies.in_flight == 0


async def test_a_body_whose_length_is_told_and_small_needs_no_place(
    autojump_clock: MockClock,
) -> None:
    frame = encode(AskStatus())

    async def untold() -> AsyncIterator[bytes]:
        yield frame

    async with scene(bodies=HopBodies(1, small=len(frame))) as s:
        await s.said(Ask(NAME, Act.OPEN))
        with s.node.bodies.place():
            assert await s.said(Ask(NAME, Act.WRITE, 1), frame) == Said()
            for body, changes in ((frame, {"content": untold()}), (frame + frame, {})):
                answer = await s.post(Ask(NAME, Act.WRITE, 2), body, **changes)
                assert told(answer) == (503, "too_many_hop_bodies")
        assert s.frames == [AskStatus()]


async def test_slow_bodies_in_all_places_do_not_keep_a_decode_step_waiting(
    autojump_clock: MockClock,
) -> None:
    async def trickle() -> AsyncIterator[bytes]:
        await trio.sleep(9)
        yield encode(AskStatus())

    async with scene(bodies=HopBodies(2)) as s, trio.open_nursery() as nursery:
        for name in (b"a" * 16, b"b" * 16):
            await s.said(Ask(name, Act.OPEN))
            ask = Ask(name, Act.WRITE, 1)
            slow = partial(s.post, ask, encode(AskStatus()), content=trickle())
            nursery.start_soon(slow)
        await s.said(Ask(NAME, Act.OPEN))
        await trio.sleep(1)
        assert s.node.bodies.in_flight == 2
        assert await s.said(Ask(NAME, Act.WRITE, 1), encode(AskStatus())) == Said()
        assert trio.current_time() < 2


@pytest.mark.parametrize("length", ["0", "3"])
async def test_a_body_is_no_longer_than_it_told(length: str, autojump_clock: MockClock) -> None:
    async with scene(bodies=HopBodies(1)) as s:
        await s.said(Ask(NAME, Act.OPEN))
        frame = encode(AskStatus())
        lying = {"and": {"Content-Length": length}, "stream": Pieces(frame)}
        answer = await s.post(Ask(NAME, Act.WRITE, 1), frame, **lying)
        assert told(answer) == (413, "body_too_large")
        assert s.frames == []


async def test_a_length_that_nobody_reads_is_an_untold_one(autojump_clock: MockClock) -> None:
    frame = encode(AskStatus())
    async with scene(bodies=HopBodies(1)) as s:
        await s.said(Ask(NAME, Act.OPEN))
        zeros = {"Content-Length": f"{len(frame):05000}"}
        with s.node.bodies.place():
            answer = await s.post(Ask(NAME, Act.WRITE, 1), frame, **{"and": zeros})
            assert told(answer) == (503, "too_many_hop_bodies")


async def test_a_body_over_the_cap_is_refused_by_its_length(autojump_clock: MockClock) -> None:
    async with scene() as s:
        await s.said(Ask(NAME, Act.OPEN))
        sent = {"and": {"Content-Length": str(MAX_HOP_BODY + 1)}}
        answer = await s.post(Ask(NAME, Act.WRITE, 1), b"x", **sent)
        assert told(answer) == (413, "body_too_large")
        assert str(MAX_HOP_BODY) in answer.json()["error"]["message"]


@pytest.mark.parametrize("act", [Act.OPEN, Act.READ, Act.RESET])
async def test_what_writes_nothing_has_no_body(act: Act, autojump_clock: MockClock) -> None:
    async with scene() as s:
        await s.said(Ask(NAME, Act.OPEN))
        answer = await s.post(Ask(NAME, act, 1), b"x")
        assert told(answer) == (400, "bad_request")


async def test_a_query_that_is_none_is_named(autojump_clock: MockClock) -> None:
    async with scene() as s:
        asked = Request("POST", FORWARD_PATH, (("act", "open"),), b"", OURS.peer_id)
        headers = sign_request(asked, CALLER, wall(), secrets.token_bytes(16))
        answer = await s.client.post(f"{FORWARD_PATH}?act=open", headers=headers)
        assert told(answer) == (400, "bad_request")
        assert "query.stream" in answer.json()["error"]["message"]


async def test_a_stream_too_many_is_a_503(autojump_clock: MockClock) -> None:
    async with scene() as s:
        for number in range(s.node.per_peer):
            await s.said(Ask(bytes([number]) * 16, Act.OPEN))
        answer = await s.post(Ask(b"x" * 16, Act.OPEN))
        assert told(answer) == (503, "too_many_sessions")
        assert "Retry-After" in answer.headers


async def test_openapi_tells_of_binary_bodies_headers_and_statuses() -> None:
    async with scene() as s:
        document = s.node.app.openapi()
        operation = document["paths"][FORWARD_PATH]["post"]
        binary = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
        assert operation["requestBody"]["content"] == binary
        assert operation["responses"]["200"]["content"] == binary
        assert set(operation["responses"]) == {"200", "400", "401", "408", "413", "429", "503"}
        assert operation["security"] == [{"Signature": []}]
        names = {each["name"] for each in operation["parameters"]}
        assert names == {
            "stream",
            "act",
            "number",
            "wait",
            "Tessella-Peer",
            "Tessella-Created",
            "Tessella-Nonce",
            "Tessella-Digest",
        }
