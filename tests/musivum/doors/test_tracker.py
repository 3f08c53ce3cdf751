"""The conversation of nodes with a tracker, over a network in memory on a virtual clock."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import trio
from trio.testing import MockClock

from musivum.config import MusivumConfig
from musivum.doors.answers import list_of
from musivum.testing import Caller, a_registration, calling, running
from p2p.testing import MemoryNetwork
from tessella.core.errors import PeerGone
from tessella.core.frames import MAX_TRACKER_FRAME
from tessella.core.identity import PURPOSE_TRACKER, Identity
from tessella.core.ids import ModelId
from tessella.core.layers import LayerRange
from tessella.core.messages import (
    TRACKER,
    Accepted,
    Announce,
    AskPeers,
    AskStatus,
    Assigned,
    Deregister,
    Fail,
    Message,
    Peers,
    Ready,
    Signed,
    seal,
)
from tessella.core.peers import NodeStatus, PeerRow, decode_rows, encode_rows

TRACKER_SEED = b"t" * 32
SEEDS = [bytes([number]) * 32 for number in (1, 2, 3)]
CONFIG = MusivumConfig(min_vram_mb=0)
BEAT = Announce("Healthy", 1, 20.0)


def failed_with(answer: Message) -> str:
    assert isinstance(answer, Fail)
    return answer.code


async def listed(node: Caller, model: str = "small") -> list[PeerRow]:
    answer = await node.ask(AskPeers(ModelId(model)))
    assert isinstance(answer, Peers)
    return decode_rows(answer.rows)


async def test_three_nodes_join_load_and_are_listed(autojump_clock: MockClock) -> None:
    net = MemoryNetwork(latency=0.02)
    async with (
        running(net, TRACKER_SEED, CONFIG) as tracker,
        calling(net, SEEDS[0], tracker) as a,
        calling(net, SEEDS[1], tracker) as b,
        calling(net, SEEDS[2], tracker) as c,
    ):
        ranges = []
        for node in (a, b, c):
            answer = await node.register()
            assert isinstance(answer, Assigned)
            assert answer.heartbeat_seconds == 10.0
            assert await node.call(Ready(answer.layers)) == Accepted()
            assert await node.call(BEAT) == Accepted()
            ranges.append(str(answer.layers))
        assert ranges == ["0:4", "4:10", "10:12"]
        rows = await listed(a)
        assert {str(row.layers) for row in rows} == set(ranges)
        assert all(row.serves and row.step_ms == 20.0 for row in rows)
        assert {row.addrs for row in rows} == {node.host.address.addrs for node in (a, b, c)}
        assert await listed(a, "") == rows
        assert await listed(a, "other") == []


async def test_anyone_may_ask_for_peers_and_nobody_else_is_listed(
    autojump_clock: MockClock,
) -> None:
    net = MemoryNetwork()
    async with (
        running(net, TRACKER_SEED, CONFIG) as tracker,
        calling(net, SEEDS[0], tracker) as node,
    ):
        assert await listed(node) == []


async def test_a_node_that_leaves_is_gone_at_once(autojump_clock: MockClock) -> None:
    net = MemoryNetwork()
    async with (
        running(net, TRACKER_SEED, CONFIG) as tracker,
        calling(net, SEEDS[0], tracker) as node,
    ):
        await node.register()
        assert await node.call(Deregister()) == Accepted()
        assert await listed(node) == []
        assert await node.call(Deregister()) == Accepted()


async def test_a_range_that_a_node_holds_already_stays_its_own(autojump_clock: MockClock) -> None:
    net = MemoryNetwork()
    async with (
        running(net, TRACKER_SEED, CONFIG) as tracker,
        calling(net, SEEDS[0], tracker) as node,
    ):
        held = LayerRange(10, 12)
        answer = await node.register(replace(a_registration(), wanted=held))
        assert answer == Assigned(held, 10.0)


async def test_a_refusal_leaves_the_stream_usable(autojump_clock: MockClock) -> None:
    net = MemoryNetwork()
    async with (
        running(net, TRACKER_SEED, CONFIG) as tracker,
        calling(net, SEEDS[0], tracker) as node,
    ):
        assert failed_with(await node.call(BEAT)) == "unknown_worker"
        assert failed_with(await node.call(Ready(LayerRange(0, 4)))) == "unknown_worker"
        small = replace(a_registration(), claim_mb=1)
        assert failed_with(await node.register(small)) == "claim_too_small"
        assert failed_with(await node.call(replace(a_registration(), addrs=()))) == "bad_address"
        assert isinstance(await node.register(), Assigned)


async def test_a_replayed_call_changes_nothing(autojump_clock: MockClock) -> None:
    net = MemoryNetwork()
    async with (
        running(net, TRACKER_SEED, CONFIG) as tracker,
        calling(net, SEEDS[0], tracker) as node,
    ):
        leave = node.sign(node.a_call(Deregister()))
        assert await node.ask(leave) == Accepted()
        await node.register()
        assert failed_with(await node.ask(leave)) == "call_replayed"
        assert len(await listed(node)) == 1


@pytest.mark.parametrize("skew", [-61.0, 31.0])
async def test_a_clock_that_is_off_is_told_so(skew: float, autojump_clock: MockClock) -> None:
    net = MemoryNetwork()
    async with (
        running(net, TRACKER_SEED, CONFIG) as tracker,
        calling(net, SEEDS[0], tracker) as node,
    ):
        call = node.a_call(a_registration())
        answer = await node.ask(node.sign(replace(call, created=call.created + skew)))
        assert isinstance(answer, Fail)
        assert (answer.code, answer.retry) == ("clock_skew", False)
        assert "this clock" in answer.text
        assert isinstance(await node.register(), Assigned)


async def test_a_call_of_another_peer_is_refused(autojump_clock: MockClock) -> None:
    net = MemoryNetwork()
    async with (
        running(net, TRACKER_SEED, CONFIG) as tracker,
        calling(net, SEEDS[0], tracker) as node,
        calling(net, SEEDS[1], tracker) as thief,
    ):
        await node.register()
        stolen = node.sign(node.a_call(Deregister()))
        assert failed_with(await thief.ask(stolen)) == "not_authorized"
        assert len(await listed(node)) == 1


def foreign(node: Caller) -> Message:
    payload = seal(node.a_call(Deregister()))
    return Signed(payload, Identity(SEEDS[2]).sign(PURPOSE_TRACKER, payload))


@pytest.mark.parametrize(
    ("bad", "code"),
    [
        pytest.param(foreign, "bad_signature", id="a foreign signature"),
        pytest.param(lambda node: AskStatus(), "out_of_turn", id="not a tracker's message"),
        pytest.param(lambda node: node.sign(node.a_call(AskStatus())), "out_of_turn", id="no call"),
        pytest.param(
            lambda node: node.sign(node.a_call(replace(a_registration(), shape=b"{}"))),
            "bad_frame",
            id="a shape that is none",
        ),
    ],
)
async def test_what_breaks_a_rule_ends_its_own_stream_only(
    bad: Callable[[Caller], Message], code: str, autojump_clock: MockClock
) -> None:
    net = MemoryNetwork(latency=0.01)
    async with (
        running(net, TRACKER_SEED, CONFIG) as tracker,
        calling(net, SEEDS[0], tracker) as good,
        calling(net, SEEDS[1], tracker) as wrong,
    ):
        await good.register()
        assert failed_with(await wrong.ask(bad(wrong))) == code
        with pytest.raises(PeerGone):
            await wrong.stream.receive(timeout=5)
        assert await good.call(BEAT) == Accepted()
        again = await wrong.host.open_stream(tracker.peer_id, TRACKER, timeout=5)
        wrong.stream = again
        assert isinstance(await wrong.register(), Assigned)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"\xff\xff\xff\xff", id="4 GiB announced"),
        pytest.param((MAX_TRACKER_FRAME + 1).to_bytes(4, "big"), id="a byte too long"),
        pytest.param(b"\0\0\0\2\x91\x63", id="kind 99"),
        pytest.param(b"\0\0\0\1\xc1", id="no msgpack"),
    ],
)
async def test_bytes_that_are_no_frame_disturb_nobody_else(
    data: bytes, autojump_clock: MockClock
) -> None:
    net = MemoryNetwork()
    async with (
        running(net, TRACKER_SEED, CONFIG) as tracker,
        calling(net, SEEDS[0], tracker) as good,
        calling(net, SEEDS[1], tracker) as wrong,
    ):
        await good.register()
        await wrong.stream._stream.send_all(data)
        with pytest.raises(PeerGone):
            await wrong.stream.receive(timeout=5)
        assert await good.call(BEAT) == Accepted()


async def test_a_stream_that_asks_nothing_is_finished_and_its_node_stays(
    autojump_clock: MockClock,
) -> None:
    net = MemoryNetwork()
    async with (
        running(net, TRACKER_SEED, replace(CONFIG, load_seconds=300.0)) as tracker,
        calling(net, SEEDS[0], tracker) as node,
    ):
        layers = (await node.register()).layers
        await node.call(Ready(layers))
        with pytest.raises(PeerGone):
            await node.stream.receive(timeout=310)
        assert trio.current_time() == pytest.approx(300)
        node.stream = await node.host.open_stream(tracker.peer_id, TRACKER, timeout=5)
        assert [row.status for row in await listed(node)] == ["Offline"]


async def test_a_peer_that_asks_too_fast_waits_and_nobody_else_does(
    autojump_clock: MockClock,
) -> None:
    net = MemoryNetwork()
    config = replace(CONFIG, requests_per_second=10.0, request_burst=5)
    async with (
        running(net, TRACKER_SEED, config) as tracker,
        calling(net, SEEDS[0], tracker) as hasty,
        calling(net, SEEDS[1], tracker) as other,
    ):
        began = trio.current_time()
        for _ in range(5):
            await listed(hasty)
        assert trio.current_time() == began
        for _ in range(20):
            await listed(hasty)
        assert trio.current_time() == pytest.approx(began + 2.0, abs=0.2)
        before = trio.current_time()
        await listed(other)
        assert trio.current_time() == before


def test_a_list_that_is_too_long_keeps_those_that_serve() -> None:
    row = PeerRow(
        peer_id=Identity(SEEDS[0]).peer_id,
        model=ModelId("m"),
        contract="c",
        layers=LayerRange(0, 1),
        total_layers=1,
        status=NodeStatus.OFFLINE.value,
        addrs=("/ip4/10.0.0.1/tcp/1",),
        device="cpu",
        dtype="f32",
        queue_depth=0,
        step_ms=0.0,
    )
    rows = [row] * 50 + [replace(row, status=NodeStatus.HEALTHY.value)]
    limit = len(encode_rows(rows)) // 2
    data = list_of(rows, limit)
    assert len(data) <= limit
    kept = decode_rows(data)
    assert len(kept) > 20
    assert kept[0].serves
    assert list_of(rows, 2) == b"[]"
