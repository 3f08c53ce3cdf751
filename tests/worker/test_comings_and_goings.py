"""Nodes, musivums and passers-by that come late, say nothing, die or forget: who is listed then."""

from __future__ import annotations

import math
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from p2p import listening
from p2p.dht import DhtSettings, open_dht
from p2p.kad_streams import converse
from p2p.kad_wire import KadMessage, Kind
from p2p.listening import Announcement
from p2p.streams import FrameStream
from p2p.testing import MemoryHost, MemoryNetwork
from p2p.testing_dht import numbered, sample_record
from tessella import client
from tessella.client import ask_peers, ask_status
from tessella.core.addresses import PeerAddress
from tessella.core.errors import BadWeights, RemoteFailure, TessellaError
from tessella.core.exits import exit_code
from tessella.core.identity import Identity
from tessella.core.ids import ModelId
from tessella.core.messages import TRACKER
from tessella.core.records import mesh_key, model_key, node_key
from tessella.engine.compute import open_compute
from tessella.keys import load_key, load_or_create_key
from tessella.worker.config import WorkerConfig
from tessella.worker.ground import Ground
from tessella.worker.loading import Loader, Note
from tessella.worker.node import run_node
from tests.worker.conftest import wall_clock
from tests.worker.split import (
    BEAT,
    OFFLINE_SECONDS,
    SHAPE,
    TWO_LAYERS,
    Split,
    split,
    write_split,
)

ask_swarm = partial(client.ask_swarm, clock=wall_clock)
RANGES = ["Healthy 0:2", "Healthy 2:4", "Healthy 4:6"]


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_split(tmp_path_factory.mktemp("split"))


async def test_a_musivum_that_forgot_everybody_lists_a_whole_chain_after_a_beat(
    weights: Path, autojump_clock: MockClock
) -> None:
    async with split(weights) as mesh:
        nodes = [await mesh.join() for _ in range(3)]
        before = await mesh.hears()
        await mesh.restart()
        assert mesh.books.roster.nodes() == []
        await trio.sleep(BEAT + 1.0)
        assert [*map(mesh.listed, nodes)] == RANGES
        assert await mesh.health() == "healthy"
        assert (await mesh.hears()).ids == before.ids


async def test_a_node_is_never_offline_while_its_compute_thread_is_blocked(
    weights: Path, autojump_clock: MockClock
) -> None:
    """The thread is a real one. Time is virtual, and passes as usual while the shard is loaded."""
    autojump_clock.autojump_threshold, autojump_clock.rate = math.inf, 1.0
    let_go, ready, us = threading.Event(), trio.Event(), Identity(b"n" * 32)

    def tell(event: dict[str, Any]) -> None:
        if event["event"] == "ready":
            ready.set()

    async with (
        split(weights) as mesh,
        mesh.net.host(us) as host,
        open_compute() as compute,
        trio.open_nursery() as nursery,
    ):
        config = WorkerConfig(
            musivum=(mesh.musivum.address,),
            model=ModelId("toy"),
            weights=weights,
            claim_mb=TWO_LAYERS,
            device="cpu",
            context=256,
            slots=2,
        )
        ground = Ground(us, host, compute, wall_clock)
        nursery.start_soon(run_node, config, ground, trio.Event(), tell)
        with trio.fail_after(10.0):
            await ready.wait()
        nursery.start_soon(compute.run, lambda _: let_go.wait(10.0))
        autojump_clock.rate, autojump_clock.autojump_threshold = 0.0, 0.0
        statuses = set()
        for _ in range(20):
            await trio.sleep(BEAT / 2)
            statuses.add(mesh.books.roster.node(us.peer_id).row.status)
        let_go.set()
        assert statuses == {"Healthy"}
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("way", ["fails", "stands still", "dies"])
async def test_what_a_node_did_not_get_to_load_is_given_to_the_next(
    weights: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    load = Loader.load

    async def as_it_goes(loader: Loader, layers: Any, note: Note) -> Any:
        if layers.start == 2 and len(mesh.nodes) == 2:
            note(1000, 2000)
            await trio.sleep(10.0)
            if way == "fails":
                raise BadWeights("model.safetensors is torn")
            await trio.sleep_forever()
        return await load(loader, layers, note)

    async def doomed() -> None:
        chosen = {"layers": None, "claim_mb": TWO_LAYERS}
        with suppress(BadWeights):
            await mesh._run(
                Identity(b"d" * 32), SHAPE.whole, chosen, task_status=trio.TASK_STATUS_IGNORED
            )

    monkeypatch.setattr(Loader, "load", as_it_goes)
    async with split(weights, stall_seconds=40.0, heal_seconds=0.0) as mesh:
        first = await mesh.join()
        mesh.nursery.start_soon(doomed)
        await trio.sleep(2.0)
        dead = mesh.nodes[1]
        assert mesh.listed(dead) == "PendingLoad 2:4"
        if way == "dies":
            mesh.crash(dead)
        within = {"fails": 11.0, "stands still": 42.0, "dies": OFFLINE_SECONDS}[way]
        await mesh.until(lambda: mesh.listed(dead) in ("", "Offline 2:4"), within=within)
        others = [await mesh.join(seed=seed * 32) for seed in (b"x", b"y")]
        assert [*map(mesh.listed, (first, *others))] == RANGES
        assert (await mesh.hears()).ids


@pytest.mark.slow
async def test_who_is_gone_is_nowhere_healthy_again_though_its_records_are_replayed(
    weights: Path, autojump_clock: MockClock
) -> None:
    async with split(weights, heal_seconds=0.0) as mesh:
        nodes = [await mesh.join(kademlia=True) for _ in range(3)]
        await trio.sleep(2.0)
        dead = nodes.pop()
        key = node_key(dead.identity.peer_id)
        (answer,) = await converse(
            mesh.client, nodes[0].address, [KadMessage(Kind.GET_VALUE, key)], 5
        )
        assert answer.value
        replay = KadMessage(Kind.PUT_VALUE, key, answer.value)

        async def replay_it() -> None:
            everywhere = [mesh.musivum.address, *(node.address for node in nodes)]
            while True:
                for peer in everywhere:
                    with suppress(TessellaError):
                        await converse(evil, peer, [replay], 5)
                await trio.sleep(7.0)

        async with mesh.net.host(b"e" * 32) as evil, trio.open_nursery() as nursery:
            nursery.start_soon(replay_it)
            mesh.crash(dead)
            await trio.sleep(2 * BEAT + 60.0)
            for _ in range(30):
                await trio.sleep(20.0)
                for rows in (
                    await ask_peers(mesh.client, mesh.musivum.address),
                    await ask_swarm(mesh.client, [mesh.musivum.address]),
                ):
                    healthy = {row.peer_id for row in rows if row.serves}
                    assert healthy == {node.identity.peer_id for node in nodes}
            nursery.cancel_scope.cancel()
        assert mesh.listed(dead) == "", "forgotten after ten minutes"


async def says_nothing(stream: FrameStream) -> None:
    await trio.sleep_forever()


@pytest.mark.parametrize("takes_connections", [True, False])
async def test_a_musivum_that_says_nothing_keeps_no_node_from_the_next_one(
    weights: Path, autojump_clock: MockClock, takes_connections: bool
) -> None:
    async with split(weights) as mesh, mesh.net.host(b"s" * 32) as silent:
        silent.serve(TRACKER, says_nothing, streams=99, per_peer=99)
        started = trio.current_time()
        both = (silent.address, mesh.musivum.address)
        if not takes_connections:
            mesh.net.silence(Identity(b"\1" * 32).peer_id, silent.address.peer_id)
        node = await mesh.begin(musivum=both)
        waited = await ask_status(mesh.client, node.address)
        assert (waited["status"], waited["layer_range"]) == ("PendingLoad", None)
        await mesh.until(lambda: node.is_started, within=16.0)
        assert trio.current_time() - started > 4.0, "the silent one was asked first"
        assert mesh.listed(node) == "Healthy 0:2"
        await trio.sleep(6 * BEAT)
        assert mesh.listed(node) == "Healthy 0:2"
        assert (await mesh.status(node))["mesh_errors"] == 0


async def pass_by(mesh: Split, number: int) -> None:
    """A peer that joins the swarm at musivum, says that it serves the model, and dies."""
    who = numbered(number)
    settings = DhtSettings(bootstrap=(mesh.musivum.address,), seed=number)
    async with (
        mesh.net.host(who) as host,
        open_dht(host, who, settings, clock=wall_clock) as dht,
    ):
        assert await dht.joined(1.0)
        await dht.provide([model_key("toy"), mesh_key()])
        await dht.publish(sample_record(host, "toy"))


@pytest.mark.parametrize("many", [30, pytest.param(200, marks=pytest.mark.slow)])
async def test_a_newcomer_finds_a_worker_at_once_after_a_crowd_passed_by(
    weights: Path, autojump_clock: MockClock, many: int
) -> None:
    async with split(weights) as mesh:
        worker = await mesh.join(kademlia=True)
        for number in range(100, 100 + many):
            await pass_by(mesh, number)
        started = trio.current_time()
        async with mesh.net.host(b"z" * 32) as newcomer:
            rows = await ask_swarm(newcomer, [mesh.musivum.address], "toy")
            assert trio.current_time() - started < 2.0
            assert worker.identity.peer_id in {row.peer_id for row in rows if row.serves}
            status = await ask_status(newcomer, worker.address)
            assert status["layer_range"] == [0, 2]
            assert trio.current_time() - started < 2.0


class Announcing(MemoryNetwork):
    """Hosts that tell what a real one would which listens everywhere, on these interfaces."""

    def __init__(self, announcement: Announcement) -> None:
        super().__init__(latency=0.001)
        self.announcement = announcement

    @asynccontextmanager
    async def _host(self, identity: Identity) -> AsyncIterator[MemoryHost]:
        async with super()._host(identity) as host:
            port = 4000 + len(self.hosts)
            told = self.announcement.of([f"/ip4/0.0.0.0/tcp/{port}"])
            host.address = PeerAddress(identity.peer_id, told)
            yield host


@pytest.fixture
def interfaces(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """A function that gives this machine others."""
    return lambda *found: monkeypatch.setattr(listening, "get_network_addrs", lambda _: [*found])


async def test_a_node_that_listens_everywhere_is_listed_where_others_can_dial_it(
    weights: Path, autojump_clock: MockClock, interfaces: Callable[..., None]
) -> None:
    interfaces("127.0.0.1", "10.0.0.5", "169.254.7.7", "8.8.4.4")
    net = Announcing(Announcement(allow_private=False))
    async with split(weights, net=net, allow_private_addrs=False) as mesh:
        await mesh.join(kademlia=True, allow_private=False)
        await trio.sleep(2.0)
        rows = await ask_peers(mesh.client, mesh.musivum.address)
        records = await ask_swarm(mesh.client, [mesh.musivum.address])
        for (row,) in (rows, records):
            assert [addr.split("/")[2] for addr in row.addrs] == ["8.8.4.4"]


async def test_a_node_that_nobody_could_dial_is_refused_with_one_line(
    weights: Path, autojump_clock: MockClock, interfaces: Callable[..., None]
) -> None:
    interfaces("127.0.0.1", "10.0.0.5")
    net = Announcing(Announcement())
    async with split(weights, net=net, allow_private_addrs=False) as mesh:
        run = partial(mesh._run, task_status=trio.TASK_STATUS_IGNORED)
        with pytest.raises(RemoteFailure) as caught:
            await run(Identity(b"n" * 32), SHAPE.whole, {"layers": None, "claim_mb": TWO_LAYERS})
        assert (caught.value.code, exit_code(caught.value)) == ("bad_address", 1)
        assert "allow_private_addrs" in str(caught.value)
        assert "\n" not in str(caught.value)
        assert await ask_peers(mesh.client, mesh.musivum.address) == []


async def test_a_node_with_one_key_is_the_same_in_a_public_mesh_and_in_a_private_one(
    weights: Path, autojump_clock: MockClock, tmp_path: Path
) -> None:
    key = tmp_path / "node.key"
    shown = load_or_create_key(key).peer_id
    for allow in (None, (shown,)):
        async with split(weights, allow=allow) as mesh:
            await mesh.join(seed=key.read_bytes())
            (row,) = await ask_peers(mesh.client, mesh.musivum.address)
            assert row.peer_id == shown
    assert load_key(key).peer_id == shown
