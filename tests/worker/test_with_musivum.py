"""Real nodes that a real musivum moves: for a hole, for an operator, and against their will."""

from __future__ import annotations

import gc
import weakref
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
import trio
from trio.testing import MockClock

from musivum.placing.assigning import Assigner
from musivum.placing.moves import PATIENCE_SECONDS
from musivum.placing.node_calls import Http
from musivum.store import Change, PutNode
from musivum.store.memory import MemoryStore
from tessella.core.errors import RemoteFailure, StoreUnavailable
from tessella.core.ids import ModelId, PeerId
from tessella.core.layers import LayerRange
from tessella.engine.shard import Shard, load_shard
from tessella.worker import loading as loading_module
from tessella.worker.retries import LONGEST_RETRY
from tests.worker.conftest import Node, wall_clock
from tests.worker.split import (
    BEAT,
    MUSIVUM,
    OFFLINE_SECONDS,
    PROMPT,
    TWO_LAYERS,
    Split,
    split,
    write_split,
)

HEAL = 20.0


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_split(tmp_path_factory.mktemp("split"))


@pytest.fixture
def pushed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What nodes are told to hold, in order."""
    told: list[str] = []
    push = Assigner.push

    async def noting(assigner: Assigner, peer_id: PeerId, layers: LayerRange) -> None:
        told.append(f"{peer_id} {layers}")
        await push(assigner, peer_id, layers)

    monkeypatch.setattr(Assigner, "push", noting)
    return told


@asynccontextmanager
async def watched(mesh: Split) -> AsyncIterator[list[int]]:
    """How many nodes move, twice a second; and what is listed is always what is loaded."""
    counts: list[int] = []

    async def look() -> None:
        while True:
            await trio.sleep(0.5)
            counts.append(len(mesh.moving()))
            assert await mesh.is_listed_as_it_is()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(look)
        yield counts
        nursery.cancel_scope.cancel()


async def four(mesh: Split, **config: Any) -> list[Node]:
    """Nodes of two layers each: the model once, and its first two layers twice."""
    nodes = [await mesh.join(TWO_LAYERS, **config) for _ in range(4)]
    ranges = ["Healthy 0:2", "Healthy 2:4", "Healthy 4:6", "Healthy 0:2"]
    assert [*map(mesh.listed, nodes)] == ranges
    return nodes


async def lost_to_musivum(mesh: Split, node: Node) -> None:
    """A node that serves whom it knows, and that musivum hears of no more."""
    mesh.net.silence(node.identity.peer_id, mesh.musivum.address.peer_id)
    await mesh.until(lambda: mesh.listed(node).startswith("Offline"), within=OFFLINE_SECONDS + BEAT)


async def test_when_a_node_dies_a_spare_one_takes_its_layers_and_answers_are_as_before(
    weights: Path, autojump_clock: MockClock, pushed: list[str]
) -> None:
    async with split(weights, heal_seconds=HEAL) as mesh:
        first, _, dead, last = await four(mesh)
        before = await mesh.hears()
        for node in (first, last):
            node.compute.pace = 2.0
        mesh.crash(dead)
        await trio.sleep(3 * BEAT + HEAL - 1.0)
        assert pushed == [], "it may be back in a moment"
        with pytest.raises(RemoteFailure, match="layers 4:6 are served by nobody"):
            await mesh.hears()
        async with watched(mesh) as moving:
            await trio.sleep(10.0)
            assert {mesh.listed(first), mesh.listed(last)} == {"Healthy 0:2", "Healthy 4:6"}
            assert await mesh.health() == "healthy"
            after = await mesh.hears()
        await trio.sleep(120.0)
        assert (after.ids, after.text) == (before.ids, before.text)
        assert max(moving) == 1
        assert len(pushed) == 1, "and then nobody else"


async def test_of_two_idle_nodes_one_goes_to_a_hole_and_the_other_stays(
    weights: Path, autojump_clock: MockClock, pushed: list[str]
) -> None:
    async with split(weights, heal_seconds=HEAL) as mesh:
        nodes = await four(mesh)
        nodes.append(await mesh.join())
        assert mesh.listed(nodes[4]) == "Healthy 2:4"
        mesh.crash(nodes.pop(2))
        await trio.sleep(OFFLINE_SECONDS + HEAL + 120.0)
        held = [*map(mesh.listed, nodes)]
        assert held.count("Healthy 4:6") == 1
        assert {"Healthy 0:2", "Healthy 2:4"} < {*held}
        assert len(pushed) == 1


async def test_nobody_moves_for_another_model_from_one_that_is_whole(
    weights: Path, autojump_clock: MockClock, pushed: list[str]
) -> None:
    async with split(weights, heal_seconds=HEAL) as mesh:
        nodes = await four(mesh)
        other = await mesh.join(model=ModelId("other"))
        assert mesh.listed(other) == "Healthy 0:2", "and its other layers are held by nobody"
        before = [*map(mesh.listed, nodes)]
        await trio.sleep(HEAL + 180.0)
        assert pushed == []
        assert [*map(mesh.listed, nodes)] == before
        assert (await mesh.operate("/rebalance"))["moves"] == []


async def test_an_operator_has_nodes_moved_one_after_the_other(
    weights: Path, autojump_clock: MockClock, pushed: list[str], equal_steps: None
) -> None:
    async with split(weights, heal_seconds=0.0) as mesh:
        nodes = await four(mesh)
        before = await mesh.hears()
        crowd = [await mesh.join(layers=LayerRange(0, 2)) for _ in range(2)]
        nodes[2].stop.set()
        await trio.sleep(60.0)
        assert (pushed, await mesh.health()) == ([], "incomplete")
        for node in (*nodes, *crowd):
            node.compute.pace = 2.0
        async with watched(mesh) as moving:
            (move,) = (await mesh.operate("/rebalance"))["moves"]
            assert (move["new"], move["reason"]) == ([4, 6], "nobody holds layers 4:6")
            await trio.sleep(12.0)
            assert await mesh.health() == "healthy"
            assert (await mesh.hears()).ids == before.ids
        assert max(moving) == 1
        told = len(pushed)
        await mesh.operate("/rebalance")
        assert len(pushed) == told, "nothing was left to be worth it"


async def test_nodes_that_insist_are_asked_once_and_never_again(
    weights: Path, autojump_clock: MockClock, pushed: list[str]
) -> None:
    async with split(weights, heal_seconds=HEAL) as mesh:
        nodes = [await mesh.join(layers=LayerRange(at, at + 2)) for at in (0, 2, 0, 2, 4)]
        mesh.crash(nodes[4])
        await trio.sleep(OFFLINE_SECONDS + HEAL + 5.0)
        asked = sorted(pushed)
        assert asked == sorted(f"{node.identity.peer_id} 4:6" for node in nodes[:4])
        for _ in range(10):
            await trio.sleep(15.0)
            assert mesh.moving() == [], "nobody waits for them"
        assert sorted(pushed) == asked
        assert [mesh.listed(node).split()[0] for node in nodes[:4]] == ["Healthy"] * 4


async def test_where_one_refuses_another_goes_at_once_and_who_comes_again_is_asked_again(
    weights: Path, autojump_clock: MockClock, pushed: list[str]
) -> None:
    async with split(weights, heal_seconds=HEAL) as mesh:
        nodes = [await mesh.join() for _ in range(3)]
        stubborn = [await mesh.join(layers=LayerRange(0, 2)) for _ in range(2)]
        mesh.crash(nodes[2])
        await mesh.until(lambda: mesh.listed(nodes[0]) == "Healthy 4:6", within=45.0)
        assert [*map(mesh.listed, stubborn)] == ["Healthy 0:2"] * 2
        asked = [line.split()[0] for line in pushed]
        assert asked[-1] == nodes[0].identity.peer_id
        assert 2 <= len(asked) == len(set(asked)) <= 3
        for node in stubborn:
            node.stop.set()
        await trio.sleep(1.0)
        again = [await mesh.join(seed=bytes([4 + at]) * 32) for at in range(2)]
        assert [each.address.peer_id for each in again] == [
            each.address.peer_id for each in stubborn
        ]
        assert [*map(mesh.listed, again)] == ["Healthy 0:2"] * 2
        mesh.crash(nodes[0])
        await mesh.until(lambda: "Healthy 4:6" in map(mesh.listed, again), within=45.0)


async def test_a_move_that_is_taken_back_ends_the_draining_and_no_session(
    weights: Path, autojump_clock: MockClock, pushed: list[str]
) -> None:
    async with split(weights, heal_seconds=HEAL) as mesh:
        first, _, third, last = await four(mesh, drain_seconds=1000.0)
        spare = {node.identity.peer_id: node for node in (first, last)}
        reference = await mesh.ask(PROMPT, at=first, max_tokens=12)
        answers: list[list[int]] = []

        async def ask(entry: Node) -> None:
            answers.append((await mesh.ask(PROMPT, at=entry, max_tokens=12)).ids)

        async with trio.open_nursery() as nursery:
            for node in spare.values():
                node.compute.pace = 20.0
                nursery.start_soon(ask, node)
            await trio.sleep(1.0)
            await lost_to_musivum(mesh, third)
            await mesh.until(lambda: pushed, within=HEAL + 2.0)
            node = spare[PeerId(pushed[0].split()[0])]
            await mesh.until(lambda: mesh.listed(node) == "Draining 0:2", within=BEAT)
            assert (await mesh.status(node))["moving_to"] == [4, 6]
            took = await mesh.until(lambda: mesh.listed(node) == "Healthy 0:2", within=200.0)
            assert PATIENCE_SECONDS - BEAT <= took <= PATIENCE_SECONDS + BEAT + 2.0
            status = await mesh.status(node)
            assert (status["status"], status["moving_to"]) == ("Healthy", None)
            assert not answers
        assert answers == [reference.ids] * 2


@pytest.mark.parametrize("seconds", [60.0, 2 * PATIENCE_SECONDS], ids=["wanted", "taken back"])
async def test_a_node_that_moved_unheard_is_listed_with_what_it_loaded(
    weights: Path, autojump_clock: MockClock, pushed: list[str], seconds: float
) -> None:
    async with split(weights, heal_seconds=HEAL) as mesh:
        first, _, third, last = await four(mesh, drain_seconds=15.0)
        spare = {node.identity.peer_id: node for node in (first, last)}

        async def ask(entry: Node) -> None:
            with suppress(RemoteFailure):
                await mesh.ask(PROMPT, at=entry, max_tokens=100)

        async with trio.open_nursery() as nursery:
            for node in spare.values():
                node.compute.pace = 10.0
                nursery.start_soon(ask, node)
            await trio.sleep(1.0)
            await lost_to_musivum(mesh, third)
            await mesh.until(lambda: pushed, within=HEAL + 2.0)
            moved = spare[PeerId(pushed[0].split()[0])]
            await mesh.until(lambda: mesh.listed(moved) == "Draining 0:2", within=BEAT)
            ours = mesh.musivum.address.peer_id
            mesh.net.silence(moved.identity.peer_id, ours)
            await trio.sleep(seconds)
            status = await mesh.status(moved)
            assert (status["status"], status["layer_range"]) == ("Healthy", [4, 6])
            assert mesh.listed(moved) == "Offline 0:2"
            mesh.net.heal(moved.identity.peer_id, ours)
            await mesh.until(lambda: mesh.listed(moved) == "Healthy 4:6", within=60.0)
            async with watched(mesh):
                await trio.sleep(10.0)
            nursery.cancel_scope.cancel()
        assert (await mesh.status(moved))["layer_range"] == [4, 6]


class Kept:
    """The shards that were loaded, and how many of them are still there."""

    def __init__(self) -> None:
        self.shards: list[weakref.ref[Shard]] = []

    def load(self, *args: Any, **options: Any) -> Shard:
        shard = load_shard(*args, **options)
        self.shards.append(weakref.ref(shard))
        return shard

    def count(self) -> int:
        gc.collect()
        return sum(shard() is not None for shard in self.shards)


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> Kept:
    kept = Kept()
    monkeypatch.setattr(loading_module, "load_shard", kept.load)
    return kept


@pytest.mark.parametrize("finishes", [True, False])
async def test_a_session_on_a_node_that_moves_finishes_or_is_ended_and_its_memory_is_free(
    weights: Path, autojump_clock: MockClock, kept: Kept, finishes: bool
) -> None:
    drain = 20.0
    async with split(weights, heal_seconds=0.0) as mesh:
        first, _, third, last = await four(mesh, drain_seconds=drain)
        spare = {node.identity.peer_id: node for node in (first, last)}
        reference = await mesh.ask(PROMPT, at=first, max_tokens=12)
        ends: dict[PeerId, tuple[float, object]] = {}

        async def ask(entry: Node) -> None:
            said: object
            try:
                said = (await mesh.ask(PROMPT, at=entry, max_tokens=12)).ids
            except RemoteFailure as exc:
                said = (exc.code, exc.retry)
            ends[entry.identity.peer_id] = (trio.current_time(), said)

        async with trio.open_nursery() as nursery:
            for node in spare.values():
                # A step takes as long: the answer half a minute, or minutes.
                node.compute.pace = 1.8 if finishes else 12.0
                nursery.start_soon(ask, node)
            await trio.sleep(1.0)
            await lost_to_musivum(mesh, third)
            (move,) = (await mesh.operate("/rebalance"))["moves"]
            assert move["new"] == [4, 6]
            began = trio.current_time()
            moved = spare[move["peer_id"]]
            assert (await mesh.status(moved))["kv_bytes"] > 0
            assert not ends
        ended, said = ends[moved.identity.peer_id]
        assert 0.0 < ended - began <= drain + 1.0
        assert said == (reference.ids if finishes else ("model_unavailable", True))
        (other,) = ends.keys() - {moved.identity.peer_id}
        assert ends[other][1] == reference.ids, "the other one has its own"
        await mesh.until(lambda: mesh.listed(moved) == "Healthy 4:6", within=30.0)
        status = await mesh.status(moved)
        assert (status["layer_range"], status["sessions"], status["kv_bytes"]) == ([4, 6], [], 0)
        assert status["weight_bytes"] == sum(one["bytes"] for one in status["tensors"])
        assert status["weight_bytes"] == (await mesh.status(third))["weight_bytes"]
        assert kept.count() == 4, "one a node"


@pytest.mark.parametrize("pace", [2 * BEAT, 0.0], ids=["while it loads", "too late perhaps"])
async def test_a_node_that_begins_with_what_is_not_wanted_turns_back_or_is_listed_as_it_is(
    weights: Path, autojump_clock: MockClock, pace: float
) -> None:
    async with split(weights, heal_seconds=0.0) as mesh:
        node = (await four(mesh))[3]
        http = Http(httpx.AsyncClient(), allow_private=True)
        orders = Assigner(mesh.musivum, MUSIVUM, mesh.books.roster, wall_clock, http)
        node.compute.pace = pace
        async with watched(mesh):
            await orders.push(node.identity.peer_id, LayerRange(4, 6))
            await trio.sleep(4 * BEAT)
            assert node.events[-1]["event"] == "ready"
            start, stop = node.layers()
            assert mesh.listed(node) == f"Healthy {start}:{stop}"
            assert (start, stop) == (0, 2) or not pace


class Full(MemoryStore):
    """A disk with room for who comes, and none for what they load."""

    def __init__(self) -> None:
        super().__init__()
        self.is_full = True

    async def save(self, *changes: Change) -> None:
        if self.is_full and any(isinstance(one, PutNode) and one.node.is_ready for one in changes):
            raise StoreUnavailable("the disk is full")
        await super().save(*changes)


async def test_a_node_whose_range_cannot_be_kept_waits_with_it_until_it_can(
    weights: Path, autojump_clock: MockClock
) -> None:
    store = Full()
    async with split(weights, store=store) as mesh:
        node = await mesh.begin()
        await trio.sleep(60.0)
        assert (await mesh.status(node))["weight_bytes"] > 0
        store.is_full = False
        await mesh.until(lambda: node.is_started, within=LONGEST_RETRY + 1.0)
        assert mesh.listed(node) == "Healthy 0:2"
