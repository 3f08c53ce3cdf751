"""The whole program in memory: silence, restarts, reports, and what it says of itself."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from musivum.admission import MAX_NONCES_PER_PEER
from musivum.app import open_rooms
from musivum.config import MusivumConfig
from musivum.placing.probes import MAX_REPORTS
from musivum.store.memory import MemoryStore
from musivum.testing import QUIET, Caller, a_registration, calling, clock, running
from p2p.kad_wire import KAD
from p2p.streams import FrameStream
from p2p.testing import MemoryNetwork
from tessella.core.addresses import PeerAddress
from tessella.core.errors import PeerGone, Refused
from tessella.core.identity import Identity
from tessella.core.ids import ModelId, PeerId
from tessella.core.layers import LayerRange
from tessella.core.messages import (
    HOP,
    LEDGER,
    STATUS,
    TRACKER,
    Accepted,
    Announce,
    Ask,
    AskPeers,
    AskStatus,
    Assigned,
    Fail,
    Hidden,
    Message,
    Operate,
    Peers,
    Ready,
    ReportFailure,
    Status,
)
from tessella.core.peers import decode_rows
from tessella.core.settlement import MICRO_PER_LAYER_TOKEN, Became
from tests.core.work import Work

TRACKER_SEED = b"t" * 32
SEEDS = [bytes([number]) * 32 for number in (1, 2, 3)]
CONFIG = MusivumConfig(min_vram_mb=0)
BEAT = Announce("Healthy", 0, 20.0)


async def join(node: Caller) -> LayerRange:
    answer = await node.register()
    assert isinstance(answer, Assigned)
    assert await node.call(Ready(answer.layers)) == Accepted()
    return answer.layers


async def statuses(node: Caller) -> dict[str, str]:
    answer = await node.ask(AskPeers(ModelId("")))
    assert isinstance(answer, Peers)
    return {row.peer_id: row.status for row in decode_rows(answer.rows)}


async def document(node: Caller, tracker: PeerAddress) -> dict[str, Any]:
    async with await node.host.open_stream(tracker.peer_id, STATUS, timeout=5) as stream:
        await stream.send(AskStatus())
        answer = await stream.receive(timeout=5)
    assert isinstance(answer, Status)
    found: dict[str, Any] = json.loads(answer.document)
    return found


async def test_a_node_that_falls_silent_is_offline_after_three_beats(
    autojump_clock: MockClock,
) -> None:
    net = MemoryNetwork()
    async with (
        running(net, TRACKER_SEED, CONFIG) as tracker,
        calling(net, SEEDS[0], tracker) as silent,
        calling(net, SEEDS[1], tracker) as alive,
    ):
        await join(silent)
        await join(alive)
        for _ in range(3):
            await trio.sleep(9.9)
            await alive.call(BEAT)
        assert set((await statuses(alive)).values()) == {"Healthy"}
        await trio.sleep(2)
        assert await statuses(alive) == {silent.peer_id: "Offline", alive.peer_id: "Healthy"}
        assert await silent.call(BEAT) == Accepted()
        assert set((await statuses(alive)).values()) == {"Healthy"}


async def test_the_range_of_a_node_that_died_is_given_to_the_next(
    autojump_clock: MockClock,
) -> None:
    net = MemoryNetwork()
    async with running(net, TRACKER_SEED, CONFIG) as tracker:
        async with calling(net, SEEDS[0], tracker) as node:
            assert str(await join(node)) == "0:4"
        await trio.sleep(32)
        async with calling(net, SEEDS[1], tracker) as node:
            assert str(await join(node)) == "0:4"


async def test_a_node_that_dies_while_it_loads_frees_its_reservation(
    autojump_clock: MockClock,
) -> None:
    net = MemoryNetwork()
    async with running(net, TRACKER_SEED, CONFIG) as tracker:
        async with calling(net, SEEDS[0], tracker) as node:
            assert isinstance(await node.register(), Assigned)
            await trio.sleep(100)
            assert await statuses(node) == {node.peer_id: "PendingLoad"}
        await trio.sleep(32)
        async with calling(net, SEEDS[1], tracker) as other:
            assert await statuses(other) == {node.peer_id: "Offline"}


async def test_a_restart_forgets_every_node_and_they_come_back_with_their_ranges(
    autojump_clock: MockClock,
) -> None:
    net = MemoryNetwork()
    async with running(net, TRACKER_SEED, CONFIG) as first, calling(net, SEEDS[0], first) as node:
        layers = await join(node)
    async with (
        running(net, TRACKER_SEED, CONFIG) as second,
        calling(net, SEEDS[1], second) as other,
        calling(net, SEEDS[0], second) as node,
    ):
        assert second.peer_id == first.peer_id
        answer = await node.call(BEAT)
        assert isinstance(answer, Fail)
        assert answer.code == "unknown_worker"
        assert str(await join(other)) == "0:4"
        answer = await node.register(replace(a_registration(), wanted=layers))
        assert answer == Assigned(layers, 10.0)


async def answers_status(stream: FrameStream) -> None:
    await stream.receive(timeout=5)
    await stream.send(Status(b"{}"))


async def test_a_reported_node_that_does_not_answer_is_offline(autojump_clock: MockClock) -> None:
    net = MemoryNetwork()
    async with (
        running(net, TRACKER_SEED, CONFIG) as tracker,
        calling(net, SEEDS[0], tracker) as reporter,
        calling(net, SEEDS[1], tracker) as dead,
    ):
        await join(reporter)
        await join(dead)
        net.silence(tracker.peer_id, dead.peer_id)
        report = ReportFailure(dead.peer_id, "peer_silent")
        assert await reporter.call(report) == Accepted()
        assert (await statuses(reporter))[dead.peer_id] == "Healthy"
        await trio.sleep(16)
        assert (await statuses(reporter))[dead.peer_id] == "Offline"


async def test_a_reported_node_that_answers_stays(autojump_clock: MockClock) -> None:
    net = MemoryNetwork()
    async with (
        running(net, TRACKER_SEED, CONFIG) as tracker,
        calling(net, SEEDS[0], tracker) as griefer,
        calling(net, SEEDS[1], tracker) as honest,
    ):
        honest.host.serve(STATUS, answers_status, streams=8, per_peer=8)
        await join(griefer)
        await join(honest)
        assert await griefer.call(ReportFailure(honest.peer_id, "peer_silent")) == Accepted()
        await trio.sleep(16)
        assert (await statuses(griefer))[honest.peer_id] == "Healthy"


async def test_reports_are_for_nodes_and_few(autojump_clock: MockClock) -> None:
    net = MemoryNetwork()
    async with (
        running(net, TRACKER_SEED, CONFIG) as tracker,
        calling(net, SEEDS[0], tracker) as node,
    ):
        stranger = Identity(SEEDS[2]).peer_id
        codes = [await node.call(ReportFailure(stranger, "x"))]
        await join(node)
        codes.append(await node.call(ReportFailure(node.peer_id, "x")))
        assert [answer.code for answer in codes if isinstance(answer, Fail)] == [
            "unknown_worker",
            "refused",
        ]
        for _ in range(MAX_REPORTS):
            assert await node.call(ReportFailure(stranger, "x")) == Accepted()
        answer = await node.call(ReportFailure(stranger, "x"))
        assert isinstance(answer, Fail)
        assert (answer.code, answer.retry) == ("too_many_requests", True)
        await trio.sleep(60)
        await node.call(BEAT)
        assert await node.call(ReportFailure(stranger, "x")) == Accepted()


async def test_status_shows_the_mesh_and_that_no_tensor_passed(autojump_clock: MockClock) -> None:
    net = MemoryNetwork()
    async with (
        running(net, TRACKER_SEED, CONFIG) as tracker,
        calling(net, SEEDS[0], tracker) as a,
        calling(net, SEEDS[1], tracker) as b,
    ):
        await join(a)
        assert isinstance(await b.register(), Assigned)
        await trio.sleep(5)
        seen = await document(a, tracker)
        assert seen["role"] == "musivum"
        assert seen["peer_id"] == tracker.peer_id
        assert seen["addrs"] == list(tracker.full())
        assert seen["uptime_seconds"] == 5.0
        assert seen["protocols"] == sorted([STATUS, TRACKER, LEDGER, KAD])
        assert seen["nodes"] == {"total": 2, "by_status": {"Healthy": 1, "PendingLoad": 1}}
        (model,) = seen["models"]
        assert (model["model"], model["health"], model["nodes"]) == ("small", "incomplete", 2)
        assert model["holes"] == [{"start": 4, "stop": 12, "claim_mb": 13}]
        assert model["loading"] == [[4, 10]]
        assert (model["mem_per_layer_mb"], model["usable_vram_pct"]) == (1.157, 90)
        assert seen["frames"] == {
            "received": {"AskStatus": 1, "Signed": 3},
            "sent": {"Accepted": 1, "Assigned": 2, "Status": 1},
        }
        assert Hidden.__name__ not in seen["frames"]["received"]


async def test_hidden_states_have_no_way_in(autojump_clock: MockClock) -> None:
    net = MemoryNetwork()
    async with (
        running(net, TRACKER_SEED, CONFIG) as tracker,
        calling(net, SEEDS[0], tracker) as node,
    ):
        assert set(net.hosts[tracker.peer_id].router.protocols) == {TRACKER, LEDGER, STATUS, KAD}
        with pytest.raises(Refused):
            await node.host.open_stream(tracker.peer_id, HOP, timeout=5)
        async with await node.host.open_stream(tracker.peer_id, STATUS, timeout=5) as stream:
            await stream.send(AskPeers(ModelId("")))
            answer: Message = await stream.receive(timeout=5)
            assert isinstance(answer, Fail)
            assert answer.code == "out_of_turn"
            with pytest.raises(PeerGone):
                await stream.receive(timeout=5)


class Flood:
    """A node that is let in and says whatever it can, over and over."""

    def __init__(self, node: Caller, rival: PeerId) -> None:
        self.node = node
        self.once = node.sign(node.a_call(BEAT))
        self.accused = ReportFailure(rival, "peer_silent")
        self.codes: Counter[str] = Counter()

    async def wave(self, number: int) -> None:
        """One of each: distinct and repeated, signed and not, well-formed all of them."""
        node = self.node
        for message in (
            node.sign(node.a_call(BEAT)),
            self.once,
            node.sign(node.a_call(self.accused)),
            Ask(f"/nothing/{number}", b"{}"),
            Operate(f"token {number}", "/rebalance", b"{}"),
        ):
            answer = await node.ask(message)
            self.codes[answer.code if isinstance(answer, Fail) else "done"] += 1


async def sybils(net: MemoryNetwork, tracker: PeerAddress, count: int) -> Counter[str]:
    """So many identities that register and vanish; what they are answered."""
    codes: Counter[str] = Counter()
    for number in range(count):
        async with calling(net, b"sybil" + number.to_bytes(27, "big"), tracker) as sybil:
            answer = await sybil.register()
            codes[answer.code if isinstance(answer, Fail) else "done"] += 1
    return codes


@pytest.mark.parametrize("waves", [200, pytest.param(10_000, marks=pytest.mark.slow)])
async def test_a_flood_of_messages_leaves_little_behind_and_keeps_nobody_out(
    autojump_clock: MockClock, waves: int
) -> None:
    net, rounds, places = MemoryNetwork(), 10, 50
    ours = Identity(TRACKER_SEED)
    # The pace of a peer is held elsewhere; here it would only make the calls old.
    config = replace(QUIET, min_vram_mb=0, max_nodes=places, requests_per_second=1e9)
    async with (
        net.host(ours) as host,
        open_rooms(host, ours, config, store=MemoryStore(), clock=clock, token="t" * 32) as opened,
        calling(net, SEEDS[0], host.address) as honest,
        calling(net, SEEDS[1], host.address) as flooder,
    ):
        rooms = opened.rooms
        honest.host.serve(STATUS, answers_status, streams=8, per_peer=8)
        await join(honest)
        await join(flooder)
        flood = Flood(flooder, honest.peer_id)
        for number in range(rounds):
            for wave in range(waves // rounds):
                await flood.wave(number * waves + wave)
            codes = await sybils(net, host.address, 10)
            assert set(codes) <= {"done", "too_many_sessions"}
            assert await honest.call(BEAT) == Accepted()
            assert (await statuses(honest))[honest.peer_id] == "Healthy"
            await trio.sleep(5)
        assert sum(flood.codes.values()) == 5 * waves
        assert flood.codes.keys() == {
            "done",
            "call_replayed",
            "too_many_requests",
            "unknown_route",
            "admin_only",
        }
        # Each of the calls that were let in, and nothing of the others.
        assert len(rooms.admission.nonces) <= MAX_NONCES_PER_PEER + 200
        assert len(rooms.books.roster) <= places
        assert len(rooms.books.reputations) <= 2 + 10 * rounds
        assert sum(opened.page.tracker.refused.values()) >= 4 * waves - MAX_NONCES_PER_PEER
        assert len(opened.page.tracker.refused) <= len(flood.codes) + 2
        known = rooms.books.reputations.of(honest.peer_id)
        assert (known.offline, known.accused_confirmed) == (0, 0)


async def test_who_takes_over_a_database_pays_what_its_leader_promised(
    autojump_clock: MockClock,
) -> None:
    net, store, worker = MemoryNetwork(), MemoryStore(), Identity(SEEDS[0])
    leader, standby = Identity(TRACKER_SEED), Identity(b"s" * 32)
    config = replace(QUIET, min_vram_mb=0)
    async with net.host(leader) as host, open_rooms(host, leader, config, store=store, clock=clock):
        await trio.sleep(60)
    proof = Work([worker], issuer=leader, issued_at=clock()).proof(0)
    async with (
        net.host(standby) as host,
        open_rooms(host, standby, config, store=store, clock=clock) as opened,
    ):
        (outcome,) = await opened.rooms.ledger.settle([proof])
    assert (outcome.became, outcome.micro) == (Became.PAID, 500 * MICRO_PER_LAYER_TOKEN)
