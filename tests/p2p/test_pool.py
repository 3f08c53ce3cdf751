"""Idle streams: bounded, checked when taken, closed by age."""

from __future__ import annotations

from contextlib import AsyncExitStack

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from p2p import pool as pools
from p2p.pool import IDLE_SECONDS, MAX_IDLE_PER_PEER, SWEEP_SECONDS, StreamPool
from p2p.streams import FrameStream
from p2p.testing import MemoryHost, MemoryNetwork
from tessella.core.errors import LocalError, PeerGone, PeerReset
from tessella.core.ids import PeerId, SessionId
from tessella.core.messages import HOP, TOKENS, Cancel

MESSAGE = Cancel(SessionId(bytes(16)), 0)


class Meeting:
    """Two connected hosts; the second keeps every stream it was asked for."""

    def __init__(self, a: MemoryHost, b: MemoryHost, net: MemoryNetwork) -> None:
        self.a, self.net = a, net
        self.peer: PeerId = b.address.peer_id
        self.theirs: list[FrameStream] = []
        for protocol in (HOP, TOKENS):
            b.serve(protocol, self._keep, streams=1000, per_peer=1000)

    async def _keep(self, stream: FrameStream) -> None:
        self.theirs.append(stream)
        await trio.sleep_forever()


async def meet(stack: AsyncExitStack) -> Meeting:
    net = MemoryNetwork()
    a = await stack.enter_async_context(net.host(bytes([1]) * 32))
    b = await stack.enter_async_context(net.host(bytes([2]) * 32))
    meeting = Meeting(a, b, net)
    await a.connect(b.address, timeout=1)
    return meeting


async def test_streams_are_reused_by_peer_and_protocol() -> None:
    async with AsyncExitStack() as stack:
        meeting = await meet(stack)
        pool = StreamPool(meeting.a)
        hop = await pool.take(meeting.peer, HOP)
        tokens = await pool.take(meeting.peer, TOKENS)
        pool.give(hop)
        pool.give(tokens)
        assert await pool.take(meeting.peer, TOKENS) is tokens
        assert await pool.take(meeting.peer, HOP) is hop
        assert await pool.take(meeting.peer, HOP) is not hop


@pytest.mark.parametrize("how", ["close", "reset", "cut", "unasked"])
async def test_a_stream_that_died_while_idle_is_never_handed_out(how: str) -> None:
    async with AsyncExitStack() as stack:
        meeting = await meet(stack)
        pool = StreamPool(meeting.a)
        stream = await pool.take(meeting.peer, HOP)
        await wait_all_tasks_blocked()
        pool.give(stream)
        (theirs,) = meeting.theirs
        if how == "close":
            await theirs.aclose()
        elif how == "reset":
            await theirs.reset()
        elif how == "unasked":
            await theirs.send(MESSAGE)
        else:
            meeting.net.cut(meeting.a.address.peer_id, meeting.peer)
            await meeting.a.connect(meeting.net.hosts[meeting.peer].address, timeout=1)
        fresh = await pool.take(meeting.peer, HOP)
        assert fresh is not stream
        await fresh.send(MESSAGE)


async def test_a_stream_in_the_middle_of_something_is_not_kept() -> None:
    async with AsyncExitStack() as stack:
        meeting = await meet(stack)
        pool = StreamPool(meeting.a)
        stream = await pool.take(meeting.peer, HOP)
        await stream.reset()
        pool.give(stream)
        assert await pool.take(meeting.peer, HOP) is not stream


async def test_idle_streams_are_bounded_by_peer_and_in_all(monkeypatch: pytest.MonkeyPatch) -> None:
    async with AsyncExitStack() as stack:
        meeting = await meet(stack)
        pool = StreamPool(meeting.a)
        taken = [await pool.take(meeting.peer, HOP) for _ in range(MAX_IDLE_PER_PEER + 3)]
        for stream in taken:
            pool.give(stream)
        again = [await pool.take(meeting.peer, HOP) for _ in taken]
        assert sum(1 for stream in again if stream in taken) == MAX_IDLE_PER_PEER
        monkeypatch.setattr(pools, "MAX_IDLE", 2)
        for stream in again:
            pool.give(stream)
        kept = [await pool.take(meeting.peer, HOP) for _ in again]
        assert sum(1 for stream in kept if stream in again) == 2


async def test_idle_streams_end_by_age(autojump_clock: MockClock) -> None:
    async with AsyncExitStack() as stack:
        meeting = await meet(stack)
        nursery = await stack.enter_async_context(trio.open_nursery())
        pool = StreamPool(meeting.a)
        nursery.start_soon(pool.run)
        stream = await pool.take(meeting.peer, HOP)
        pool.give(stream)
        await trio.sleep(IDLE_SECONDS - 1)
        pool.give(await pool.take(meeting.peer, HOP))
        await trio.sleep(IDLE_SECONDS + SWEEP_SECONDS + 1)
        (theirs,) = meeting.theirs
        with pytest.raises(PeerReset):
            await theirs.receive(1)
        nursery.cancel_scope.cancel()


async def test_closing_ends_what_is_idle_and_what_comes_back_later() -> None:
    async with AsyncExitStack() as stack:
        meeting = await meet(stack)
        pool = StreamPool(meeting.a)
        idle, busy = [await pool.take(meeting.peer, HOP) for _ in range(2)]
        pool.give(idle)
        await pool.aclose()
        pool.give(busy)
        await pool.aclose()
        await wait_all_tasks_blocked()
        for theirs in meeting.theirs:
            with pytest.raises(PeerGone):
                await theirs.receive(1)
        for stream in (idle, busy):
            with pytest.raises((LocalError, PeerReset)):
                await stream.send(MESSAGE)
