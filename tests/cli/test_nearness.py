"""Measuring how far peers are, in no more time than it is worth."""

from __future__ import annotations

import math

import pytest
import trio
from trio.testing import MockClock

from p2p.testing import MemoryNetwork
from tessella.cli.nearness import GRACE_SECONDS, MAX_PROBED, PROBE_SECONDS, connect_times
from tessella.core.addresses import PeerAddress
from tessella.core.identity import Identity


def absent(number: int) -> PeerAddress:
    return PeerAddress(Identity(bytes([number]) * 32).peer_id, ("/ip4/10.9.9.9/tcp/4001",))


async def test_who_answers_is_measured_and_who_refuses_is_infinitely_far(
    autojump_clock: MockClock,
) -> None:
    net = MemoryNetwork(latency=0.02)
    async with net.host(b"c" * 32) as client, net.host(b"p" * 32) as peer:
        times = await connect_times(client, [peer.address, absent(1)])
    assert times == {peer.address.peer_id: pytest.approx(0.04), absent(1).peer_id: math.inf}


async def test_the_slow_are_not_waited_for_once_another_answered(autojump_clock: MockClock) -> None:
    net = MemoryNetwork(latency=0.02)
    async with net.host(b"c" * 32) as client, net.host(b"p" * 32) as a, net.host(b"q" * 32) as b:
        net.silence(client.address.peer_id, b.address.peer_id)
        times = await connect_times(client, [a.address, b.address])
        assert set(times) == {a.address.peer_id}
        assert trio.current_time() == pytest.approx(0.04 + GRACE_SECONDS)


async def test_where_nobody_answers_it_ends_and_only_a_few_are_tried(
    autojump_clock: MockClock,
) -> None:
    net = MemoryNetwork(latency=0.02)
    peers = [absent(number) for number in range(1, 10)]
    async with net.host(b"c" * 32) as client:
        for peer in peers:
            net.silence(client.address.peer_id, peer.peer_id)
        times = await connect_times(client, peers)
        assert times == {peer.peer_id: math.inf for peer in peers[:MAX_PROBED]}
        assert trio.current_time() == pytest.approx(PROBE_SECONDS, abs=0.1)
