"""The life of a node: joining, loading, serving, leaving, and dying of something."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from musivum.app import serve
from musivum.store.memory import MemoryStore
from musivum.testing import QUIET
from p2p.testing import MemoryNetwork
from tessella.client import ask_peers, ask_status
from tessella.core import tensors
from tessella.core.addresses import PeerAddress
from tessella.core.errors import (
    BadWeights,
    LocalError,
    PeerUnreachable,
    RemoteFailure,
)
from tessella.core.exits import exit_code
from tessella.core.identity import Identity
from tessella.core.ids import ModelId
from tessella.core.layers import LayerRange
from tessella.core.messages import COMPLETE, Complete, Fail
from tessella.engine.checkpoint import Checkpoint
from tessella.engine.compute import open_compute
from tessella.engine.weights import open_checkpoint
from tessella.worker import loading as loading_module
from tessella.worker import node as node_module
from tessella.worker.config import WorkerConfig
from tessella.worker.ground import Ground
from tessella.worker.node import run_node
from tessella.worker.stage import Compute

OpenMesh = Callable[..., Any]
MUSIVUM, NODE = Identity(b"m" * 32), Identity(b"n" * 32)


@pytest.fixture
def config(toy_weights: Path) -> WorkerConfig:
    nowhere = PeerAddress(MUSIVUM.peer_id, ("/ip4/10.9.9.9/tcp/1",))
    return WorkerConfig(
        musivum=(nowhere,),
        model=ModelId("toy"),
        weights=toy_weights,
        claim_mb=64,
        device="cpu",
        context=256,
        slots=2,
        layers=LayerRange(0, 6),
    )


@asynccontextmanager
async def a_musivum(net: MemoryNetwork, **settings: Any) -> AsyncIterator[PeerAddress]:
    """A musivum until the context is left; the same again is one without a memory."""
    chosen = replace(QUIET, **{"min_vram_mb": 0, "heartbeat_seconds": 5.0, **settings})
    async with net.host(MUSIVUM) as host, trio.open_nursery() as nursery:
        await nursery.start(
            partial(serve, host, MUSIVUM, chosen, store=MemoryStore(), clock=time.time)
        )
        yield host.address
        nursery.cancel_scope.cancel()


async def run(
    net: MemoryNetwork, config: WorkerConfig, compute: Compute, stop: trio.Event | None = None
) -> list[dict[str, Any]]:
    """A node from start to end; the events of its life."""
    events: list[dict[str, Any]] = []
    async with net.host(NODE) as host:
        ground = Ground(NODE, host, compute)
        await run_node(config, ground, trio.Event() if stop is None else stop, events.append)
    return events


async def test_a_node_without_a_musivum_ends_with_a_reason_to_try_later(
    config: WorkerConfig, inline_compute: Compute, autojump_clock: MockClock
) -> None:
    with pytest.raises(PeerUnreachable, match=MUSIVUM.peer_id) as caught:
        await run(MemoryNetwork(), config, inline_compute)
    assert exit_code(caught.value) == 75


@pytest.mark.parametrize(
    ("settings", "changes", "code", "text"),
    [
        ({"min_vram_mb": 1000}, {}, "claim_too_small", "1000 MB"),
        ({}, {"layers": LayerRange(0, 6), "claim_mb": 1}, "claim_too_small", "0:6"),
        ({}, {"layers": LayerRange(4, 9)}, "bad_frame", "4:9"),
    ],
    ids=["claim below the floor", "range over the claim", "range beyond the model"],
)
async def test_a_node_that_is_refused_ends_with_one_clear_error(
    config: WorkerConfig,
    inline_compute: Compute,
    autojump_clock: MockClock,
    settings: dict[str, Any],
    changes: dict[str, Any],
    code: str,
    text: str,
) -> None:
    net = MemoryNetwork()
    async with a_musivum(net, **settings) as musivum:
        with pytest.raises(RemoteFailure, match=text) as caught:
            await run(net, replace(config, musivum=(musivum,), **changes), inline_compute)
        assert caught.value.code == code
        assert exit_code(caught.value) == 1


async def test_weights_that_cannot_be_read_are_named(
    config: WorkerConfig, inline_compute: Compute, tmp_path: Path
) -> None:
    with pytest.raises(BadWeights, match=str(tmp_path)):
        await run(MemoryNetwork(), replace(config, weights=tmp_path), inline_compute)


async def test_a_node_tells_its_life_and_leaves_when_it_is_told_to(
    config: WorkerConfig, inline_compute: Compute, autojump_clock: MockClock
) -> None:
    net, stop, found = MemoryNetwork(), trio.Event(), []
    async with a_musivum(net) as musivum, trio.open_nursery() as nursery:

        async def live() -> None:
            found.extend(await run(net, replace(config, musivum=(musivum,)), inline_compute, stop))

        nursery.start_soon(live)
        await trio.sleep(1.0)
        async with net.host(b"c" * 32) as client:
            (row,) = await ask_peers(client, musivum)
            assert (row.status, row.layers) == ("Healthy", LayerRange(0, 6))
            stop.set()
            await trio.sleep(0.1)
            assert await ask_peers(client, musivum) == []
    kinds = [event["event"] for event in found]
    assert kinds[0] == "assigned"
    assert set(kinds[1:-1]) == {"loading"}
    assert kinds[-1] == "ready"
    last = found[-2]
    assert last["loaded_bytes"] == last["total_bytes"] > 0
    assert found[-1]["peer_id"] == NODE.peer_id


async def test_a_node_that_cannot_load_is_not_left_listed(
    config: WorkerConfig,
    inline_compute: Compute,
    autojump_clock: MockClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def torn(*args: Any, **options: Any) -> None:
        raise BadWeights("model.safetensors is torn")

    monkeypatch.setattr(loading_module, "load_shard", torn)
    net = MemoryNetwork()
    async with a_musivum(net) as musivum, net.host(b"c" * 32) as client:
        with pytest.raises(BadWeights, match="torn"):
            await run(net, replace(config, musivum=(musivum,)), inline_compute)
        assert await ask_peers(client, musivum) == []


async def test_a_node_whose_compute_thread_dies_ends_and_is_not_left_listed(
    config: WorkerConfig,
) -> None:
    def die(job: object) -> None:
        raise SystemExit("as a driver may")

    # A real thread, so real time: nothing here waits for more than it.
    net, ready = MemoryNetwork(), trio.Event()
    async with a_musivum(net) as musivum, net.host(b"c" * 32) as client, net.host(NODE) as host:

        def tell(event: dict[str, Any]) -> None:
            if event["event"] == "ready":
                ready.set()

        with trio.fail_after(10.0):
            with pytest.raises((LocalError, ExceptionGroup)) as caught:
                async with open_compute() as compute, trio.open_nursery() as nursery:
                    ground = Ground(NODE, host, compute)
                    chosen = replace(config, musivum=(musivum,))
                    nursery.start_soon(run_node, chosen, ground, trio.Event(), tell)
                    await ready.wait()
                    with pytest.raises(LocalError):
                        await compute.run(die)
                    await trio.sleep_forever()
        assert "the compute thread died" in str(caught.value)
        assert await ask_peers(client, musivum) == []


async def test_the_files_are_closed_when_the_node_ends(
    config: WorkerConfig,
    inline_compute: Compute,
    autojump_clock: MockClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    closed: list[Path] = []

    def noting(path: Path) -> Checkpoint:
        checkpoint = open_checkpoint(path)
        monkeypatch.setattr(checkpoint, "close", lambda: closed.append(path))
        return checkpoint

    monkeypatch.setattr(node_module, "open_checkpoint", noting)
    with pytest.raises(PeerUnreachable):
        await run(MemoryNetwork(), config, inline_compute)
    assert closed == [config.weights]


async def test_while_it_loads_a_node_tells_how_far_it_is(
    config: WorkerConfig, inline_compute: Any, autojump_clock: MockClock
) -> None:
    inline_compute.stuck = True
    net = MemoryNetwork(latency=0.001)
    async with a_musivum(net) as musivum, trio.open_nursery() as nursery:
        nursery.start_soon(run, net, replace(config, musivum=(musivum,)), inline_compute)
        async with net.host(b"c" * 32) as client:
            await trio.sleep(60.0)
            (row,) = await ask_peers(client, musivum)
            assert row.status == "PendingLoad"
            address = PeerAddress(row.peer_id, row.addrs)
            status = await ask_status(client, address)
            assert status["status"] == "PendingLoad"
            assert status["layer_range"] == [0, 6]
            assert set(status["loading"]) == {"loaded_bytes", "total_bytes"}
            stream = await client.open_stream(address.peer_id, COMPLETE, timeout=5)
            await stream.send(Complete(b'{"model": "toy", "prompt": "hello"}'))
            failed = await stream.receive(5)
            assert isinstance(failed, Fail)
            assert (failed.code, failed.retry) == ("model_unavailable", True)
            assert "still loading: 0 of 0 bytes" in failed.text
            await stream.aclose()
        nursery.cancel_scope.cancel()


async def test_a_chunk_is_no_larger_than_the_next_stage_takes(
    open_mesh: OpenMesh, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tensors, "MAX_CHUNK_POSITIONS", 4)
    async with open_mesh([3, 3], prefill_chunk=8) as mesh:
        await mesh.ask("ten tokens", max_tokens=1)
        sent = (await mesh.status(mesh.nodes[0]))["hops"]["frames_sent"]
        assert sent == {mesh.nodes[1].identity.peer_id: 3}


async def test_a_musivum_that_lost_its_memory_lists_a_node_within_two_heartbeats(
    config: WorkerConfig, inline_compute: Compute, autojump_clock: MockClock
) -> None:
    net = MemoryNetwork(latency=0.001)
    async with trio.open_nursery() as nursery, net.host(b"c" * 32) as client:
        async with a_musivum(net) as musivum:
            nursery.start_soon(run, net, replace(config, musivum=(musivum,)), inline_compute)
            await trio.sleep(1.0)
        await trio.sleep(20.0)
        async with _the_same(net, musivum):
            await trio.sleep(10.5)
            (row,) = await ask_peers(client, musivum)
            assert (row.status, row.layers) == ("Healthy", LayerRange(0, 6))
            nursery.cancel_scope.cancel()


@asynccontextmanager
async def _the_same(net: MemoryNetwork, address: PeerAddress) -> AsyncIterator[None]:
    """A musivum again, without a memory, where the first one was."""
    async with net.host(MUSIVUM) as host, trio.open_nursery() as nursery:
        host.address = address
        chosen = replace(QUIET, min_vram_mb=0, heartbeat_seconds=5.0)
        await nursery.start(
            partial(serve, host, MUSIVUM, chosen, store=MemoryStore(), clock=time.time)
        )
        yield
        nursery.cancel_scope.cancel()


async def test_heartbeats_go_on_while_the_compute_thread_is_busy(
    open_mesh: OpenMesh, autojump_clock: MockClock
) -> None:
    async with open_mesh([3, 3], hop_timeout=10.0) as mesh:
        # Longer than the three heartbeats of 5 s after which silence is absence.
        mesh.nodes[1].compute.pace = 60.0
        async with trio.open_nursery() as nursery:

            async def ask() -> None:
                await mesh.ask("hello", max_tokens=2)
                nursery.cancel_scope.cancel()

            nursery.start_soon(ask)
            for _ in range(25):
                await trio.sleep(4.0)
                rows = await ask_peers(mesh.client, mesh.musivum.address)
                assert [row.status for row in rows] == ["Healthy", "Healthy"]
