"""The table of a node: who is taken in, who is asked first, and who goes."""

from __future__ import annotations

import random

import pytest
import trio
from trio.testing import MockClock

from p2p.dht import DhtSettings
from p2p.kad_streams import converse
from p2p.kad_upkeep import MAX_PREFIX, PROBE_AGAIN, STALE, Upkeep
from p2p.kad_wire import KadMessage, Kind
from p2p.testing_dht import Node, memory_swarm, numbered
from tessella.core.addresses import PeerAddress
from tessella.core.buckets import RoutingTable
from tessella.core.kademlia import common_prefix, peer_bytes, peer_from_bytes, point

PING = KadMessage(Kind.PING)


async def test_who_asks_is_asked_back_and_taken_in_with_the_addresses_it_names(
    autojump_clock: MockClock,
) -> None:
    async with memory_swarm() as swarm:
        first, second = await swarm.node(), await swarm.node()
        await converse(second.host, first.address, [PING], 5)
        await trio.sleep(1.0)
        assert first.dht.peers() == [second.address]


async def test_who_does_not_answer_is_not_asked_again_at_every_question(
    autojump_clock: MockClock,
) -> None:
    async with memory_swarm() as swarm:
        first, asker = await swarm.node(), await swarm.bare()
        for _ in range(10):
            await converse(asker, first.address, [PING], 5)
        assert first.dht.client.asked == 1
        await trio.sleep(PROBE_AGAIN)
        await converse(asker, first.address, [PING], 5)
        await trio.sleep(1.0)
        assert first.dht.client.asked == 2
        assert first.dht.peers() == []


async def test_the_dead_leave_a_table_in_which_nobody_looks(autojump_clock: MockClock) -> None:
    async with memory_swarm() as swarm:
        first = await swarm.node()
        second = await swarm.node([first.address])
        await trio.sleep(1.0)
        await second.die()
        assert second.peer_id in first.dht.table
        await trio.sleep(STALE + 200.0)
        assert second.peer_id not in first.dht.table


async def test_peers_are_not_dialled_where_the_operator_forbids_it(
    autojump_clock: MockClock,
) -> None:
    """Every address of the network in memory is private."""
    async with memory_swarm() as swarm:
        first = await swarm.node()
        second = await swarm.node([first.address])
        await trio.sleep(1.0)
        careful = await swarm.node([first.address], DhtSettings(allow_private=False))
        await trio.sleep(1.0)
        assert careful.dht.peers() == [first.address]
        assert careful.host.connected() == (first.peer_id,)
        free = await swarm.node([first.address])
        await trio.sleep(1.0)
        assert second.peer_id in free.dht.table


def upkeep() -> Upkeep:
    own = numbered(1).peer_id
    return Upkeep(_Address(own), RoutingTable(own), random.Random(1))  # type: ignore[arg-type]


class _Address:
    """As much of a host as a key in a bucket needs."""

    def __init__(self, own: str) -> None:
        self.address = PeerAddress(own, ())  # type: ignore[arg-type]


@pytest.mark.parametrize("prefix", range(MAX_PREFIX))
def test_a_key_lies_in_the_bucket_it_is_for_and_looks_like_a_peer(prefix: int) -> None:
    key = upkeep()._key_in(prefix)
    own = numbered(1).peer_id
    assert common_prefix(point(key), point(peer_bytes(own))) == prefix
    assert peer_from_bytes(key) != own


async def test_a_full_bucket_gives_the_place_of_the_dead_to_who_comes(
    autojump_clock: MockClock,
) -> None:
    """Or to one that was heard of before: who lives, and no second one."""
    async with memory_swarm() as swarm:
        first = await swarm.node()
        first.dht.table._k = 1
        far: list[Node] = []
        while len(far) < 3:
            node = await swarm.node()
            own, other = (point(peer_bytes(each.peer_id)) for each in (first, node))
            if common_prefix(own, other) == 0:
                far.append(node)
        oldest, second, third = far
        await converse(oldest.host, first.address, [PING], 5)
        await trio.sleep(70.0)
        await converse(second.host, first.address, [PING], 5)
        await trio.sleep(1.0)
        assert first.dht.peers() == [oldest.address]
        await oldest.die()
        await trio.sleep(70.0)
        await converse(third.host, first.address, [PING], 5)
        await trio.sleep(1.0)
        assert len(first.dht.peers()) == 1
        assert oldest.peer_id not in first.dht.table
