from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from p2p.streams import FrameStream
from p2p.testing import MemoryHost, MemoryNetwork
from tessella.client import ANSWER_TIMEOUT, WORD_TIMEOUT, ask_peers, ask_status, complete
from tessella.core.addresses import PeerAddress
from tessella.core.completions import CompletionRequest
from tessella.core.errors import (
    BadFrame,
    OutOfTurn,
    PeerClosed,
    PeerGone,
    PeerSilent,
    PeerUnreachable,
    RemoteFailure,
)
from tessella.core.ids import ModelId, SessionId
from tessella.core.messages import (
    COMPLETE,
    STATUS,
    TRACKER,
    Accepted,
    AskPeers,
    AskStatus,
    Begun,
    Complete,
    Delta,
    Done,
    Fail,
    Peers,
    Progress,
    Status,
)

REQUEST = CompletionRequest(model=ModelId("toy"), prompt="hello")
BEGUN = Begun("id", ModelId("toy"), 1, 0, ())
DELTA = Delta("x", 1, 0.0, ())
DONE = Done("stop", 1, 0.0, 0.1, 0.0, 0.2)
PROGRESS = Progress(SessionId(b"s" * 16), 0, 1, 1)
Ask = Callable[[MemoryHost, PeerAddress], Awaitable[Any]]


@asynccontextmanager
async def a_peer(
    *answers: Any, stay: bool = False
) -> AsyncIterator[tuple[MemoryHost, PeerAddress, list[Any]]]:
    """A client, and a peer that answers whatever it is asked with these; and what it got."""
    got: list[Any] = []

    async def answer(stream: FrameStream) -> None:
        got.append(await stream.receive())
        for one in answers:
            await stream.send(one)
        if stay:
            try:
                got.append(await stream.receive())
            except PeerGone as exc:
                got.append(exc.code)

    net = MemoryNetwork(latency=0.001)
    async with net.host(b"p" * 32) as peer, net.host(b"c" * 32) as client:
        for protocol in (COMPLETE, STATUS, TRACKER):
            peer.serve(protocol, answer, streams=9, per_peer=9)
        yield client, peer.address, got


async def events_of(host: MemoryHost, peer: PeerAddress) -> list[Any]:
    return [event async for event in complete(host, peer, REQUEST)]


async def test_an_answer_is_its_events_in_order_up_to_done(autojump_clock: MockClock) -> None:
    said = [BEGUN, PROGRESS, DELTA, PROGRESS, DELTA, DONE]
    async with a_peer(*said, DELTA, stay=True) as (host, peer, got):
        assert await events_of(host, peer) == said
        assert got[0] == Complete(REQUEST.encode())


@pytest.mark.parametrize("before", [[], [BEGUN, DELTA]])
async def test_a_failure_has_the_code_of_who_said_it(
    autojump_clock: MockClock, before: Sequence[Any]
) -> None:
    async with a_peer(*before, Fail("position_gap", "too far", True)) as (host, peer, _):
        with pytest.raises(RemoteFailure, match="too far") as caught:
            await events_of(host, peer)
        assert (caught.value.code, caught.value.retry) == ("position_gap", True)


async def test_a_refusal_is_read_where_the_request_is_not(autojump_clock: MockClock) -> None:
    async def refused(stream: FrameStream) -> None:
        raise AssertionError("beyond the quota")

    long = CompletionRequest(model=ModelId("toy"), prompt="x" * 600_000)
    net = MemoryNetwork(latency=0.001)
    async with net.host(b"p" * 32) as peer, net.host(b"c" * 32) as host:
        peer.serve(COMPLETE, refused, streams=0, per_peer=0)
        with pytest.raises(RemoteFailure) as caught:
            async for _ in complete(host, peer.address, long):
                pass
        assert (caught.value.code, caught.value.retry) == ("too_many_sessions", True)


async def test_an_answer_that_breaks_off_is_no_answer(autojump_clock: MockClock) -> None:
    async with a_peer(BEGUN, DELTA) as (host, peer, _):
        with pytest.raises(PeerClosed):
            await events_of(host, peer)


async def test_an_entry_that_says_nothing_is_not_waited_for(autojump_clock: MockClock) -> None:
    async with a_peer(BEGUN, stay=True) as (host, peer, _):
        started = trio.current_time()
        with pytest.raises(PeerSilent):
            await events_of(host, peer)
        assert trio.current_time() - started == pytest.approx(WORD_TIMEOUT, abs=0.1)


async def test_who_stops_reading_cancels(autojump_clock: MockClock) -> None:
    async with a_peer(BEGUN, DELTA, stay=True) as (host, peer, got):
        async with aclosing(complete(host, peer, REQUEST)) as answer:  # type: ignore[type-var]
            async for event in answer:
                if event == DELTA:
                    break
        await trio.sleep(0.1)
        assert got[1] == "peer_reset"


async def test_a_nobody_is_named(autojump_clock: MockClock) -> None:
    async with a_peer() as (host, peer, _):
        nobody = PeerAddress(peer.peer_id, ("/ip4/10.9.9.9/tcp/1",))
        for ask in (events_of, ask_peers, ask_status):
            with pytest.raises(PeerUnreachable, match=peer.peer_id):
                await ask(host, nobody)


@pytest.mark.parametrize("ask", [events_of, ask_peers, ask_status])
async def test_an_answer_to_another_question_is_refused(
    autojump_clock: MockClock, ask: Ask
) -> None:
    async with a_peer(Accepted()) as (host, peer, _):
        with pytest.raises(OutOfTurn, match="Accepted"):
            await ask(host, peer)


@pytest.mark.parametrize("ask", [ask_peers, ask_status])
async def test_a_question_is_waited_for_so_long_and_no_longer(
    autojump_clock: MockClock, ask: Ask
) -> None:
    async with a_peer(stay=True) as (host, peer, _):
        started = trio.current_time()
        with pytest.raises(PeerSilent):
            await ask(host, peer)
        assert trio.current_time() - started == pytest.approx(ANSWER_TIMEOUT, abs=0.1)


async def test_a_status_is_an_object(autojump_clock: MockClock) -> None:
    async with a_peer(Status(b'{"role": "worker"}')) as (host, peer, got):
        assert await ask_status(host, peer) == {"role": "worker"}
        assert got == [AskStatus()]


@pytest.mark.parametrize("document", [b"", b"{", b"[1]", b"\xff", b"[" * 100_000])
async def test_a_status_that_is_none_is_refused(autojump_clock: MockClock, document: bytes) -> None:
    async with a_peer(Status(document)) as (host, peer, _):
        with pytest.raises(BadFrame, match="a status document"):
            await ask_status(host, peer)


async def test_peers_are_asked_for_by_model(autojump_clock: MockClock) -> None:
    async with a_peer(Peers(b"[]")) as (host, peer, got):
        assert await ask_peers(host, peer, "toy") == []
        assert await ask_peers(host, peer) == []
        assert got == [AskPeers(ModelId("toy")), AskPeers(ModelId(""))]
    async with a_peer(Peers(b"{}")) as (host, peer, _):
        with pytest.raises(BadFrame, match="peer list"):
            await ask_peers(host, peer)
