"""Tokens of a tail over HTTP: only its own, only once, only in order, and not too fast."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from urllib.parse import urlencode

import httpx
import pytest
import trio
from trio.testing import MockClock

from p2p.streams import FrameStream
from tessella.core.errors import PeerReset, RemoteFailure
from tessella.core.identity import Identity
from tessella.core.ids import PeerId, SessionId
from tessella.core.messages import TOKENS, Fail, Token, TokenOpen
from tessella.core.rates import Rate
from tessella.core.signed_request import Request, sign_request
from tessella.worker.api.tokens import TOKEN_RATE, TokenRoom, add_tokens
from tessella.worker.http_hops.asks import MAX_TOKEN_BODY, TOKEN_PATH, Act, Ask
from tessella.worker.http_hops.dialling import HttpHops, open_http_hops
from tessella.worker.tokens import Inbox, TokenDesk
from tests.worker.http_net import HttpNet, Node, route, wall

ENTRY, TAIL, OTHER = Identity(b"e" * 32), Identity(b"t" * 32), Identity(b"o" * 32)
SESSION = SessionId(b"session of tests")


def token(position: int, reason: str = "") -> Token:
    return Token(SESSION, 0, position, 7, "x", reason, 0.0, ())


@dataclass
class Scene:
    net: HttpNet
    node: Node
    desk: TokenDesk
    inbox: Inbox
    tail: HttpHops
    other: HttpHops

    def grant(self, to: PeerId = TAIL.peer_id, session: SessionId = SESSION) -> TokenOpen:
        return TokenOpen(*self.desk.grant(session, 0, to))

    async def open(self, hops: HttpHops | None = None, session: SessionId = SESSION) -> FrameStream:
        where = route("entry.test", TOKEN_PATH + session.hex())
        return await (hops or self.tail).open(ENTRY.peer_id, where, TOKENS)


@asynccontextmanager
async def scene(rate: Rate = TOKEN_RATE) -> AsyncIterator[Scene]:
    net, desk = HttpNet(), TokenDesk(ENTRY)
    async with trio.open_nursery() as nursery:
        node = Node(ENTRY, nursery)
        add_tokens(node.app, TokenRoom(node.door(node.table(TOKENS), MAX_TOKEN_BODY), desk, rate))
        net.apps["entry.test"] = node.app
        async with (
            open_http_hops(TAIL, net.rules()) as tail,
            open_http_hops(OTHER, net.rules()) as other,
        ):
            with desk.expect(SESSION, 0, TAIL.peer_id) as inbox:
                yield Scene(net, node, desk, inbox, tail, other)
        nursery.cancel_scope.cancel()


async def failure(stream: FrameStream) -> str:
    answer = await stream.receive(5)
    assert isinstance(answer, Fail)
    return answer.code


async def test_tokens_arrive_in_order(autojump_clock: MockClock) -> None:
    async with scene() as s:
        stream = await s.open()
        await stream.send(s.grant())
        for position in range(5):
            await stream.send(token(position))
            assert await s.inbox.next() == token(position)
        await stream.send(token(5, "stop"))
        assert (await s.inbox.next()).reason == "stop"
        assert s.tail.end(stream)
        await trio.sleep(1)


async def test_the_grant_and_the_first_tokens_may_come_in_one_body(
    autojump_clock: MockClock,
) -> None:
    async with scene() as s:
        stream = await s.open()
        for message in (s.grant(), token(0), token(1)):
            await stream.send(message)
        assert [await s.inbox.next() for _ in range(2)] == [token(0), token(1)]


@pytest.mark.parametrize("positions", [(3, 3), (3, 2)])
async def test_a_position_comes_once_and_none_goes_back(
    positions: tuple[int, int], autojump_clock: MockClock
) -> None:
    async with scene() as s:
        stream = await s.open()
        await stream.send(s.grant())
        for position in positions:
            await stream.send(token(position))
        assert await failure(stream) == "out_of_turn"
        assert await s.inbox.next() == token(3)


async def test_a_grant_opens_one_stream(autojump_clock: MockClock) -> None:
    async with scene() as s:
        grant = s.grant()
        first, second = await s.open(), await s.open()
        await first.send(grant)
        await trio.sleep(0.1)
        await second.send(grant)
        assert await failure(second) == "out_of_turn"
        await first.send(token(0))
        assert await s.inbox.next() == token(0)


async def test_a_grant_is_its_tails_alone(autojump_clock: MockClock) -> None:
    async with scene() as s:
        for grant in (s.grant(), TokenOpen(b"guessed", bytes(64))):
            stream = await s.open(s.other)
            await stream.send(grant)
            assert await failure(stream) in ("bad_signature", "protocol_error", "bad_frame")
        stream = await s.open()
        await stream.send(s.grant())
        await stream.send(token(0))
        assert await s.inbox.next() == token(0)


async def test_a_grant_of_another_request_opens_nothing_and_stays_good(
    autojump_clock: MockClock,
) -> None:
    async with scene() as s:
        stream = await s.open(session=SessionId(bytes(16)))
        await stream.send(s.grant())
        assert await failure(stream) == "out_of_turn"
        stream = await s.open()
        await stream.send(s.grant())
        await stream.send(token(0))
        assert await s.inbox.next() == token(0)


async def test_nobody_else_goes_on_with_a_stream(autojump_clock: MockClock) -> None:
    async with scene() as s:
        stream = await s.open()
        await stream.send(s.grant())
        await trio.sleep(0.1)
        (key,) = [key for request in s.net.seen if (key := request.url.params["stream"])][-1:]
        ask = Ask(bytes.fromhex(key), Act.WRITE, 2)
        path = TOKEN_PATH + SESSION.hex()
        asked = Request("POST", path, ask.query(), b"", ENTRY.peer_id)
        headers = sign_request(asked, OTHER, wall(), secrets.token_bytes(16))
        transport = httpx.ASGITransport(s.node.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://entry.test") as client:
            answer = await client.post(f"{path}?{urlencode(ask.query())}", headers=headers)
        assert answer.json()["error"]["code"] == "out_of_turn"


async def test_a_tail_is_told_when_the_answer_is_given_up(autojump_clock: MockClock) -> None:
    async with scene() as s:
        stream = await s.open()
        await stream.send(s.grant())
        await stream.send(token(0))
        await s.inbox.next()
        s.inbox.closed.set()
        assert await failure(stream) == "out_of_turn"
        with pytest.raises(PeerReset):
            await stream.receive(5)


async def test_tokens_come_as_fast_as_they_may_and_no_faster(autojump_clock: MockClock) -> None:
    async with scene(Rate(10.0, 10)) as s:
        stream = await s.open()
        await stream.send(s.grant())
        began = trio.current_time()
        for position in range(30):
            await stream.send(token(position))
            assert await s.inbox.next() == token(position)
        assert 1.5 < trio.current_time() - began < 4.0


async def test_a_tail_that_is_too_fast_is_told_so_before_a_body_is_read(
    autojump_clock: MockClock,
) -> None:
    async with scene(Rate(0.001, 1)) as s:
        await s.open()
        with pytest.raises(RemoteFailure) as caught:
            await s.open()
        assert (caught.value.code, caught.value.retry) == ("too_many_requests", True)
        await s.open(s.other)


@pytest.mark.parametrize("name", ["abc", "AB" * 16, "00" * 17])
async def test_a_request_is_named_in_hex(name: str, autojump_clock: MockClock) -> None:
    async with scene() as s:
        path = TOKEN_PATH + name
        ask = Ask(bytes(16), Act.OPEN)
        asked = Request("POST", path, ask.query(), b"", ENTRY.peer_id)
        headers = sign_request(asked, TAIL, wall(), secrets.token_bytes(16))
        transport = httpx.ASGITransport(s.node.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://entry.test") as client:
            answer = await client.post(f"{path}?{urlencode(ask.query())}", headers=headers)
        assert answer.status_code == 400
        assert "request_id" in answer.json()["error"]["message"]


async def test_openapi_names_the_request_and_the_binary_body() -> None:
    async with scene() as s:
        operation = s.node.app.openapi()["paths"]["/v1/token_stream/{request_id}"]["post"]
        assert "application/octet-stream" in operation["requestBody"]["content"]
        assert {"200", "401", "413", "429", "503"} <= set(operation["responses"])
        places = {each["name"]: each["in"] for each in operation["parameters"]}
        assert places["request_id"] == "path"
