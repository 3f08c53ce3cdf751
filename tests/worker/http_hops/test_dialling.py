"""Streams of frames between two nodes over HTTP, in one process and in virtual time."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import httpx
import pytest
import trio
from trio.testing import MockClock

from p2p.streams import FrameStream
from tessella.core.errors import (
    PeerClosed,
    PeerGone,
    PeerReset,
    PeerSilent,
    PeerUnreachable,
    RemoteFailure,
)
from tessella.core.frames import MIB
from tessella.core.identity import Identity
from tessella.core.messages import HOP, TOKENS, AskStatus, Complete, Fail, Message, Status
from tessella.worker.http_hops.dialling import (
    MAX_HOSTS,
    OPEN_SECONDS,
    HttpHops,
    Route,
    Rules,
    open_http_hops,
)
from tests.worker.http_net import SILENCE, HttpNet, Node, route

ANNA, BERT = Identity(b"a" * 32), Identity(b"b" * 32)
AT_BERT = route("bert.test")


@dataclass
class Scene:
    net: HttpNet
    bert: Node
    hops: HttpHops
    heard: list[Message] = field(default_factory=list)
    ended: list[Exception] = field(default_factory=list)
    answer: Message | None = None
    pause: float = 0.0

    async def serve(self, stream: FrameStream) -> None:
        """Note what comes; say `answer` to each."""
        try:
            while True:
                self.heard.append(await stream.receive())
                if self.answer is not None:
                    await stream.send(self.answer)
                await trio.sleep(self.pause)
        except PeerGone as exc:
            self.ended.append(exc)

    async def open(self) -> FrameStream:
        return await self.hops.open(BERT.peer_id, AT_BERT, HOP)


@asynccontextmanager
async def scene(rules: Rules | None = None) -> AsyncIterator[Scene]:
    net = HttpNet()
    async with trio.open_nursery() as nursery:
        bert = Node(BERT, nursery)
        async with open_http_hops(ANNA, rules or net.rules()) as hops:
            found = Scene(net, bert, hops)
            bert.forward(found.serve)
            net.apps["bert.test"] = bert.app
            yield found
        nursery.cancel_scope.cancel()


async def test_frames_arrive_in_order_both_ways(autojump_clock: MockClock) -> None:
    async with scene() as s:
        s.answer = AskStatus()
        stream = await s.open()
        sent = [Status(bytes([number])) for number in range(20)]
        for message in sent:
            await stream.send(message)
        for _ in sent:
            assert await stream.receive(5) == AskStatus()
        assert s.heard == sent
        assert s.bert.bodies.in_flight == 0
        await stream.aclose()
        await trio.sleep(1)
        assert isinstance(s.ended[0], PeerClosed)
        assert len(s.bert.hops) == 0


async def test_megabytes_arrive_whole(autojump_clock: MockClock) -> None:
    async with scene() as s:
        s.pause = 0.01
        stream = await s.open()
        sent = [Complete(bytes([number]) * (3 * MIB)) for number in range(6)]
        for message in sent:
            await stream.send(message)
        await stream.aclose()
        await trio.sleep(1)
        assert s.heard == sent


async def test_a_decode_step_costs_one_post_and_its_answer_no_wait(
    autojump_clock: MockClock,
) -> None:
    async with scene() as s:
        s.answer = AskStatus()
        stream = await s.open()
        await trio.sleep(1)
        for _ in range(5):
            began, before = trio.current_time(), len(s.net.seen)
            await stream.send(AskStatus())
            await stream.receive(5)
            assert trio.current_time() - began < 0.01
            await trio.sleep(0.5)
            assert len(s.net.seen) - before == 2


async def test_a_refusal_of_the_handler_is_read(autojump_clock: MockClock) -> None:
    async with scene() as s:
        s.answer = Fail("refused", "no", False)
        stream = await s.open()
        await stream.send(AskStatus())
        assert await stream.receive(5) == s.answer


@pytest.mark.parametrize(("times", "arrived"), [(2, 1), (99, 0)])
async def test_a_request_that_is_lost_is_sent_again_for_a_while(
    times: int, arrived: int, autojump_clock: MockClock
) -> None:
    async with scene() as s:
        stream = await s.open()
        left = [times]

        async def lose(request: httpx.Request) -> None:
            if "act=read" not in str(request.url) and left[0]:
                left[0] -= 1
                raise httpx.RemoteProtocolError("cut")

        s.net.before = lose
        await stream.send(AskStatus())
        await trio.sleep(8)
        assert len(s.heard) == arrived
        if not arrived:
            with pytest.raises(PeerClosed):
                await stream.receive(1)


async def test_an_answer_that_is_lost_costs_nothing_and_nothing_comes_twice(
    autojump_clock: MockClock,
) -> None:
    async with scene() as s:
        s.answer = AskStatus()
        stream = await s.open()
        turn = [0]

        async def lose_every_second(request: httpx.Request) -> None:
            turn[0] += 1
            if turn[0] % 2:
                raise httpx.ReadError("cut")

        s.net.after = lose_every_second
        for number in range(10):
            await stream.send(Status(bytes([number])))
            assert await stream.receive(5) == AskStatus()
        assert s.heard == [Status(bytes([number])) for number in range(10)]
        with pytest.raises(PeerSilent):
            await stream.receive(1)


async def test_a_node_that_is_full_is_waited_for(autojump_clock: MockClock) -> None:
    async with scene() as s:
        stream = await s.open()
        with s.bert.bodies.place(), s.bert.bodies.place():
            await stream.send(AskStatus())
            await trio.sleep(2)
            assert s.heard == []
        await trio.sleep(2)
        assert s.heard == [AskStatus()]


async def test_a_node_that_stays_full_says_so_in_its_own_words(autojump_clock: MockClock) -> None:
    async with scene() as s:
        stream = await s.open()
        with s.bert.bodies.place(), s.bert.bodies.place():
            await stream.send(AskStatus())
            with pytest.raises(RemoteFailure, match="reads 2 hop bodies") as caught:
                await stream.receive(20)
        assert (caught.value.code, caught.value.retry) == ("too_many_hop_bodies", True)


async def test_a_stream_too_many_is_no_silence(autojump_clock: MockClock) -> None:
    async with scene() as s:
        for _ in range(s.bert.per_peer):
            await s.open()
        with pytest.raises(RemoteFailure) as caught:
            await s.open()
        assert (caught.value.code, caught.value.retry) == ("too_many_sessions", True)


async def test_a_node_that_began_anew_has_reset_the_stream(autojump_clock: MockClock) -> None:
    async with scene() as s:
        stream = await s.open()
        async with trio.open_nursery() as nursery:
            anew = Node(BERT, nursery)
            anew.forward(s.serve)
            s.net.apps["bert.test"] = anew.app
            await trio.sleep(1)
            with pytest.raises(PeerReset, match="holds the stream no more"):
                await stream.send(AskStatus())
                await stream.receive(20)
            nursery.cancel_scope.cancel()


async def test_a_reset_reaches_the_handler_and_so_does_silence(autojump_clock: MockClock) -> None:
    async with scene() as s:
        stream = await s.open()
        await stream.reset()
        await trio.sleep(0.1)
        assert isinstance(s.ended[0], PeerReset)
        await s.open()

        async def nothing_arrives(request: httpx.Request) -> None:
            raise httpx.ConnectTimeout("no answer")

        s.net.before = nothing_arrives
        await trio.sleep(5.1 + SILENCE + 2)
        assert isinstance(s.ended[1], PeerSilent)
        assert len(s.bert.hops) == 0


async def test_a_stream_that_is_given_back_is_finished_meanwhile(autojump_clock: MockClock) -> None:
    async with scene() as s:
        stream = await s.open()
        await stream.send(AskStatus())
        assert s.hops.end(stream)
        await trio.sleep(1)
        assert s.heard == [AskStatus()]
        assert isinstance(s.ended[0], PeerClosed)
        assert not s.hops.end(stream)


Bad = dict[str, Any]


@pytest.mark.parametrize(
    ("url", "allow_private"),
    [
        ("http://bert.test", False),
        ("http://127.0.0.1:8080", False),
        ("https://169.254.169.254", True),
        ("http://8.8.8.8", True),
        ("ftp://bert.test", True),
        ("http://user:secret@bert.test", True),
        ("http://bert.test:22", True),
        ("http://bert.test/admin?delete=all&", True),
        ("http://bert.test/admin#", True),
        ("", True),
    ],
)
async def test_a_url_that_may_not_be_called_is_no_way_and_is_not_called(
    url: str, allow_private: bool, autojump_clock: MockClock
) -> None:
    net = HttpNet()
    async with open_http_hops(ANNA, replace(net.rules(), allow_private=allow_private)) as hops:
        with pytest.raises(PeerUnreachable, match="not a URL that is called"):
            await hops.open(BERT.peer_id, Route(url, "/v1/forward"), HOP)
        assert net.seen == []


@pytest.mark.parametrize("url", ["http://bert.test", "http://10.0.0.1:8080"])
@pytest.mark.parametrize(
    ("protocol", "listed", "is_called"),
    [(TOKENS, True, True), (HOP, True, False), (TOKENS, False, False)],
)
async def test_tokens_go_to_a_private_host_that_the_operator_lists(
    url: str, protocol: str, listed: bool, is_called: bool, autojump_clock: MockClock
) -> None:
    net = HttpNet()
    hosts = ("bert.test", "10.0.0.1") if listed else ("anna.test",)
    rules = replace(net.rules(), allow_private=False, callback_hosts=hosts)
    async with open_http_hops(ANNA, rules) as hops:
        with pytest.raises(PeerUnreachable):
            await hops.open(BERT.peer_id, Route(url, "/v1/forward"), protocol)
    assert bool(net.seen) is is_called


async def test_who_answers_there_has_to_be_that_peer(autojump_clock: MockClock) -> None:
    async with scene() as s:
        carl = Identity(b"c" * 32)
        with pytest.raises(PeerUnreachable, match="not signed by"):
            await s.hops.open(carl.peer_id, AT_BERT, HOP)
        assert len(s.bert.hops) == 0


@pytest.mark.parametrize("headers", [{}, {"tessella-signature": "00" * 64}], ids=["none", "wrong"])
async def test_an_answer_that_the_peer_did_not_sign_is_none(
    headers: dict[str, str], autojump_clock: MockClock
) -> None:
    async with scene() as s:
        transport = httpx.MockTransport(lambda _: httpx.Response(200, headers=headers))
        rules = replace(s.net.rules(), transport=transport)
        async with open_http_hops(ANNA, rules) as hops:
            with pytest.raises(PeerUnreachable, match="sign"):
                await hops.open(BERT.peer_id, AT_BERT, HOP)


@pytest.mark.parametrize("status", [301, 302, 307])
async def test_redirects_are_not_followed(status: int, autojump_clock: MockClock) -> None:
    asked: list[str] = []

    def elsewhere(request: httpx.Request) -> httpx.Response:
        asked.append(str(request.url))
        return httpx.Response(status, headers={"Location": "http://10.0.0.9/"})

    net = HttpNet()
    rules = replace(net.rules(), transport=httpx.MockTransport(elsewhere))
    async with open_http_hops(ANNA, rules) as hops:
        with pytest.raises(PeerUnreachable, match=f"status {status}"):
            await hops.open(BERT.peer_id, AT_BERT, HOP)
    assert len(asked) == 1


async def test_who_does_not_answer_is_given_up(autojump_clock: MockClock) -> None:
    async with scene() as s:

        async def hang(request: httpx.Request) -> None:
            await trio.sleep_forever()

        s.net.before = hang
        with pytest.raises(PeerSilent):
            await s.open()
        assert trio.current_time() <= OPEN_SECONDS


async def test_a_path_before_ours_is_the_proxys(autojump_clock: MockClock) -> None:
    async with scene() as s:

        class Proxy:
            async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
                path = scope["path"].removeprefix("/bert")
                await s.bert.app({**scope, "path": path}, receive, send)

        s.net.apps["proxy.test"] = Proxy()
        stream = await s.hops.open(
            BERT.peer_id, Route("http://proxy.test/bert/", AT_BERT.path), HOP
        )
        await stream.send(AskStatus())
        await trio.sleep(0.1)
        await trio.sleep(1)
        assert s.heard == [AskStatus()]


async def test_connections_of_hosts_that_nobody_uses_are_not_kept_for_ever(
    autojump_clock: MockClock,
) -> None:
    async with scene() as s:
        kept = await s.open()
        for number in range(MAX_HOSTS + 5):
            s.net.apps[f"n{number}.test"] = s.bert.app
            stream = await s.hops.open(BERT.peer_id, route(f"n{number}.test"), HOP)
            await stream.aclose()
            await trio.sleep(0.1)
        assert len(s.hops._hosts) <= MAX_HOSTS
        await kept.send(AskStatus())
        await trio.sleep(1)
        assert s.heard == [AskStatus()]


async def test_streams_of_a_program_that_ends_are_reset(autojump_clock: MockClock) -> None:
    async with scene() as s:
        rules = s.net.rules()
        async with open_http_hops(ANNA, rules) as hops:
            stream = await hops.open(BERT.peer_id, AT_BERT, HOP)
        with pytest.raises(PeerReset):
            await stream.receive(1)
        await stream.reset()
