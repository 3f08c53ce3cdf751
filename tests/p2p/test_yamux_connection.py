"""Our yamux over a wire in memory: cancellation, backpressure, ends, and hostile peers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest
import trio
from libp2p.abc import ISecureConn
from libp2p.io.exceptions import IncompleteReadError
from libp2p.peer.id import ID
from libp2p.stream_muxer.exceptions import (
    MuxedConnUnavailable,
    MuxedStreamEOF,
    MuxedStreamReset,
)
from libp2p.stream_muxer.yamux.yamux import Yamux
from trio.testing import MockClock, wait_all_tasks_blocked

from p2p.yamux import connection as yamux
from p2p.yamux.connection import YamuxConnection
from p2p.yamux.outbox import MAX_OWED, STALL_LIMIT
from p2p.yamux.stream import YamuxStream
from p2p.yamux.wire import (
    DATA,
    INITIAL_WINDOW,
    MAX_BODY,
    MAX_MESSAGE,
    PING,
    RST,
    SYN,
    WINDOW_UPDATE,
    pack,
)
from tessella.core.frames import KIB, MIB

PEER = ID(b"\0$\x08\x01\x12 " + bytes(32))


class Half:
    """One direction of a connection: bounded, and it can be paused."""

    def __init__(self) -> None:
        self.buffer = bytearray()
        self.capacity = 128 * KIB
        self.paused = False
        self.closed = False
        self.writes: list[int] = []
        self.lot = trio.lowlevel.ParkingLot()

    async def put(self, data: bytes) -> None:
        self.writes.append(len(data))
        at = 0
        while at < len(data):
            if self.closed:
                raise trio.BrokenResourceError("closed")
            room = self.capacity - len(self.buffer)
            if room <= 0:
                await self.lot.park()
                continue
            self.buffer += data[at : at + room]
            at += room
            self.lot.unpark_all()
        await trio.lowlevel.checkpoint()

    async def take(self) -> bytes:
        while self.paused or not self.buffer:
            if self.closed:
                return b""
            await self.lot.park()
        data = bytes(self.buffer)
        self.buffer.clear()
        self.lot.unpark_all()
        return data

    def resume(self) -> None:
        self.paused = False
        self.lot.unpark_all()

    def close(self) -> None:
        self.closed = True
        self.lot.unpark_all()


class Secured:
    """What yamux needs of a secured connection."""

    def __init__(self, incoming: Half, outgoing: Half, is_initiator: bool) -> None:
        self.incoming, self.outgoing = incoming, outgoing
        self.is_initiator = is_initiator
        self._kept = bytearray()

    async def read(self, n: int | None = None) -> bytes:
        while not self._kept or (n is not None and len(self._kept) < n):
            data = await self.incoming.take()
            if not data:
                raise IncompleteReadError("the other end closed", n or 1, len(self._kept))
            self._kept += data
        size = len(self._kept) if n is None else n
        taken = bytes(self._kept[:size])
        del self._kept[:size]
        return taken

    async def write(self, data: bytes) -> None:
        await self.outgoing.put(data)

    async def close(self) -> None:
        self.incoming.close()
        self.outgoing.close()


class Pair:
    """Two connections and the wire between them."""

    def __init__(self) -> None:
        self.there, self.back = Half(), Half()
        self.left = _connection(Secured(self.back, self.there, True))
        self.right = _connection(Secured(self.there, self.back, False))

    async def streams(self) -> tuple[YamuxStream, YamuxStream]:
        """A stream that left opened, and right's end of it, which some protocol serves."""
        mine = await self.left.open_stream()
        with trio.fail_after(1):
            theirs = await self.right.accept_stream()
        self.right.serve(theirs)
        return mine, theirs


def _connection(secured: Secured) -> YamuxConnection:
    return YamuxConnection(cast("ISecureConn", secured), PEER)


@asynccontextmanager
async def running(*connections: YamuxConnection) -> AsyncIterator[None]:
    async with trio.open_nursery() as nursery:
        for connection in connections:
            nursery.start_soon(connection.start)
        yield
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def pair() -> AsyncIterator[Pair]:
    both = Pair()
    async with running(both.left, both.right):
        yield both


@asynccontextmanager
async def hostile() -> AsyncIterator[tuple[YamuxConnection, Half, Half]]:
    """A connection whose other end is the test: what it reads, and what it wrote."""
    incoming, outgoing = Half(), Half()
    victim = _connection(Secured(incoming, outgoing, False))
    async with running(victim):
        yield victim, incoming, outgoing


async def read_all(stream: YamuxStream, size: int) -> bytes:
    got = bytearray()
    while len(got) < size:
        got += await stream.read()
    return bytes(got)


async def test_bytes_go_both_ways_in_order() -> None:
    data = bytes(range(256)) * (MIB // 256)
    async with pair() as both, trio.open_nursery() as nursery:
        mine, theirs = await both.streams()
        nursery.start_soon(mine.write, data)
        nursery.start_soon(theirs.write, data)
        assert await read_all(theirs, len(data)) == data
        assert await read_all(mine, len(data)) == data


async def test_a_cancelled_write_leaves_other_streams_whole() -> None:
    async with pair() as both:
        mine, theirs = await both.streams()
        other, other_end = await both.streams()
        both.there.paused = True
        with trio.move_on_after(0.05) as scope:
            await mine.write(bytes(MIB))
        assert scope.cancelled_caught
        await mine.reset()
        both.there.resume()
        await other.write(b"still here")
        with trio.fail_after(1):
            assert await other_end.read() == b"still here"
            with pytest.raises(MuxedStreamReset):
                await read_all(theirs, MIB)


async def test_cancelled_reads_lose_nothing() -> None:
    count = 2000
    async with pair() as both, trio.open_nursery() as nursery:
        mine, theirs = await both.streams()

        async def write() -> None:
            for n in range(count):
                await mine.write(n.to_bytes(4, "big"))

        nursery.start_soon(write)
        got = bytearray()
        while len(got) < 4 * count:
            with trio.move_on_after(0.0002):
                got += await theirs.read(4)
        assert got == b"".join(n.to_bytes(4, "big") for n in range(count))


async def test_an_empty_window_is_waited_for(autojump_clock: MockClock) -> None:
    async with pair() as both, trio.open_nursery() as nursery:
        mine, theirs = await both.streams()
        nursery.start_soon(mine.write, bytes(MIB))
        await trio.sleep(25)
        assert await read_all(theirs, MIB) == bytes(MIB)


async def test_a_local_reset_wakes_whoever_reads_and_writes_here() -> None:
    async with pair() as both:
        mine, _theirs = await both.streams()
        ended: list[str] = []

        async def read() -> None:
            try:
                await mine.read()
            except MuxedStreamReset:
                ended.append("read")

        async def write() -> None:
            try:
                await mine.write(bytes(MIB))
            except MuxedStreamReset:
                ended.append("write")

        with trio.fail_after(1):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(read)
                nursery.start_soon(write)
                await wait_all_tasks_blocked()
                await mine.reset()
        assert sorted(ended) == ["read", "write"]


async def test_a_remote_reset_is_told_from_an_end() -> None:
    async with pair() as both:
        mine, theirs = await both.streams()
        await mine.write(b"last words")
        await mine.reset()
        with trio.fail_after(1):
            assert await theirs.read() == b"last words"
            with pytest.raises(MuxedStreamReset):
                await theirs.read()
        mine, theirs = await both.streams()
        await mine.close()
        with trio.fail_after(1), pytest.raises(MuxedStreamEOF):
            await theirs.read()


async def test_half_closed_streams_carry_the_answer() -> None:
    async with pair() as both:
        mine, theirs = await both.streams()
        await mine.close_write()
        with trio.fail_after(1), pytest.raises(MuxedStreamEOF):
            await theirs.read()
        await theirs.write(b"answer")
        await theirs.close()
        with trio.fail_after(1):
            assert await mine.read() == b"answer"
            with pytest.raises(MuxedStreamEOF):
                await mine.read()
        assert not both.left.streams
        assert not both.right.streams


async def test_small_reads_write_no_credit() -> None:
    async with pair() as both:
        mine, theirs = await both.streams()
        await wait_all_tasks_blocked()
        before = len(both.back.writes)
        for _ in range(100):
            await mine.write(b"x" * 100)
            assert await theirs.read() == b"x" * 100
        assert len(both.back.writes) == before


async def test_a_frame_fits_one_noise_message() -> None:
    async with pair() as both, trio.open_nursery() as nursery:
        mine, theirs = await both.streams()
        nursery.start_soon(mine.write, bytes(MIB))
        await read_all(theirs, MIB)
        assert max(both.there.writes) == MAX_MESSAGE


async def test_frames_that_wait_share_a_message() -> None:
    async with pair() as both:
        streams = [(await both.streams())[0] for _ in range(20)]
        await wait_all_tasks_blocked()
        both.there.capacity = 0
        before = len(both.there.writes)
        async with trio.open_nursery() as nursery:
            for stream in streams:
                nursery.start_soon(stream.write, b"token")
            await wait_all_tasks_blocked()
            both.there.capacity = MIB
            both.there.resume()
        assert len(both.there.writes) - before == 1


async def test_two_full_connections_do_not_wait_for_each_other() -> None:
    async with pair() as both:
        both.there.capacity = both.back.capacity = 4 * KIB
        with trio.fail_after(5):
            async with trio.open_nursery() as nursery:
                for _ in range(8):
                    mine, theirs = await both.streams()
                    nursery.start_soon(mine.write, bytes(MIB // 2))
                    nursery.start_soon(theirs.write, bytes(MIB // 2))
                    nursery.start_soon(read_all, mine, MIB // 2)
                    nursery.start_soon(read_all, theirs, MIB // 2)


async def test_a_peer_that_takes_no_bytes_loses_the_connection(autojump_clock: MockClock) -> None:
    async with pair() as both:
        mine, _theirs = await both.streams()
        both.there.paused = True
        with trio.move_on_after(3) as scope:
            await mine.write(bytes(MIB))
        assert scope.cancelled_caught
        assert trio.current_time() == pytest.approx(3)
        with pytest.raises(MuxedConnUnavailable):
            await mine.write(bytes(MIB))
        assert trio.current_time() < 1 + STALL_LIMIT + yamux.PONG_LIMIT
        assert both.left.is_closed


async def test_a_peer_that_owes_a_pong_is_given_up(autojump_clock: MockClock) -> None:
    async with hostile() as (victim, _incoming, _outgoing):
        await trio.sleep(yamux.PONG_LIMIT - 1)
        assert not victim.is_closed
        await trio.sleep(2)
        assert victim.is_closed


async def test_pings_are_answered_and_measured(autojump_clock: MockClock) -> None:
    async with pair() as both:
        await trio.sleep(10 * yamux.PING_SECONDS)
        assert not both.left.is_closed
        assert not both.right.is_closed
        assert both.left.rtt < 0.001


async def test_a_stream_that_the_peer_never_finishes_is_reset(autojump_clock: MockClock) -> None:
    async with pair() as both:
        mine, theirs = await both.streams()
        await mine.close()
        await trio.sleep(3 * yamux.LINGER)
        assert not both.left.streams
        with pytest.raises(MuxedStreamReset):
            await theirs.write(b"x")


async def test_data_for_a_closed_stream_is_answered_with_a_reset() -> None:
    async with pair() as both:
        mine, theirs = await both.streams()
        await mine.close()
        await theirs.write(b"are you there?")
        await wait_all_tasks_blocked()
        with pytest.raises(MuxedStreamReset):
            await theirs.write(b"hello?")


async def test_the_end_of_a_connection_is_neither_end_nor_reset() -> None:
    async with pair() as both:
        mine, theirs = await both.streams()
        await theirs.write(b"before")
        await wait_all_tasks_blocked()
        await both.right.close()
        with trio.fail_after(1):
            assert await mine.read() == b"before"
            with pytest.raises(MuxedConnUnavailable):
                await mine.read()
            with pytest.raises(MuxedConnUnavailable):
                await both.left.open_stream()
            with pytest.raises(MuxedConnUnavailable):
                await both.left.accept_stream()


async def test_streams_over_the_limit_are_refused_and_the_rest_live_on() -> None:
    async with pair() as both:
        first, _ = await both.streams()
        for _ in range(yamux.MAX_STREAMS - 1):
            await both.streams()
        with pytest.raises(MuxedConnUnavailable, match="streams are open"):
            await both.left.open_stream()
        await first.reset()
        await both.streams()


async def test_streams_that_nobody_serves_are_few_and_their_places_come_back() -> None:
    async with pair() as both:
        flood = [await both.left.open_stream() for _ in range(yamux.MAX_UNSERVED + 10)]
        await wait_all_tasks_blocked()
        assert len(both.right.streams) == yamux.MAX_UNSERVED
        for late in flood[yamux.MAX_UNSERVED :]:
            with pytest.raises(MuxedStreamReset):
                await late.read()
        both.right.serve(await both.right.accept_stream())
        both.right.serve(next(iter(both.right.streams.values())))
        await flood[1].reset()
        for _ in range(3):
            await both.left.open_stream()
        await wait_all_tasks_blocked()
        assert len(both.right.streams) == yamux.MAX_UNSERVED + 1


async def test_streams_opened_and_cancelled_leak_nothing() -> None:
    async with pair() as both:
        for _ in range(yamux.MAX_STREAMS + 50):
            with trio.CancelScope() as scope:
                scope.cancel()
                await both.left.open_stream()
        await both.streams()
        assert len(both.left.streams) == 1


async def test_windows_of_a_connection_grow_within_a_budget(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(yamux, "WINDOW_BUDGET", MIB)
    async with pair() as both:
        streams = [await both.streams() for _ in range(4)]
        both.right.rtt = 10.0
        for mine, theirs in streams:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(mine.write, bytes(4 * MIB))
                await read_all(theirs, 4 * MIB)
        lent = [theirs.lent() for _, theirs in streams]
        assert sum(lent) == MIB
        for _, theirs in streams:
            await theirs.reset()
        assert both.right.lend_window(2 * MIB) == MIB


@pytest.mark.parametrize(
    "frames",
    [
        pack(DATA, SYN, 1, INITIAL_WINDOW + 1),
        pack(DATA, SYN, 1, MAX_BODY) + bytes(MAX_BODY) + pack(DATA, 0, 1, INITIAL_WINDOW),
        b"\1" + pack(PING, SYN, 0, 1)[1:],
        pack(9, 0, 1, 0),
        pack(WINDOW_UPDATE, SYN, 2, 0),
        pack(WINDOW_UPDATE, SYN, 0, 0),
        pack(WINDOW_UPDATE, SYN, 1, 0) * 2,
        pack(WINDOW_UPDATE, SYN, 1, 2**32 - 1) * 1 + pack(WINDOW_UPDATE, 0, 1, 2**32 - 1),
        pack(PING, SYN, 0, 7) * (MAX_OWED + 1),
    ],
    ids=[
        "one frame over the window",
        "two frames over the window",
        "version",
        "kind",
        "a stream id of ours",
        "stream 0",
        "opened twice",
        "credit beyond u32",
        "a flood of pings",
    ],
)
async def test_a_peer_that_breaks_the_rules_loses_its_connection(frames: bytes) -> None:
    async with hostile() as (victim, incoming, _outgoing):
        incoming.capacity = MIB
        await incoming.put(frames)
        with trio.fail_after(2):
            await victim.event_closed.wait()


async def test_frames_for_unknown_streams_are_dropped() -> None:
    async with hostile() as (victim, incoming, _outgoing):
        frames = pack(DATA, 0, 7, 3) + b"abc" + pack(WINDOW_UPDATE, RST, 9, 0)
        await incoming.put(frames + pack(WINDOW_UPDATE, SYN, 11, 0))
        with trio.fail_after(1):
            stream = await victim.accept_stream()
        assert stream.stream_id == 11
        assert not victim.is_closed


async def test_closing_calls_back_once_and_is_quick(autojump_clock: MockClock) -> None:
    calls: list[Any] = []

    async def closed() -> None:
        calls.append(trio.current_time())

    async with pair() as both:
        both.left.on_close = closed
        both.there.paused = True
        started = trio.current_time()
        await both.left.close()
        await both.left.close()
        assert len(calls) == 1
        assert trio.current_time() - started < 1


@pytest.mark.parametrize("we_dial", [True, False])
async def test_it_talks_to_libp2ps_own_yamux(we_dial: bool) -> None:
    there, back = Half(), Half()
    ours = _connection(Secured(back, there, we_dial))
    theirs = Yamux(cast("ISecureConn", Secured(there, back, not we_dial)), PEER, not we_dial)
    data = bytes(range(256)) * (MIB // 256)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(ours.start)
        nursery.start_soon(theirs.start)
        await theirs.event_started.wait()
        for _ in range(3):
            near = await ours.open_stream()
            await near.write(b"hello")
            far = await theirs.accept_stream()
            async with trio.open_nursery() as transfers:
                transfers.start_soon(far.write, data)
                transfers.start_soon(near.write, data)
                assert await read_all(near, len(data)) == data
                assert await far.read(5) == b"hello"
                got = b""
                while len(got) < len(data):
                    got += await far.read(64 * KIB)
                assert got == data
            await near.close()
            with pytest.raises(MuxedStreamEOF):
                await far.read(1)
            await far.close()
        mine = await theirs.open_stream()
        await mine.write(b"and back")
        near = await ours.accept_stream()
        assert await near.read() == b"and back"
        await mine.reset()
        with pytest.raises(MuxedStreamReset):
            await near.read()
        await ours.close()
        with trio.fail_after(1):
            await theirs.event_closed.wait()
        nursery.cancel_scope.cancel()
