"""Loads of layers that are long, given up, told of and failing, and what others hear of them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from p2p.dht import BEAT as SWARM_BEAT
from p2p.testing import MemoryNetwork
from tessella.client import ask_swarm
from tessella.core.errors import BadWeights
from tessella.core.identity import Identity
from tessella.core.ids import ModelId
from tessella.core.layers import LayerRange
from tessella.core.messages import Accepted, Announce, Deregister, Ready
from tessella.engine.compute import open_compute
from tessella.engine.shard import Shard, load_shard
from tessella.worker import loading as loading_module
from tessella.worker import membership
from tessella.worker.config import WorkerConfig
from tessella.worker.ground import Ground
from tessella.worker.loading import Loader, Note
from tessella.worker.node import run_node
from tessella.worker.state import Loaded
from tessella.worker.testing import BEAT, Hub

OpenMesh = Callable[..., Any]
FRONT, BACK, WHOLE = LayerRange(0, 3), LayerRange(3, 6), LayerRange(0, 6)


@dataclass
class Loads:
    """How loads go from now on, and the ranges of those that were read to their end."""

    seconds: float = 0.0
    """What one takes before anything is read, of virtual time."""
    error: Exception | None = None
    ranges: list[LayerRange] = field(default_factory=list)


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> Loads:
    loads = Loads()
    load = Loader.load

    async def slowly(loader: Loader, layers: LayerRange, note: Note) -> Loaded:
        await trio.sleep(loads.seconds)
        if loads.error is not None:
            raise loads.error
        loaded = await load(loader, layers, note)
        loads.ranges.append(layers)
        return loaded

    monkeypatch.setattr(Loader, "load", slowly)
    return loads


def ways(hub: Hub, node: Any) -> list[str]:
    return hub.nodes[node.identity.peer_id].ways


async def settled(hub: Hub, node: Any, way: str, within: float) -> None:
    end = trio.current_time() + within
    while ways(hub, node)[-1] != way:
        assert trio.current_time() < end, ways(hub, node)
        await trio.sleep(0.05)


async def test_another_assignment_during_a_load_replaces_it(
    open_hub: OpenMesh, autojump_clock: MockClock, loads: Loads
) -> None:
    async with open_hub([(0, 6)]) as (mesh, hub):
        (node,) = mesh.nodes
        loads.seconds = 60.0
        await hub.push(node.address, FRONT)
        await trio.sleep(30.0)
        assert ways(hub, node)[-1] == "PendingLoad 0:3"
        status = await mesh.status(node)
        assert (status["layer_range"], status["tensors"], status["kv_bytes"]) == ([0, 3], [], 0)
        await hub.push(node.address, BACK)
        started = trio.current_time()
        await trio.sleep(2 * BEAT)
        assert ways(hub, node)[-1] == "PendingLoad 0:3", "a musivum that has yet to be told"
        await settled(hub, node, "Healthy 3:6", within=60.0)
        assert trio.current_time() - started >= 60.0
        assert "Healthy 0:3" not in ways(hub, node)
        assert loads.ranges == [WHOLE, BACK], "the one that was replaced was never read to its end"
        ready = [said.layers for _, said in hub.heard if isinstance(said, Ready)]
        assert ready == [WHOLE, BACK]
        assert (await mesh.status(node))["layer_range"] == [3, 6]


async def test_a_load_that_fails_after_a_move_ends_the_node_and_leaves_it_listed_nowhere(
    open_hub: OpenMesh, autojump_clock: MockClock, loads: Loads
) -> None:
    with pytest.raises((BadWeights, ExceptionGroup)) as caught:
        async with open_hub([(0, 6)]) as (mesh, hub):
            loads.error = BadWeights("model.safetensors is torn")
            left = hub.nodes
            await hub.push(mesh.nodes[0].address, FRONT)
            await trio.sleep(5.0)
    assert "is torn" in repr(caught.value)
    assert left == {}


@pytest.mark.parametrize("moved", [False, True], ids=["first load", "after a move"])
async def test_a_node_that_is_stopped_while_it_loads_says_goodbye_at_once(
    open_hub: OpenMesh,
    autojump_clock: MockClock,
    loads: Loads,
    moved: bool,
) -> None:
    async with open_hub([(0, 6)]) as (mesh, hub):
        (node,) = mesh.nodes
        loads.seconds = 1000.0
        if moved:
            await hub.push(node.address, FRONT)
            await settled(hub, node, "PendingLoad 0:3", within=1.0)
        else:
            run = partial(mesh._run, task_status=trio.TASK_STATUS_IGNORED)
            mesh.nursery.start_soon(run, Identity(b"x" * 32), FRONT, {})
            await trio.sleep(1.0)
            node = mesh.nodes[-1]
        started = trio.current_time()
        node.stop.set()
        await trio.sleep(0.2)
        assert node.identity.peer_id not in hub.nodes
        assert trio.current_time() - started < 1.0
        await trio.sleep(3 * BEAT)
        said = [one for peer, one in hub.heard if peer == node.identity.peer_id]
        assert said[-1] == Deregister(), "and no more"


async def test_heartbeats_say_how_far_a_load_is_however_long_it_takes(
    open_hub: OpenMesh, autojump_clock: MockClock, loads: Loads
) -> None:
    async with open_hub([(0, 6)]) as (mesh, hub):
        (node,) = mesh.nodes
        loads.seconds = 100.0
        await hub.push(node.address, FRONT)
        await trio.sleep(99.0)
        said = [one for _, one in hub.heard if isinstance(one, Announce)]
        loading = [one for one in said if one.status == "PendingLoad"]
        assert 19 <= len(loading) <= 21
        await settled(hub, node, "Healthy 0:3", within=2.0)
        await trio.sleep(BEAT)
        last = hub.heard[-1][1]
        assert isinstance(last, Announce)
        assert last.loaded_bytes == last.total_bytes > 0


async def test_a_load_on_a_real_thread_is_told_as_it_goes_and_given_up_between_two_tensors(
    toy_weights: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Real time: a beat of 0.1 s, and a load that waits for the test."""
    monkeypatch.setattr(membership, "MIN_HEARTBEAT", 0.02)
    monkeypatch.setattr("tessella.worker.testing.BEAT", 0.02)
    gate, held = threading.Event(), threading.Event()
    loaded: list[LayerRange] = []

    def slow(checkpoint: Any, layers: LayerRange, **options: Any) -> Shard:
        progress = options.pop("on_progress")

        def wait(done: int, total: int) -> None:
            progress(done, total)
            if layers == WHOLE:
                held.set()
                gate.wait(10.0)

        shard = load_shard(checkpoint, layers, on_progress=wait, **options)
        loaded.append(layers)
        return shard

    monkeypatch.setattr(loading_module, "load_shard", slow)
    net, ready, events = MemoryNetwork(), trio.Event(), []

    def tell(event: dict[str, Any]) -> None:
        events.append(event)
        if event["event"] == "ready":
            ready.set()

    me, musivum = Identity(b"n" * 32), Identity(b"m" * 32)
    with trio.fail_after(20.0):
        async with (
            net.host(musivum) as theirs,
            net.host(me) as host,
            open_compute() as compute,
            trio.open_nursery() as nursery,
        ):
            hub = Hub(theirs, musivum, Ground(me, host, compute).clock)
            hub.next_range = WHOLE
            config = WorkerConfig(
                musivum=(theirs.address,),
                model=ModelId("toy"),
                weights=toy_weights,
                claim_mb=64,
                device="cpu",
                context=64,
            )
            nursery.start_soon(run_node, config, Ground(me, host, compute), trio.Event(), tell)
            await trio.to_thread.run_sync(held.wait)
            await _announced(hub, 5)
            assert await hub.push(host.address, FRONT) == Accepted()
            gate.set()
            await ready.wait()
            assert loaded == [FRONT]
            assert hub.nodes[me.peer_id].ways[-1] == "Healthy 0:3"
            nursery.cancel_scope.cancel()
    assert [event["event"] for event in events if event["event"] != "loading"] == [
        "assigned",
        "assigned",
        "ready",
    ]


async def _announced(hub: Hub, times: int) -> None:
    """Heartbeats that say a part of the load, while the compute thread stands still."""
    while True:
        said = [one for _, one in hub.heard if isinstance(one, Announce)]
        if sum(0 < one.loaded_bytes < one.total_bytes for one in said) >= times:
            assert {one.status for one in said} == {"PendingLoad"}
            return
        await trio.sleep(0.005)


async def test_the_swarm_hears_of_a_move_too_and_of_nothing_that_is_not_loaded(
    open_hub: OpenMesh, autojump_clock: MockClock, loads: Loads
) -> None:
    async with open_hub([(0, 3)], kademlia=True) as (mesh, hub):
        (first,) = mesh.nodes
        met = {"layers": None, "kademlia": True, "bootstrap": (first.address,)}
        node = await mesh.start(FRONT, b"n" * 32, **met)
        await trio.sleep(1.0)
        loads.seconds = 3 * SWARM_BEAT
        await hub.push(node.address, BACK)

        async def said() -> str:
            rows = await ask_swarm(mesh.client, [first.address], "toy", clock=hub._clock)
            (row,) = (row for row in rows if row.peer_id == node.identity.peer_id)
            return f"{row.status} {row.layers}"

        await trio.sleep(2.0)
        assert await said() == "PendingLoad 3:6"
        await trio.sleep(2 * SWARM_BEAT)
        assert await said() == "PendingLoad 3:6"
        await settled(hub, node, "Healthy 3:6", within=3 * SWARM_BEAT)
        await trio.sleep(2.0)
        assert await said() == "Healthy 3:6"
