"""The memory network: latency, loss, silence and death, on a virtual clock."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock

from p2p.memory import WINDOW_BYTES
from p2p.streams import FrameStream
from p2p.testing import MemoryHost, MemoryNetwork
from tessella.core.addresses import PeerAddress
from tessella.core.errors import LocalError, PeerGone, PeerReset, PeerSilent, PeerUnreachable
from tessella.core.ids import SessionId
from tessella.core.messages import HOP, Cancel, Complete


def number(n: int) -> Cancel:
    return Cancel(SessionId(bytes(16)), n)


@asynccontextmanager
async def echoing(net: MemoryNetwork) -> AsyncIterator[tuple[MemoryHost, MemoryHost]]:
    """Two hosts; the second echoes."""

    async def echo(stream: FrameStream) -> None:
        while True:
            await stream.send(await stream.receive())

    async with net.host(bytes([1]) * 32) as a, net.host(bytes([2]) * 32) as b:
        b.serve(HOP, echo, streams=99, per_peer=99)
        yield a, b


async def test_latency_is_paid_each_way_and_order_is_kept(autojump_clock: MockClock) -> None:
    async with echoing(MemoryNetwork(latency=0.020)) as (a, b):
        await a.connect(b.address, timeout=1)
        assert trio.current_time() == pytest.approx(0.040)
        stream = await a.open_stream(b.address.peer_id, HOP, timeout=1)
        assert trio.current_time() == pytest.approx(0.080)
        for n in range(5):
            await stream.send(number(n))
        assert [await stream.receive() for _ in range(5)] == [number(n) for n in range(5)]
        assert trio.current_time() == pytest.approx(0.120)


async def test_a_window_bounds_what_is_on_its_way() -> None:
    near, _far = MemoryNetwork().stream_pair()
    with trio.move_on_after(0.05) as scope:
        await near.send(Complete(bytes(WINDOW_BYTES)))
    assert scope.cancelled_caught


async def test_a_cut_connection_is_gone_at_both_ends_and_may_be_made_again() -> None:
    net = MemoryNetwork()
    async with echoing(net) as (a, b):
        await a.connect(b.address, timeout=1)
        stream = await a.open_stream(b.address.peer_id, HOP, timeout=1)
        net.cut(a.address.peer_id, b.address.peer_id)
        assert a.connected() == b.connected() == ()
        with pytest.raises(PeerGone):
            await stream.receive(1)
        with pytest.raises(PeerGone):
            await stream.send(number(1))
        await a.connect(b.address, timeout=1)
        assert a.connected() == (b.address.peer_id,)


async def test_silence_holds_back_and_heal_lets_arrive(autojump_clock: MockClock) -> None:
    net = MemoryNetwork(latency=0.01)
    async with echoing(net) as (a, b):
        names = a.address.peer_id, b.address.peer_id
        await a.connect(b.address, timeout=1)
        stream = await a.open_stream(names[1], HOP, timeout=1)
        net.silence(*names)
        await stream.send(number(1))
        with pytest.raises(PeerSilent):
            await stream.receive(30)
        assert a.connected() == (names[1],)
        with pytest.raises(PeerSilent):
            await a.open_stream(names[1], HOP, timeout=3)
        net.heal(*names)
        assert await stream.receive(1) == number(1)
        assert isinstance(await a.open_stream(names[1], HOP, timeout=1), FrameStream)


async def test_dials_into_silence_time_out(autojump_clock: MockClock) -> None:
    net = MemoryNetwork()
    async with echoing(net) as (a, b):
        net.silence(a.address.peer_id, b.address.peer_id)
        with pytest.raises(PeerUnreachable, match="within 2 s"):
            await a.connect(b.address, timeout=2)
        assert trio.current_time() == pytest.approx(2)


async def survived(seed: int) -> int:
    """How many echoes pass before loss breaks the connection."""
    async with echoing(MemoryNetwork(loss=0.02, seed=seed)) as (a, b):
        await a.connect(b.address, timeout=1)
        stream = await a.open_stream(b.address.peer_id, HOP, timeout=1)
        for n in range(10_000):
            try:
                await stream.send(number(n))
                await stream.receive()
            except PeerReset:
                return n
    return 10_000


async def test_losses_break_the_connection_and_are_the_same_every_time() -> None:
    first = [await survived(seed) for seed in range(6)]
    assert first == [await survived(seed) for seed in range(6)]
    assert len(set(first)) > 1
    assert max(first) < 1000


async def test_only_the_address_of_a_living_host_answers() -> None:
    net = MemoryNetwork()
    async with echoing(net) as (a, b):
        wrong = PeerAddress(b.address.peer_id, ("/ip4/10.9.9.9/tcp/4001",))
        with pytest.raises(PeerUnreachable, match=b.address.peer_id):
            await a.connect(wrong, timeout=1)


async def test_a_peer_is_on_a_network_once_at_a_time() -> None:
    net = MemoryNetwork()
    async with net.host(bytes([1]) * 32):
        with pytest.raises(LocalError, match="already"):
            async with net.host(bytes([1]) * 32):
                pass
    async with net.host(bytes([1]) * 32) as again:
        assert again.connected() == ()
