"""What every host does, in memory and on real sockets."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

import pytest
import trio
import trio.testing

from p2p.peers import Host
from p2p.pool import StreamPool
from p2p.streams import FrameStream
from tessella.core.addresses import PeerAddress
from tessella.core.errors import (
    Busy,
    LocalError,
    OutOfTurn,
    PeerGone,
    PeerReset,
    PeerUnreachable,
    Refused,
)
from tessella.core.frames import MIB
from tessella.core.identity import Identity
from tessella.core.ids import SessionId
from tessella.core.messages import (
    COMPLETE,
    HOP,
    STATUS,
    TOKENS,
    AskStatus,
    Cancel,
    Complete,
    Fail,
    Status,
)

OpenHost = Callable[[int], AbstractAsyncContextManager[Host]]

SESSION = SessionId(bytes(16))
SECONDS = 5.0


async def echo(stream: FrameStream) -> None:
    """Send back what comes, until the peer finishes."""
    while True:
        await stream.send(await stream.receive())


def serve(host: Host, protocol: str = HOP, streams: int = 16, per_peer: int = 8) -> None:
    host.serve(protocol, echo, streams=streams, per_peer=per_peer)


async def open_to(host: Host, other: Host, protocol: str = HOP) -> FrameStream:
    """Connect and open a stream."""
    await host.connect(other.address, timeout=SECONDS)
    return await host.open_stream(other.address.peer_id, protocol, timeout=SECONDS)


async def until(happened: Callable[[], bool]) -> None:
    """Wait for what no event tells: the other host notices something in its own time."""
    with trio.fail_after(SECONDS):
        while not happened():  # noqa: ASYNC110 - the hosts have no such events
            await trio.sleep(0.01)


def number(n: int) -> Cancel:
    return Cancel(SESSION, n)


async def test_messages_go_there_and_back_with_the_right_names(open_peer: OpenHost) -> None:
    async with open_peer(1) as a, open_peer(2) as b:
        seen: list[str] = []

        async def answer(stream: FrameStream) -> None:
            seen.extend((stream.peer_id, stream.protocol))
            await stream.send(await stream.receive())

        b.serve(STATUS, answer, streams=4, per_peer=4)
        async with await open_to(a, b, STATUS) as stream:
            await stream.send(AskStatus())
            assert await stream.receive(SECONDS) == AskStatus()
            assert stream.peer_id == b.address.peer_id == Identity(bytes([2]) * 32).peer_id
            assert seen == [a.address.peer_id, STATUS]


async def test_both_sides_see_the_connection_until_it_is_closed(open_peer: OpenHost) -> None:
    async with open_peer(1) as a, open_peer(2) as b:
        serve(b)
        assert a.connected() == ()
        stream = await open_to(a, b)
        assert a.connected() == (b.address.peer_id,)
        assert b.connected() == (a.address.peer_id,)
        await a.disconnect(b.address.peer_id)
        assert a.connected() == ()
        with pytest.raises(PeerGone):
            await stream.receive(SECONDS)
        await until(lambda: not b.connected())
        with pytest.raises(PeerUnreachable, match="not connected"):
            await a.open_stream(b.address.peer_id, HOP, timeout=SECONDS)
        await a.disconnect(b.address.peer_id)


async def test_a_host_that_leaves_is_gone_for_those_who_wait(open_peer: OpenHost) -> None:
    async with open_peer(1) as a:
        async with open_peer(2) as b:
            serve(b)
            stream = await open_to(a, b)
            await stream.send(number(1))
            assert await stream.receive(SECONDS) == number(1)
        with pytest.raises(PeerGone):
            await stream.receive(SECONDS)
        with pytest.raises(PeerUnreachable, match=b.address.peer_id):
            await a.connect(b.address, timeout=SECONDS)


async def test_an_unknown_protocol_is_refused_by_name(open_peer: OpenHost) -> None:
    async with open_peer(1) as a, open_peer(2) as b:
        await a.connect(b.address, timeout=SECONDS)
        with pytest.raises(Refused, match=HOP):
            await a.open_stream(b.address.peer_id, HOP, timeout=SECONDS)


async def test_connecting_again_keeps_the_connection(open_peer: OpenHost) -> None:
    async with open_peer(1) as a, open_peer(2) as b:
        serve(b)
        stream = await open_to(a, b)
        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(lambda: a.connect(b.address, timeout=SECONDS))
        await stream.send(number(1))
        assert await stream.receive(SECONDS) == number(1)


async def test_dialling_oneself_is_refused(open_peer: OpenHost) -> None:
    async with open_peer(1) as a:
        with pytest.raises(PeerUnreachable, match="itself"):
            await a.connect(a.address, timeout=SECONDS)


async def test_another_peer_at_the_address_is_not_taken_for_the_one_wanted(
    open_peer: OpenHost,
) -> None:
    async with open_peer(1) as a, open_peer(2) as b:
        stranger = Identity(bytes([9]) * 32).peer_id
        with pytest.raises(PeerUnreachable, match=stranger):
            await a.connect(PeerAddress(stranger, b.address.addrs), timeout=SECONDS)
        assert a.connected() == ()


async def test_a_large_frame_passes_and_small_ones_beside_it(open_peer: OpenHost) -> None:
    async with open_peer(1) as a, open_peer(2) as b:
        got: list[object] = []
        done = trio.Event()

        async def take(stream: FrameStream) -> None:
            got.append(await stream.receive())
            done.set()
            await stream.send(number(0))

        b.serve(HOP, take, streams=4, per_peer=4)
        serve(b, TOKENS)
        bulk, small = await open_to(a, b), await open_to(a, b, TOKENS)
        message = Complete(bytes(range(256)) * (8 * MIB // 256))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(bulk.send, message)
            for n in range(20):
                await small.send(number(n))
                assert await small.receive(SECONDS) == number(n)
        with trio.fail_after(SECONDS):
            await done.wait()
        assert got == [message]
        assert await bulk.receive(SECONDS) == number(0)


async def test_a_slow_reader_holds_the_writer_back_and_loses_nothing(open_peer: OpenHost) -> None:
    async with open_peer(1) as a, open_peer(2) as b:
        go, got = trio.Event(), trio.Event()

        async def late(stream: FrameStream) -> None:
            await go.wait()
            assert await stream.receive() == Complete(bytes(4 * MIB))
            got.set()

        b.serve(HOP, late, streams=4, per_peer=4)
        stream = await open_to(a, b)
        written = trio.Event()

        async def write() -> None:
            await stream.send(Complete(bytes(4 * MIB)))
            written.set()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(write)
            await trio.sleep(0.2)
            assert not written.is_set()
            go.set()
        with trio.fail_after(SECONDS):
            await got.wait()


async def test_a_cancelled_send_costs_its_stream_only(open_peer: OpenHost) -> None:
    async with open_peer(1) as a, open_peer(2) as b:
        errors: list[PeerGone] = []

        async def stuck(stream: FrameStream) -> None:
            await trio.sleep(0.2)
            try:
                await stream.receive()
            except PeerGone as exc:
                errors.append(exc)
                raise

        b.serve(HOP, stuck, streams=4, per_peer=4)
        serve(b, TOKENS)
        bulk, other = await open_to(a, b), await open_to(a, b, TOKENS)
        with trio.move_on_after(0.1) as scope:
            await bulk.send(Complete(bytes(8 * MIB)))
        assert scope.cancelled_caught
        for n in range(50):
            await other.send(number(n))
            assert await other.receive(SECONDS) == number(n)
        await until(lambda: bool(errors))
        assert isinstance(errors[0], PeerReset)


async def test_cancelled_receives_keep_every_byte_in_order(open_peer: OpenHost) -> None:
    async with open_peer(1) as a, open_peer(2) as b:

        async def count(stream: FrameStream) -> None:
            for n in range(300):
                await stream.send(number(n))
                await trio.lowlevel.checkpoint()
            await stream.receive()

        b.serve(HOP, count, streams=4, per_peer=4)
        stream = await open_to(a, b)
        got: list[object] = []
        with trio.fail_after(SECONDS):
            while len(got) < 300:
                with trio.move_on_after(0.0003):
                    got.append(await stream.receive())
        assert got == [number(n) for n in range(300)]
        await stream.send(number(0))


async def test_a_peers_reset_is_no_clean_end(open_peer: OpenHost) -> None:
    async with open_peer(1) as a, open_peer(2) as b:

        async def give_up(stream: FrameStream) -> None:
            await stream.reset()

        b.serve(HOP, give_up, streams=4, per_peer=4)
        stream = await open_to(a, b)
        with pytest.raises(PeerReset):
            await stream.receive(SECONDS)


@pytest.mark.parametrize("raised", [Busy("full today"), OutOfTurn("not now")])
async def test_a_handlers_error_reaches_the_peer_as_fail(
    open_peer: OpenHost, raised: Busy | OutOfTurn
) -> None:
    async with open_peer(1) as a, open_peer(2) as b:

        async def fail(stream: FrameStream) -> None:
            await stream.receive()
            raise raised

        b.serve(HOP, fail, streams=4, per_peer=4)
        stream = await open_to(a, b)
        await stream.send(number(1))
        expected = Fail(raised.code, str(raised), raised.retry)
        assert await stream.receive(SECONDS) == expected
        with pytest.raises(PeerGone):
            await stream.receive(SECONDS)


async def test_a_bug_in_a_handler_costs_its_stream_only_and_tells_nothing(
    open_peer: OpenHost, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_peer(1) as a, open_peer(2) as b:

        async def broken(stream: FrameStream) -> None:
            raise ValueError("the secret is 42")

        b.serve(HOP, broken, streams=4, per_peer=4)
        serve(b, TOKENS)
        other = await open_to(a, b, TOKENS)
        stream = await open_to(a, b)
        with caplog.at_level(logging.CRITICAL, "p2p.router"):
            answer = await stream.receive(SECONDS)
        assert isinstance(answer, Fail)
        assert (answer.code, answer.retry) == (LocalError.code, False)
        assert "42" not in answer.text
        await other.send(number(1))
        assert await other.receive(SECONDS) == number(1)
        assert isinstance(await open_to(a, b, TOKENS), FrameStream)


async def test_quotas_refuse_and_come_back(open_peer: OpenHost) -> None:
    async with open_peer(1) as a, open_peer(2) as b, open_peer(3) as c:
        serve(b, streams=3, per_peer=2)
        held = [await open_to(a, b) for _ in range(2)]
        refused = await open_to(a, b)
        answer = await refused.receive(SECONDS)
        assert isinstance(answer, Fail)
        assert (answer.code, answer.retry) == ("too_many_sessions", True)
        other = await open_to(c, b)
        await other.send(number(1))
        assert await other.receive(SECONDS) == number(1)
        full = await open_to(c, b)
        assert (await full.receive(SECONDS)).code == "too_many_sessions"
        await held[0].aclose()
        await trio.sleep(0.1)
        again = await open_to(a, b)
        await again.send(number(2))
        assert await again.receive(SECONDS) == number(2)


async def test_a_pool_hands_out_what_was_given_and_nothing_that_died(open_peer: OpenHost) -> None:
    async with open_peer(1) as a, open_peer(2) as b:
        serve(b)
        await a.connect(b.address, timeout=SECONDS)
        pool = StreamPool(a)
        first = await pool.take(b.address.peer_id, HOP)
        await first.send(number(1))
        await first.receive(SECONDS)
        pool.give(first)
        assert await pool.take(b.address.peer_id, HOP) is first
        pool.give(first)
        await a.disconnect(b.address.peer_id)
        await a.connect(b.address, timeout=SECONDS)
        second = await pool.take(b.address.peer_id, HOP)
        assert second is not first
        await second.send(number(2))
        assert await second.receive(SECONDS) == number(2)
        await pool.aclose()


async def test_an_error_of_the_body_comes_out_as_it_is(open_peer: OpenHost) -> None:
    with pytest.raises(KeyError, match="mine"):
        async with open_peer(1):
            raise KeyError("mine")


async def test_serving_a_protocol_twice_is_a_bug_made_loud(open_peer: OpenHost) -> None:
    async with open_peer(1) as a:
        serve(a)
        with pytest.raises(LocalError, match=HOP):
            serve(a)


async def test_documents_larger_than_a_control_frame_come_back(open_peer: OpenHost) -> None:
    async with open_peer(1) as a, open_peer(2) as b:

        async def answer(stream: FrameStream) -> None:
            await stream.receive()
            await stream.send(Status(bytes(3 * MIB)))

        b.serve(STATUS, answer, streams=4, per_peer=4)
        stream = await open_to(a, b, STATUS)
        await stream.send(AskStatus())
        assert await stream.receive(SECONDS) == Status(bytes(3 * MIB))


async def test_a_finished_conversation_leaves_no_stream_open(open_peer: OpenHost) -> None:
    async with open_peer(1) as a, open_peer(2) as b:
        serve(b, COMPLETE, streams=4, per_peer=2)
        for n in range(10):
            async with await open_to(a, b, COMPLETE) as stream:
                await stream.send(number(n))
                assert await stream.receive(SECONDS) == number(n)
            await trio.sleep(0.02)
