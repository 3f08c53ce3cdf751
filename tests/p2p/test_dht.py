"""Nodes that find each other without a hub, on a network in memory and a virtual clock."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest
import trio
from trio.testing import MockClock

from p2p.dht import BEAT
from p2p.kad_streams import KadStream, converse
from p2p.kad_wire import KAD, MAX_ANSWER, KadMessage, Kind
from p2p.streams import ByteStream
from p2p.testing_dht import CLIENT, memory_swarm, numbered, sample_record
from tessella.core.addresses import PeerAddress
from tessella.core.errors import BadConfig, LocalError, PeerGone, TessellaError
from tessella.core.records import node_key, seal_record


async def test_workers_of_one_model_are_all_found_through_the_swarm_alone(
    autojump_clock: MockClock,
) -> None:
    async with memory_swarm() as swarm:
        first = await swarm.node()
        workers = [await swarm.node([first.address]) for _ in range(3)]
        for worker in workers:
            assert await worker.dht.joined(1.0)
            await worker.serve()
        other = await swarm.node([first.address])
        await other.dht.joined(1.0)
        await other.serve("another")
        client = await swarm.node([first.address], CLIENT)
        assert await client.dht.joined(1.0)
        ids = {worker.peer_id for worker in workers}
        assert await client.found("m") == ids
        assert await client.found("m", "c") == ids
        assert await client.found("m", "x") == set()
        assert await client.found("") == ids | {other.peer_id}
        assert await workers[0].found("m") == ids


async def test_a_first_node_alone_is_found_by_who_comes_later(autojump_clock: MockClock) -> None:
    async with memory_swarm() as swarm:
        first = await swarm.node()
        await first.serve()
        assert await first.found() == {first.peer_id}
        assert not await first.dht.joined(100.0)
        second = await swarm.node([first.address])
        assert await second.dht.joined(1.0)
        assert await second.found() == {first.peer_id}
        found = await second.dht.find_record(first.peer_id)
        assert found is not None
        assert found.addrs == first.address.addrs


async def test_what_was_said_alone_is_told_to_the_first_that_comes(
    autojump_clock: MockClock,
) -> None:
    async with memory_swarm() as swarm:
        first = await swarm.node()
        worker = await swarm.node([first.address], CLIENT)
        await worker.serve()
        await trio.sleep(1.0)
        assert await first.found() == {worker.peer_id}


async def test_a_record_is_renewed_each_beat_and_ends_with_its_node(
    autojump_clock: MockClock,
) -> None:
    async with memory_swarm() as swarm:
        first, watcher = await swarm.node(), await swarm.node()
        worker = await swarm.node([first.address, watcher.address])
        await worker.dht.joined(1.0)
        await worker.serve()
        before = await watcher.dht.find_record(worker.peer_id)
        await trio.sleep(5 * BEAT)
        after = await watcher.dht.find_record(worker.peer_id)
        assert before is not None
        assert after is not None
        assert after.sequence > before.sequence
        assert after.life == 2 * BEAT
        assert trio.current_time() - after.made_at <= BEAT + 1
        await worker.die()
        await trio.sleep(2 * BEAT)
        assert await watcher.dht.find_record(worker.peer_id) is None
        assert await watcher.found() == set()


async def test_who_withdraws_is_gone_after_two_beats(autojump_clock: MockClock) -> None:
    async with memory_swarm() as swarm:
        first = await swarm.node()
        worker = await swarm.node([first.address])
        await worker.dht.joined(1.0)
        await worker.serve()
        worker.dht.withdraw()
        await trio.sleep(2 * BEAT + 1)
        assert await first.found() == set()


async def test_a_restarted_node_goes_on_from_a_higher_sequence(autojump_clock: MockClock) -> None:
    async with memory_swarm() as swarm:
        first = await swarm.node()
        worker = await swarm.node([first.address])
        await worker.dht.joined(1.0)
        await worker.serve("old")
        await worker.die()
        await trio.sleep(1.0)
        swarm.count -= 1
        again = await swarm.node([first.address])
        assert again.peer_id == worker.peer_id
        await again.dht.joined(1.0)
        await again.serve("new")
        found = await first.dht.find_record(again.peer_id)
        assert found is not None
        assert found.model == "new"
        assert await first.found("old") == set()


async def test_a_replayed_record_does_not_bring_a_dead_node_back(
    autojump_clock: MockClock,
) -> None:
    async with memory_swarm() as swarm:
        first = await swarm.node()
        worker = await swarm.node([first.address])
        await worker.dht.joined(1.0)
        await worker.serve()
        evil = await swarm.bare()
        key = node_key(worker.peer_id)
        (answer,) = await converse(evil, first.address, [KadMessage(Kind.GET_VALUE, key)], 5)
        assert answer.value
        replay = KadMessage(Kind.PUT_VALUE, key, answer.value)
        assert await converse(evil, first.address, [replay], 5) == [replay]
        await worker.die()
        await trio.sleep(2 * BEAT + 1)
        with pytest.raises(PeerGone):
            await converse(evil, first.address, [replay], 5)
        assert await first.dht.find_record(worker.peer_id) is None
        assert await first.found() == set()


async def test_a_peer_that_answers_with_forgeries_is_not_believed(
    autojump_clock: MockClock,
) -> None:
    """The forger is the only one asked, and names a model's node that never existed."""
    async with memory_swarm() as swarm:
        victim = numbered(500)
        host = await swarm.bare()
        forged = replace(sample_record(host, "m"), peer_id=victim.peer_id, made_at=0.0, life=60.0)
        data = seal_record(forged, numbered(swarm.count))

        async def forge(stream: ByteStream) -> None:
            messages = KadStream(stream, MAX_ANSWER)
            while (question := await messages.receive()) is not None:
                named = (PeerAddress(victim.peer_id, ()),)
                await messages.send(KadMessage(question.kind, question.key, data, providers=named))

        host.serve_bytes(KAD, forge, streams=10, per_peer=10)
        node = await swarm.node([host.address])
        await node.dht.joined(1.0)
        assert await node.dht.find_record(victim.peer_id) is None
        assert await node.found() == set()


async def test_a_lost_record_does_not_hide_its_node(autojump_clock: MockClock) -> None:
    async with memory_swarm() as swarm:
        first = await swarm.node()
        nodes = [await swarm.node([first.address]) for _ in range(4)]
        for node in nodes:
            await node.dht.joined(1.0)
        await nodes[0].serve()
        for node in [first, *nodes[1:3]]:
            node.dht.values.expire(trio.current_time() + 3600)
        client = await swarm.node([first.address], CLIENT)
        await client.dht.joined(1.0)
        assert await client.found() == {nodes[0].peer_id}


async def test_clients_enter_nobodys_table(autojump_clock: MockClock) -> None:
    async with memory_swarm() as swarm:
        first = await swarm.node()
        second = await swarm.node([first.address])
        clients = [await swarm.node([first.address], CLIENT) for _ in range(5)]
        for client in clients:
            await client.dht.joined(1.0)
            await client.serve()
        await trio.sleep(3 * BEAT)
        assert first.dht.peers() == [second.address]
        assert second.dht.peers() == [first.address]
        assert await second.found() == {client.peer_id for client in clients}


async def test_a_newcomer_finds_nodes_after_a_crowd_that_came_and_went(
    autojump_clock: MockClock,
) -> None:
    async with memory_swarm() as swarm:
        first = await swarm.node()
        worker = await swarm.node([first.address])
        await worker.dht.joined(1.0)
        await worker.serve()
        for _ in range(20):
            brief = await swarm.node([first.address])
            await brief.dht.joined(1.0)
            await trio.sleep(0.2)
            await brief.die()
        start = trio.current_time()
        new = await swarm.node([first.address])
        assert await new.dht.joined(2.0)
        assert await new.found() == {worker.peer_id}
        assert trio.current_time() - start < 2.0


async def test_a_key_that_is_no_multihash_is_not_provided(autojump_clock: MockClock) -> None:
    async with memory_swarm() as swarm:
        first = await swarm.node()
        with pytest.raises(LocalError, match="multihash"):
            await first.dht.provide([b"model"])


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"peer_id": numbered(9).peer_id}, LocalError),
        ({"status": "Great"}, LocalError),
        ({"device": "d" * 2000}, BadConfig),
    ],
)
async def test_a_record_against_the_rules_is_refused_and_the_old_one_stays(
    autojump_clock: MockClock, changes: dict[str, str], error: type[TessellaError]
) -> None:
    async with memory_swarm() as swarm:
        first = await swarm.node()
        await first.serve()
        with pytest.raises(error):
            await first.dht.publish(replace(sample_record(first.host, "m"), **changes))  # type: ignore[arg-type]
        await trio.sleep(3 * BEAT)
        assert await first.found() == {first.peer_id}


async def test_a_bug_below_costs_one_question_and_is_logged(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with memory_swarm() as swarm:
        first = await swarm.node()
        second = await swarm.node([first.address])
        await second.dht.joined(1.0)

        async def broken(*_: object, **__: object) -> None:
            raise LocalError("a bug")

        monkeypatch.setattr(second.host, "open_bytes", broken)
        with caplog.at_level(logging.CRITICAL):
            assert await second.found() == set()
            await trio.sleep(120.0)
        monkeypatch.undo()
        assert await second.dht.joined(61.0)


async def test_holders_that_fall_silent_do_not_let_a_record_end(
    autojump_clock: MockClock,
) -> None:
    async with memory_swarm() as swarm:
        nodes = [await swarm.node()]
        nodes += [await swarm.node([nodes[0].address]) for _ in range(5)]
        await trio.sleep(1.0)
        worker, watcher = nodes[1], nodes[0]
        await worker.serve()
        for number in range(2, 6):
            swarm.net.silence(worker.peer_id, nodes[number].peer_id)
            for _ in range(5):
                await trio.sleep(BEAT / 3)
                assert await watcher.found() == {worker.peer_id}
