"""What a node answers to strangers, and what it does not let them do."""

from __future__ import annotations

from dataclasses import replace

import pytest
import trio
from trio.testing import MockClock

from p2p.dht import open_dht
from p2p.kad_server import STORES_AT_ONCE
from p2p.kad_streams import converse
from p2p.kad_wire import KAD, KadMessage, Kind
from p2p.testing import MemoryNetwork
from p2p.testing_dht import memory_swarm, numbered, sample_record
from tessella.core.addresses import PeerAddress
from tessella.core.errors import PeerGone
from tessella.core.kademlia import peer_bytes
from tessella.core.records import model_key, node_key, seal_record

DEAD = PeerAddress(numbered(999).peer_id, ("/ip4/10.9.9.9/tcp/1",))


@pytest.mark.parametrize(
    "question",
    [
        KadMessage(Kind.PUT_VALUE, b"/pk/x", b"value"),
        KadMessage(Kind.PUT_VALUE, node_key(numbered(1).peer_id), b"value"),
        KadMessage(Kind.PUT_VALUE, node_key(numbered(1).peer_id)),
        KadMessage(Kind.PUT_VALUE, b"", bytes(70_000)),
    ],
)
async def test_a_question_that_breaks_a_rule_ends_its_stream_only(
    autojump_clock: MockClock, question: KadMessage
) -> None:
    async with memory_swarm() as swarm:
        first, asker = await swarm.node(), await swarm.bare()
        ping = KadMessage(Kind.PING)
        with pytest.raises(PeerGone):
            await converse(asker, first.address, [question, ping], 5)
        assert await converse(asker, first.address, [ping], 5) == [ping]
        assert len(first.dht.values) == 0


async def test_only_the_sender_becomes_a_provider(autojump_clock: MockClock) -> None:
    async with memory_swarm() as swarm:
        first, asker = await swarm.node(), await swarm.bare()
        key = model_key("m")
        own = PeerAddress(asker.address.peer_id, ("/ip4/1.2.3.4/tcp/1",))
        both = KadMessage(Kind.ADD_PROVIDER, key, providers=(DEAD, own))
        ask = KadMessage(Kind.GET_PROVIDERS, key)
        (answer,) = await converse(asker, first.address, [both, ask], 5)
        assert answer.providers == (own,)
        another = KadMessage(Kind.ADD_PROVIDER, key, providers=(DEAD,))
        with pytest.raises(PeerGone):
            await converse(asker, first.address, [another, ask], 5)


async def test_who_stores_too_much_is_refused(autojump_clock: MockClock) -> None:
    async with memory_swarm() as swarm:
        first, asker = await swarm.node(), await swarm.bare()
        stamped = replace(sample_record(asker, "m"), made_at=trio.current_time(), life=60.0)
        data = seal_record(stamped, numbered(swarm.count))
        put = KadMessage(Kind.PUT_VALUE, node_key(asker.address.peer_id), data)
        most = int(STORES_AT_ONCE)
        assert len(await converse(asker, first.address, [put] * most, 60)) == most
        with pytest.raises(PeerGone):
            await converse(asker, first.address, [put] * 30, 60)
        await trio.sleep(60.0)
        stamped = replace(stamped, made_at=trio.current_time())
        data = seal_record(stamped, numbered(swarm.count))
        again = KadMessage(Kind.PUT_VALUE, put.key, data)
        assert await converse(asker, first.address, [again], 5) == [again]


async def test_a_node_says_who_it_is_and_whom_it_knows(autojump_clock: MockClock) -> None:
    async with memory_swarm() as swarm:
        first = await swarm.node()
        second = await swarm.node([first.address])
        await trio.sleep(1.0)
        asker = await swarm.bare()
        who = KadMessage(Kind.FIND_NODE, peer_bytes(first.peer_id))
        near = KadMessage(Kind.FIND_NODE, peer_bytes(second.peer_id))
        own, other = await converse(asker, first.address, [who, near], 5)
        assert own.closer == (first.address,)
        assert other.closer == (second.address,)


async def test_an_idle_stream_is_closed_and_gives_its_place_back(
    autojump_clock: MockClock,
) -> None:
    async with memory_swarm() as swarm:
        first, asker = await swarm.node(), await swarm.bare()
        await asker.connect(first.address, timeout=1)
        stream = await asker.open_bytes(first.peer_id, KAD, timeout=1)
        assert await stream.receive_some(1) == b""
        assert trio.current_time() == pytest.approx(30, abs=1)


async def test_a_stranger_key_is_answered_with_peers_and_no_value(
    autojump_clock: MockClock,
) -> None:
    async with memory_swarm() as swarm:
        first = await swarm.node()
        asker = await swarm.bare()
        ask = KadMessage(Kind.GET_VALUE, b"/pk/\xff\xfe")
        assert await converse(asker, first.address, [ask], 5) == [ask]


async def test_a_node_that_left_the_swarm_answers_no_more(autojump_clock: MockClock) -> None:
    net = MemoryNetwork()
    async with net.host(numbered(1)) as host, net.host(numbered(2)) as asker:
        async with open_dht(host, numbered(1), clock=trio.current_time):
            ping = KadMessage(Kind.PING)
            assert await converse(asker, host.address, [ping], 5) == [ping]
        with pytest.raises(PeerGone):
            await converse(asker, host.address, [ping], 5)
