"""Nodes that are told to hold other layers, while they load, serve, and are in the middle of it."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from tessella.core.errors import PeerClosed, RemoteFailure
from tessella.core.layers import LayerRange
from tessella.core.messages import HOP, Accepted, Fail, Open
from tessella.engine.shard import Shard, load_shard
from tessella.worker import loading as loading_module
from tessella.worker.testing import BEAT, Hub

OpenMesh = Callable[..., Any]
PROMPT = "a prompt of several chunks, " * 3
FRONT, BACK, WHOLE = LayerRange(0, 3), LayerRange(3, 6), LayerRange(0, 6)


@dataclass
class Loads:
    """What was loaded, and what of it was still there when the next load began."""

    shards: list[weakref.ref[Shard]] = field(default_factory=list)
    left: list[int] = field(default_factory=list)

    def load(self, *args: Any, **options: Any) -> Shard:
        self.left.append(sum(shard() is not None for shard in self.shards))
        shard = load_shard(*args, **options)
        self.shards.append(weakref.ref(shard))
        return shard


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> Loads:
    loads = Loads()
    monkeypatch.setattr(loading_module, "load_shard", loads.load)
    return loads


def ways(hub: Hub, node: Any) -> list[str]:
    return hub.nodes[node.identity.peer_id].ways


async def settled(hub: Hub, node: Any, way: str, within: float) -> None:
    end = trio.current_time() + within
    while ways(hub, node)[-1] != way:
        assert trio.current_time() < end, ways(hub, node)
        await trio.sleep(0.05)


async def refused_as(mesh: Any, code: str, node: Any, **asked: Any) -> RemoteFailure:
    with pytest.raises(RemoteFailure) as caught:
        await mesh.ask("hello", at=node, **asked)
    assert (caught.value.code, caught.value.retry) == (code, True)
    return caught.value


@pytest.mark.parametrize("pushed", [True, False], ids=["pushed", "by heartbeat"])
async def test_a_node_without_sessions_moves_at_once(
    open_hub: OpenMesh, autojump_clock: MockClock, loads: Loads, pushed: bool
) -> None:
    async with open_hub([(0, 3), (0, 3)]) as (mesh, hub):
        _, node = mesh.nodes
        node.compute.pace = 0.1
        started = trio.current_time()
        if pushed:
            assert await hub.push(node.address, BACK) == Accepted()
        else:
            hub.wants(node.identity.peer_id, BACK)
        await settled(hub, node, "Healthy 3:6", within=1.0 if pushed else BEAT + 1.0)
        assert trio.current_time() - started <= (0.4 if pushed else BEAT + 0.4)
        # Draining takes no time here, and may be over before it is said.
        assert [way for way in ways(hub, node) if way != "Draining 0:3"] == [
            "PendingLoad 0:3",
            "Healthy 0:3",
            "PendingLoad 3:6",
            "Healthy 3:6",
        ]
        status = await mesh.status(node)
        assert (status["status"], status["layer_range"]) == ("Healthy", [3, 6])
        assert status["moving_to"] is None
        assert {name.split(".")[2] for name in _layers(status)} == {"3", "4", "5"}
        assert loads.left == [0, 1, 1], "of the two first, one is gone when the third is loaded"
        node.compute.pace = 0.0
        answer = await mesh.ask(PROMPT, max_tokens=5)
        assert answer.chain()[1] == (node.identity.peer_id, 3, 6)


def _layers(status: dict[str, Any]) -> list[str]:
    return [one["name"] for one in status["tensors"] if ".layers." in one["name"]]


async def test_a_moved_node_gives_the_tokens_that_any_split_gives(
    open_hub: OpenMesh, autojump_clock: MockClock
) -> None:
    async with open_hub([(0, 3), (3, 6)]) as (mesh, hub):
        reference = await mesh.ask(PROMPT, max_tokens=8)
        front, back = mesh.nodes
        await hub.push(back.address, LayerRange(2, 6))
        await trio.sleep(3.0)
        assert (await mesh.ask(PROMPT, max_tokens=8)).ids == reference.ids
        await hub.push(front.address, LayerRange(0, 2))
        await settled(hub, front, "Healthy 0:2", within=1.0)
        # At once: what the entry was told of itself is older than what it holds.
        answer = await mesh.ask(PROMPT, max_tokens=8)
        assert answer.ids == reference.ids
        assert [layers for _, *layers in answer.chain()] != [
            layers for _, *layers in reference.chain()
        ]


async def test_the_range_that_is_held_already_changes_nothing(
    open_hub: OpenMesh, autojump_clock: MockClock
) -> None:
    async with open_hub([(0, 6)]) as (mesh, hub):
        (node,) = mesh.nodes
        assert await hub.push(node.address, WHOLE) == Accepted()
        await trio.sleep(2 * BEAT)
        assert ways(hub, node) == ["PendingLoad 0:6", "Healthy 0:6"]


async def test_old_sessions_may_finish_and_none_begins_meanwhile(
    open_hub: OpenMesh,
    an_open: Callable[..., Open],
    autojump_clock: MockClock,
    loads: Loads,
) -> None:
    async with open_hub([(0, 3), (3, 6)], drain_seconds=30.0) as (mesh, hub):
        _, tail = mesh.nodes
        reference = await mesh.ask(PROMPT, max_tokens=20)
        tail.compute.pace = 0.5
        answers: list[Any] = []

        async def finish() -> None:
            answers.append(await mesh.ask(PROMPT, max_tokens=20))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(finish)
            await trio.sleep(2.0)
            assert await hub.push(tail.address, WHOLE) == Accepted()
            await settled(hub, tail, "Draining 3:6", within=0.5)
            status = await mesh.status(tail)
            assert (status["layer_range"], status["moving_to"]) == ([3, 6], [0, 6])
            said = await refused_as(mesh, "model_unavailable", tail)
            assert "moves from layers 3:6 to 0:6" in str(said)
            await _refused_at_the_stage(mesh, tail, an_open)
            assert not answers, "the session was over before its neighbour moved"
        assert answers[0].ids == reference.ids
        await settled(hub, tail, "Healthy 0:6", within=5.0)
        assert loads.left[-1] == 1, "the entry's own"


async def _refused_at_the_stage(mesh: Any, node: Any, an_open: Callable[..., Open]) -> None:
    stream = await mesh.client.open_stream(node.identity.peer_id, HOP, timeout=5)
    peers = [mesh.client.address, node.address]
    await stream.send(an_open(peers, 1, contract=mesh.contract))
    failed = await stream.receive(5)
    assert isinstance(failed, Fail)
    assert (failed.code, failed.retry) == ("model_unavailable", True)
    assert "moves from layers" in failed.text
    await stream.reset()


@pytest.mark.parametrize("moved", [0, 1, 2], ids=["entry", "middle", "tail"])
@pytest.mark.parametrize("pace", [1.0, 600.0], ids=["slow", "stuck in a chunk"])
async def test_old_sessions_end_with_one_definite_error_when_their_time_is_up(
    open_hub: OpenMesh, autojump_clock: MockClock, loads: Loads, moved: int, pace: float
) -> None:
    async with open_hub([(0, 2), (2, 4), (4, 6)], drain_seconds=12.0) as (mesh, hub):
        node = mesh.nodes[moved]
        for each in mesh.nodes:
            each.compute.pace = pace
        errors: list[RemoteFailure] = []

        async def ask() -> None:
            with pytest.raises(RemoteFailure) as caught:
                await mesh.ask(PROMPT, max_tokens=150)
            errors.append(caught.value)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            await trio.sleep(3.0)
            assert (await mesh.status(node))["kv_bytes"] > 0
            started = trio.current_time()
            await hub.push(node.address, WHOLE)
        assert 11.5 <= trio.current_time() - started <= 12.5
        assert [(error.code, error.retry) for error in errors] == [("model_unavailable", True)]
        assert "moves from layers" in str(errors[0])
        for each in mesh.nodes:
            each.compute.pace = 0.0
        await trio.sleep(1.0)
        for each in mesh.nodes:
            status = await mesh.status(each)
            assert (status["sessions"], status["kv_bytes"]) == ([], 0)
            assert status["peer_failures"] == {}, "nobody failed: it was told to move"
        await settled(hub, node, "Healthy 0:6", within=pace + 5.0)
        assert loads.left[-1] == 2, "the other two"


async def test_a_parked_session_does_not_keep_a_node_from_moving(
    open_hub: OpenMesh,
    an_open: Callable[..., Open],
    autojump_clock: MockClock,
    loads: Loads,
) -> None:
    async with open_hub([(0, 2), (2, 4), (4, 6)], hop_timeout=60.0) as (mesh, hub):
        tail = mesh.nodes[2]
        stream = await _parked(mesh, tail, an_open)
        assert [one["state"] for one in (await mesh.status(tail))["sessions"]] == ["parked"]
        await hub.push(tail.address, WHOLE)
        await settled(hub, tail, "Healthy 0:6", within=0.5)
        status = await mesh.status(tail)
        assert (status["sessions"], status["kv_bytes"], loads.left[-1]) == ([], 0, 2)
        await stream.reset()


async def _parked(mesh: Any, tail: Any, an_open: Callable[..., Open]) -> Any:
    await mesh.client.connect(tail.address, timeout=5)
    stream = await mesh.client.open_stream(tail.identity.peer_id, HOP, timeout=5)
    peers = [mesh.musivum.address, mesh.client.address, tail.address]
    opened = an_open(peers, 2, contract=mesh.contract)
    await stream.send(opened)
    await trio.sleep(0.1)
    lost = PeerClosed("the connection ended")
    mesh.net.end(mesh.client.address.peer_id, tail.identity.peer_id, lost)
    await trio.sleep(0.1)
    return stream


async def test_a_range_that_is_wanted_again_is_kept_and_no_session_pays_for_it(
    open_hub: OpenMesh, autojump_clock: MockClock, loads: Loads
) -> None:
    async with open_hub([(0, 6)], drain_seconds=60.0) as (mesh, hub):
        (node,) = mesh.nodes
        node.compute.pace = 1.0
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(mesh.ask, PROMPT, max_tokens=20))
            await trio.sleep(3.0)
            await hub.push(node.address, FRONT)
            await settled(hub, node, "Draining 0:6", within=0.5)
            await hub.push(node.address, WHOLE)
            await settled(hub, node, "Healthy 0:6", within=0.5)
            await mesh.ask("hello", max_tokens=1)
        assert loads.left == [0]
        assert ways(hub, node)[-2:] == ["Draining 0:6", "Healthy 0:6"]


async def test_a_node_that_insists_stays_and_says_why(
    open_hub: OpenMesh, autojump_clock: MockClock
) -> None:
    async with open_hub([(0, 6)], layers=WHOLE) as (mesh, hub):
        (node,) = mesh.nodes
        failed = await hub.push(node.address, FRONT)
        assert isinstance(failed, Fail)
        assert (failed.code, failed.retry) == ("refused", False)
        assert "started with layers 0:6" in failed.text
        hub.wants(node.identity.peer_id, FRONT)
        await trio.sleep(3 * BEAT)
        assert ways(hub, node) == ["PendingLoad 0:6", "Healthy 0:6"]
        assert (await mesh.ask("hello", max_tokens=2)).ids


async def test_layers_beyond_the_model_are_refused(
    open_hub: OpenMesh, autojump_clock: MockClock
) -> None:
    async with open_hub([(0, 6)]) as (mesh, hub):
        failed = await hub.push(mesh.nodes[0].address, LayerRange(4, 9))
        assert isinstance(failed, Fail)
        assert failed.code == "refused"
        assert "4:9" in failed.text


async def test_musivum_that_was_started_again_learns_the_range_that_is_held(
    open_hub: OpenMesh, autojump_clock: MockClock
) -> None:
    async with open_hub([(0, 6)]) as (mesh, hub):
        (node,) = mesh.nodes
        await hub.push(node.address, FRONT)
        await settled(hub, node, "Healthy 0:3", within=1.0)
        hub.nodes.clear()
        hub.next_range = BACK
        await trio.sleep(BEAT + 0.5)
        assert ways(hub, node) == ["PendingLoad 0:3", "Healthy 0:3"]
