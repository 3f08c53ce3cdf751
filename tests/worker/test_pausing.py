"""Nodes that are paused while they load, serve, and are in the middle of it; and that drain."""

from __future__ import annotations

import gc
import math
import os
import weakref
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from tessella.core.errors import BadRequest, RemoteFailure
from tessella.core.layers import LayerRange
from tessella.core.pauses import Why
from tessella.core.peers import NodeStatus
from tessella.engine.shard import Shard, load_shard
from tessella.engine.toy import write_toy
from tessella.worker import loading as loading_module
from tessella.worker import node as node_module
from tessella.worker.assignment import Assignment
from tessella.worker.pausing import MAX_PAUSE_MINUTES, Pausing, Say
from tessella.worker.state import NodeState
from tests.worker.split import BEAT, SHAPE, Split, split, write_split

PROMPT = "a prompt of several chunks, " * 2
FRONT = LayerRange(0, 3)


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_split(tmp_path_factory.mktemp("split"))


@pytest.fixture
def owners(monkeypatch: pytest.MonkeyPatch) -> list[Pausing]:
    """What the owner of each node tells it through, in the order of their starts."""
    made: list[Pausing] = []

    def make(*args: Any) -> Pausing:
        made.append(Pausing(*args))
        return made[-1]

    monkeypatch.setattr(node_module, "Pausing", make)
    return made


@pytest.fixture
def shards(monkeypatch: pytest.MonkeyPatch) -> list[weakref.ref[Shard]]:
    """Every shard that was loaded."""
    loaded: list[weakref.ref[Shard]] = []

    def load(*args: Any, **options: Any) -> Shard:
        shard = load_shard(*args, **options)
        loaded.append(weakref.ref(shard))
        return shard

    monkeypatch.setattr(loading_module, "load_shard", load)
    return loaded


async def refused(mesh: Split, node: Any) -> RemoteFailure:
    with pytest.raises(RemoteFailure) as caught:
        await mesh.ask("hello", at=node)
    return caught.value


async def test_a_paused_node_is_out_at_once_and_serves_again_when_it_is_resumed(
    weights: Path,
    owners: list[Pausing],
    shards: list[weakref.ref[Shard]],
    autojump_clock: MockClock,
) -> None:
    async with split(weights, heal_seconds=0.0) as mesh:
        nodes = [await mesh.join() for _ in range(3)]
        before = await mesh.hears()
        owners[1].pause()
        assert await mesh.until(lambda: mesh.listed(nodes[1]) == "Paused 2:4", within=1.0) < 0.5
        assert await mesh.health() == "degraded"
        assert shards[1]() is None
        said = await mesh.status(nodes[1])
        assert (said["status"], said["paused_by"], said["tensors"]) == ("Paused", "owner", [])
        await trio.sleep(20 * BEAT)
        assert mesh.listed(nodes[1]) == "Paused 2:4", "it goes on saying so"
        owners[1].resume()
        await mesh.until(lambda: mesh.listed(nodes[1]) == "Healthy 2:4", within=1.0)
        assert (await mesh.hears()).ids == before.ids
        assert (await mesh.status(nodes[1]))["paused_by"] is None


async def test_the_range_of_a_paused_node_is_free_for_others_and_it_takes_what_is_left(
    weights: Path, owners: list[Pausing], autojump_clock: MockClock
) -> None:
    async with split(weights, heal_seconds=0.0) as mesh:
        nodes = [await mesh.join() for _ in range(2)]
        assert [*map(mesh.listed, nodes)] == ["Healthy 0:2", "Healthy 2:4"]
        owners[0].pause()
        await trio.sleep(1.0)
        other = await mesh.join()
        assert mesh.listed(other) == "Healthy 0:2"
        owners[0].resume()
        await mesh.until(lambda: mesh.listed(nodes[0]) == "Healthy 4:6", within=2.0)
        assert await mesh.health() == "healthy"
        assert (await mesh.hears()).ids


async def test_a_node_that_can_be_spared_takes_the_place_of_a_paused_one(
    weights: Path, owners: list[Pausing], autojump_clock: MockClock
) -> None:
    async with split(weights, heal_seconds=20.0) as mesh:
        nodes = [await mesh.join() for _ in range(4)]
        assert mesh.listed(nodes[3]) == "Healthy 0:2"
        owners[1].pause()
        await mesh.until(lambda: mesh.listed(nodes[1]) == "Paused 2:4", within=1.0)
        took = await mesh.until(lambda: "Healthy 2:4" in map(mesh.listed, nodes), within=30.0)
        assert took >= 19.0
        assert await mesh.health() == "healthy"


async def test_who_asks_a_paused_node_is_told_that_it_is_and_when_to_ask_again(
    weights: Path, owners: list[Pausing], autojump_clock: MockClock
) -> None:
    async with split(weights) as mesh:
        (node,) = [await mesh.join(claim_mb=64)]
        owners[0].pause(minutes=10.0)
        await trio.sleep(1.0)
        failed = await refused(mesh, node)
        assert (failed.code, failed.retry) == ("model_unavailable", True)
        assert "paused" in str(failed)
        assert (await mesh.status(node))["paused_by"] == "owner"
        await trio.sleep(600.0)
        assert mesh.listed(node) == "Healthy 0:6", "ten minutes are over"


async def test_live_sessions_may_finish_first(
    weights: Path, owners: list[Pausing], autojump_clock: MockClock
) -> None:
    async with split(weights) as mesh:
        node = await mesh.join(claim_mb=64, drain_seconds=30.0)
        node.compute.pace = 0.5
        answers: list[Any] = []

        async def ask() -> None:
            answers.append(await mesh.ask(PROMPT, max_tokens=12))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            await trio.sleep(2.0)
            owners[0].pause()
            await trio.sleep(0.5)
            assert mesh.listed(node) == "Paused 0:6"
            assert "paused" in str(await refused(mesh, node))
            assert len((await mesh.status(node))["sessions"]) == 1
        assert len(answers[0].ids) == 12
        await trio.sleep(1.0)
        assert (await mesh.status(node))["tensors"] == []


async def test_memory_is_back_within_thirty_seconds_whatever_the_sessions_do(
    weights: Path,
    owners: list[Pausing],
    shards: list[weakref.ref[Shard]],
    autojump_clock: MockClock,
) -> None:
    async with split(weights) as mesh:
        node = await mesh.join(claim_mb=64, drain_seconds=25.0)
        node.compute.pace = 2.0
        errors: list[RemoteFailure] = []

        async def ask() -> None:
            with pytest.raises(RemoteFailure) as caught:
                await mesh.ask(PROMPT, max_tokens=150)
            errors.append(caught.value)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            await trio.sleep(3.0)
            owners[0].pause()
            await trio.sleep(24.0)
            assert shards[0]() is not None
            await trio.sleep(6.0)
            assert shards[0]() is None
        assert [error.code for error in errors] == ["model_unavailable"]
        assert "paused" in str(errors[0])


async def test_resumed_before_its_sessions_have_ended_it_keeps_what_it_has(
    weights: Path,
    owners: list[Pausing],
    shards: list[weakref.ref[Shard]],
    autojump_clock: MockClock,
) -> None:
    async with split(weights) as mesh:
        node = await mesh.join(claim_mb=64)
        node.compute.pace = 0.5
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(mesh.ask, PROMPT, max_tokens=12))
            await trio.sleep(2.0)
            owners[0].pause()
            await trio.sleep(1.0)
            owners[0].resume()
            await mesh.until(lambda: mesh.listed(node) == "Healthy 0:6", within=0.5)
            await mesh.ask("hello", max_tokens=1)
        assert len(shards) == 1


async def test_a_load_is_given_up_for_a_pause_and_begun_anew_after_it(
    weights: Path,
    owners: list[Pausing],
    shards: list[weakref.ref[Shard]],
    autojump_clock: MockClock,
) -> None:
    async with split(weights, heal_seconds=0.0, stall_seconds=600.0) as mesh:
        node = await mesh.begin(claim_mb=64, drain_seconds=1.0)
        await mesh.until(lambda: mesh.listed(node) == "Healthy 0:6", within=5.0)
        owners[0].pause()
        await trio.sleep(2.0)
        node.compute.pace = 10.0
        owners[0].resume()
        await mesh.until(lambda: mesh.listed(node) == "PendingLoad 0:6", within=1.0)
        owners[0].pause()
        await trio.sleep(12.0)
        assert (await mesh.status(node))["status"] == "Paused"
        assert all(shard() is None for shard in shards)
        node.compute.pace = 0.0
        owners[0].resume()
        await mesh.until(lambda: mesh.listed(node) == "Healthy 0:6", within=1.0)


async def test_a_node_resumes_while_its_musivum_is_away_and_is_listed_once_it_is_back(
    weights: Path, owners: list[Pausing], autojump_clock: MockClock
) -> None:
    async with split(weights) as mesh:
        node = await mesh.join(claim_mb=64)
        owners[0].pause()
        await trio.sleep(1.0)
        mesh.musivum_ends.set()
        await trio.sleep(1.0)
        owners[0].resume()
        await trio.sleep(60.0)
        said = await mesh.status(node)
        assert (said["status"], said["layer_range"]) == ("Healthy", [0, 6])
        await mesh.nursery.start(mesh._musivum)
        await mesh.until(lambda: mesh.listed(node) == "Healthy 0:6", within=60.0)


async def test_a_node_that_drains_finishes_its_sessions_says_goodbye_and_ends(
    weights: Path, owners: list[Pausing], autojump_clock: MockClock
) -> None:
    async with split(weights) as mesh:
        node = await mesh.join(claim_mb=64, drain_seconds=30.0)
        node.compute.pace = 0.5
        answers: list[Any] = []

        async def ask() -> None:
            answers.append(await mesh.ask(PROMPT, max_tokens=12))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            await trio.sleep(2.0)
            owners[0].drain()
            await trio.sleep(0.5)
            assert mesh.listed(node) == "Draining 0:6"
            assert "leaving the mesh" in str(await refused(mesh, node))
        assert len(answers[0].ids) == 12
        await mesh.until(lambda: mesh.listed(node) == "", within=1.0)


async def test_a_node_that_drains_waits_for_no_session_longer_than_it_may(
    weights: Path, owners: list[Pausing], autojump_clock: MockClock
) -> None:
    async with split(weights) as mesh:
        node = await mesh.join(claim_mb=64, drain_seconds=5.0)
        node.compute.pace = 2.0
        errors: list[str] = []

        async def ask() -> None:
            with pytest.raises(RemoteFailure) as caught:
                await mesh.ask(PROMPT, max_tokens=150)
            errors.append(caught.value.code)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            await trio.sleep(2.0)
            owners[0].drain()
            took = await mesh.until(lambda: mesh.listed(node) == "", within=10.0)
        assert 4.5 <= took <= 8.0
        assert errors == ["model_unavailable"]


# What a node is told, and what follows from it, without a node.


def a_pausing() -> tuple[Pausing, Assignment, NodeState]:
    assignment, state = Assignment(6, None), NodeState(0.0, status=NodeStatus.HEALTHY)
    assignment.begin(FRONT)
    return Pausing(assignment, state, trio.Event()), assignment, state


@pytest.mark.parametrize("minutes", [0.0, -1.0, math.nan, math.inf, MAX_PAUSE_MINUTES + 1])
async def test_a_pause_of_no_sensible_length_is_refused(minutes: float) -> None:
    pausing, assignment, _ = a_pausing()
    with pytest.raises(BadRequest, match="minutes"):
        pausing.pause(minutes)
    assert not assignment.is_resting


async def test_a_pause_that_is_made_longer_or_shorter_ends_when_it_was_said_last(
    autojump_clock: MockClock,
) -> None:
    pausing, assignment, _ = a_pausing()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(pausing.run)
        await wait_all_tasks_blocked()
        pausing.pause(1.0)
        await trio.sleep(30.0)
        pausing.pause(10.0)
        await trio.sleep(120.0)
        assert assignment.is_resting
        pausing.pause(1.0)
        await trio.sleep(59.0)
        assert assignment.is_resting
        await trio.sleep(2.0)
        assert not assignment.is_resting
        nursery.cancel_scope.cancel()


async def test_what_pauses_by_itself_is_overruled_until_it_changes(
    autojump_clock: MockClock,
) -> None:
    pausing, assignment, state = a_pausing()
    says: list[Say] = []

    async def watch(say: Say) -> Any:
        says.append(say)
        await trio.sleep_forever()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(pausing.run, [(Why.SCHEDULE, watch)])
        await wait_all_tasks_blocked()
        (say,) = says
        say(True)
        assert state.pause is not None
        assert (state.pause.why, assignment.is_resting) == (Why.SCHEDULE, True)
        pausing.resume()
        say(True)
        assert [state.pause, assignment.is_resting] == [None, False]
        say(False)
        say(True)
        assert assignment.is_resting
        nursery.cancel_scope.cancel()


def resident() -> int:
    """Bytes of RAM that this process holds."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads /proc")
async def test_the_memory_of_a_paused_node_is_the_systems_again(
    tmp_path: Path, owners: list[Pausing], autojump_clock: MockClock
) -> None:
    write_toy(tmp_path, shape=replace(SHAPE, hidden=512, intermediate=4096, heads=8, kv_heads=8))
    async with split(tmp_path) as mesh:
        node = await mesh.join(claim_mb=2048, drain_seconds=1.0)
        held = (await mesh.status(node))["weight_bytes"]
        await mesh.ask(PROMPT, max_tokens=4)
        gc.collect()
        before = resident()
        owners[0].pause()
        await trio.sleep(5.0)
        freed = before - resident()
        assert held > 100e6
        assert freed > 0.9 * held, f"{freed / 1e6:.0f} of {held / 1e6:.0f} MB came back"
