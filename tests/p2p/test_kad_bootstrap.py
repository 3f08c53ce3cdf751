"""The way into the swarm and back into it: whatever the first peers do, and for how long."""

from __future__ import annotations

import logging
import random
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from p2p.dht import BEAT, DhtSettings
from p2p.kad_bootstrap import LONGEST_WAIT, wait_after
from p2p.kad_snapshot import load_peers, save_peers
from p2p.testing_dht import memory_swarm, numbered
from tessella.core.addresses import PeerAddress

DEAD = PeerAddress(numbered(999).peer_id, ("/ip4/10.9.9.9/tcp/1",))


async def test_the_own_address_a_dead_and_a_silent_bootstrap_delay_nobody(
    autojump_clock: MockClock,
) -> None:
    async with memory_swarm() as swarm:
        silent = await swarm.silent()
        first = await swarm.node()
        own = PeerAddress(numbered(swarm.count + 1).peer_id, ("/ip4/10.0.0.3/tcp/4001",))
        node = await swarm.node([DEAD, own, silent, first.address])
        assert await node.dht.joined(0.5)
        assert node.dht.peers() == [first.address]
        assert await node.found() == set()


async def test_a_silent_bootstrap_alone_is_left_for_no_long(autojump_clock: MockClock) -> None:
    async with memory_swarm() as swarm:
        silent = await swarm.silent()
        node = await swarm.node([silent])
        assert not await node.dht.joined(20.0)
        start = trio.current_time()
        assert await node.found() == set()
        assert trio.current_time() - start < 6


async def test_a_bootstrap_that_comes_late_is_found_within_a_minute(
    autojump_clock: MockClock,
) -> None:
    async with memory_swarm() as swarm:
        swarm.count = 1
        late = PeerAddress(numbered(1).peer_id, ("/ip4/10.0.0.2/tcp/4001",))
        node = await swarm.node([late])
        await trio.sleep(3600.0)
        swarm.count = 0
        first = await swarm.node()
        assert first.address == late
        assert await node.dht.joined(LONGEST_WAIT + 1)
        swarm.count = 2


def test_waits_grow_to_a_minute_and_differ() -> None:
    chance = random.Random(1)
    waits = [wait_after(failures, chance) for failures in range(1, 2000)]
    assert waits[0] == 1.0
    assert 30.0 <= min(waits[10:]) < 40.0 < 55.0 < max(waits) <= 60.0


async def test_a_swarm_that_lost_its_bootstrap_lives_on(autojump_clock: MockClock) -> None:
    async with memory_swarm() as swarm:
        first = await swarm.node()
        nodes = [await swarm.node([first.address]) for _ in range(4)]
        await trio.sleep(5.0)
        await first.die()
        for node in nodes[:3]:
            await node.serve()
        await trio.sleep(BEAT)
        assert await nodes[3].found() == {node.peer_id for node in nodes[:3]}
        assert first.address not in nodes[3].dht.peers()


async def test_halves_that_lost_each_other_meet_again(autojump_clock: MockClock) -> None:
    async with memory_swarm() as swarm:
        first, second = await swarm.node(), await swarm.node()
        left = await swarm.node([first.address])
        right = await swarm.node([second.address])
        await left.serve()
        await right.serve()
        assert await left.found() == {left.peer_id}
        await swarm.node([first.address, second.address])
        await trio.sleep(3 * 60.0)
        assert await left.found() == await right.found() == {left.peer_id, right.peer_id}


async def test_a_node_comes_back_through_its_snapshot(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    path = tmp_path / "peers.json"
    settings = DhtSettings(snapshot=path)
    async with memory_swarm() as swarm:
        first = await swarm.node()
        node = await swarm.node([first.address], settings)
        await node.dht.joined(1.0)
        await node.die()
        assert load_peers(path) == (first.address,)
        again = await swarm.node([], settings)
        assert await again.dht.joined(1.0)
        assert again.dht.peers() == [first.address]


async def test_a_snapshot_of_the_dead_or_of_itself_is_no_harm(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    path = tmp_path / "peers.json"
    own = PeerAddress(numbered(2).peer_id, ("/ip4/10.0.0.2/tcp/4001",))
    save_peers(path, [DEAD, own])
    async with memory_swarm() as swarm:
        first = await swarm.node()
        node = await swarm.node([first.address], DhtSettings(snapshot=path))
        assert await node.dht.joined(1.0)
        assert node.dht.peers() == [first.address]


async def test_a_failed_bootstrap_is_one_warning(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with memory_swarm() as swarm:
        with caplog.at_level(logging.INFO):
            await swarm.node([DEAD])
            await trio.sleep(600.0)
        assert len([line for line in caplog.records if DEAD.peer_id in line.getMessage()]) == 1
