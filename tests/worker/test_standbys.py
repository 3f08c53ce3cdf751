"""Several musivums of one mesh: a node keeps to the one that answers, and finds the next."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from p2p.testing import MemoryNetwork
from tessella.client import ask_peers
from tessella.core.addresses import PeerAddress
from tessella.core.errors import PeerUnreachable, Refused, RemoteFailure, TessellaError
from tessella.core.identity import Identity
from tessella.core.ids import ModelId
from tessella.core.layers import LayerRange
from tessella.core.messages import Accepted, Announce
from tessella.worker.testing import BEAT, Hub
from tessella.worker.tracker import Tracker

OpenMesh = Callable[..., Any]
SEEDS = (b"1" * 32, b"2" * 32, b"3" * 32)
NODE = Identity(b"n" * 32)
NEWS = Announce("Healthy", 0, 0.0)
WHOLE = LayerRange(0, 6)


class Standby(TessellaError):
    """As a musivum says it that leaves the mesh to another."""

    code = "standby"
    retry = True


def clock() -> float:
    return time.time() + trio.current_time()


@dataclass
class Musivums:
    """Three musivums that can be ended and begun again where they were."""

    net: MemoryNetwork
    nursery: trio.Nursery
    addresses: list[PeerAddress] = field(default_factory=list)
    hubs: dict[int, Hub] = field(default_factory=dict)
    ends: dict[int, tuple[trio.Event, trio.Event]] = field(default_factory=dict)

    async def begin(self, number: int) -> None:
        """One without a memory, at the address that this one has always had."""
        await self.nursery.start(self._live, number)

    async def _live(self, number: int, task_status: Any) -> None:
        identity = Identity(SEEDS[number])
        end, ended = self.ends[number] = (trio.Event(), trio.Event())
        async with self.net.host(identity) as host:
            if number < len(self.addresses):
                host.address = self.addresses[number]
            else:
                self.addresses.append(host.address)
            self.hubs[number] = hub = Hub(host, identity, clock)
            hub.next_range = WHOLE
            task_status.started()
            await end.wait()
        ended.set()

    async def end(self, number: int) -> None:
        """This one dies."""
        end, ended = self.ends[number]
        end.set()
        await ended.wait()


@asynccontextmanager
async def three(net: MemoryNetwork) -> AsyncIterator[Musivums]:
    async with trio.open_nursery() as nursery:
        musivums = Musivums(net, nursery)
        for number in range(3):
            await musivums.begin(number)
        yield musivums
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def a_tracker(net: MemoryNetwork) -> AsyncIterator[tuple[Musivums, Tracker]]:
    async with three(net) as musivums, net.host(NODE) as host:
        tracker = Tracker(host, NODE, musivums.addresses, clock)
        for hub in musivums.hubs.values():
            hub.refusal = Refused("not told yet")
        yield musivums, tracker


async def said_by(tracker: Tracker) -> str:
    with pytest.raises(RemoteFailure) as caught:
        await tracker.call(NEWS)
    return str(caught.value)


@pytest.mark.parametrize("code", ["busy", "standby"])
async def test_one_that_leaves_the_mesh_to_another_is_passed_over_and_kept_to_after_that(
    autojump_clock: MockClock, code: str
) -> None:
    async with a_tracker(MemoryNetwork(latency=0.01)) as (musivums, tracker):
        elsewhere = Standby("ask another")
        elsewhere.code = code
        musivums.hubs[0].refusal = elsewhere
        musivums.hubs[1].refusal = Refused("from the second")
        started = trio.current_time()
        assert await said_by(tracker) == "from the second"
        assert trio.current_time() - started < 0.2
        musivums.hubs[0].refusal = Refused("from the first")
        assert await said_by(tracker) == "from the second"


@pytest.mark.parametrize("code", ["unknown_worker", "claim_too_small", "too_many_requests"])
async def test_another_answer_is_the_answer(autojump_clock: MockClock, code: str) -> None:
    async with a_tracker(MemoryNetwork()) as (musivums, tracker):
        refusal = Standby("from the first")
        refusal.code = code
        musivums.hubs[0].refusal = refusal
        for _ in range(2):
            assert await said_by(tracker) == "from the first"


async def test_each_is_asked_once_a_call_and_the_last_error_is_raised(
    autojump_clock: MockClock,
) -> None:
    async with a_tracker(MemoryNetwork()) as (musivums, tracker):
        asked: list[int] = []
        for number, hub in musivums.hubs.items():
            hub.refusal = Noting(asked, number)
        for _ in range(2):
            assert await said_by(tracker) == "standby 2"
        assert asked == [0, 1, 2] * 2
        for number in (2, 1, 0):
            await musivums.end(number)
        with pytest.raises(PeerUnreachable, match=musivums.addresses[2].peer_id):
            await tracker.call(NEWS)


async def test_a_whole_mesh_is_listed_by_whoever_is_there(autojump_clock: MockClock) -> None:
    async with a_tracker(MemoryNetwork()) as (musivums, tracker):
        musivums.hubs[2].refusal = None
        await musivums.end(1)
        await musivums.end(0)
        assert await tracker.peers(ModelId("toy")) == []


class Noting(Standby):
    """A refusal that remembers who gave it, and when."""

    def __init__(self, asked: list[int], number: int) -> None:
        super().__init__(f"standby {number}")
        self._asked = asked
        self._number = number

    def told(self) -> str:
        self._asked.append(self._number)
        return str(self)


@asynccontextmanager
async def a_node(
    open_hub: OpenMesh, dead: tuple[int, ...] = ()
) -> AsyncIterator[tuple[Any, Musivums, Any]]:
    async with open_hub([]) as (mesh, _), three(mesh.net) as musivums:
        for number in dead:
            await musivums.end(number)
        node = await mesh.start(WHOLE, b"x" * 32, layers=None, musivum=tuple(musivums.addresses))
        yield mesh, musivums, node
        node.stop.set()
        await trio.sleep(0.5)


async def listed(mesh: Any, musivums: Musivums, number: int) -> list[str]:
    rows = await ask_peers(mesh.client, musivums.addresses[number])
    return [f"{row.peer_id} {row.status} {row.layers}" for row in rows]


async def test_a_node_joins_through_the_second_where_the_first_is_dead(
    open_hub: OpenMesh, autojump_clock: MockClock
) -> None:
    started = trio.current_time()
    async with a_node(open_hub, dead=(0,)) as (mesh, musivums, node):
        assert trio.current_time() - started < 1.0
        assert await listed(mesh, musivums, 1) == [f"{node.identity.peer_id} Healthy 0:6"]
        assert musivums.hubs[2].heard == []
        assert (await mesh.ask("hello", at=node, max_tokens=2)).ids


async def test_the_next_heartbeat_finds_another_with_the_same_row_and_back(
    open_hub: OpenMesh, autojump_clock: MockClock
) -> None:
    async with a_node(open_hub) as (mesh, musivums, node):
        row = f"{node.identity.peer_id} Healthy 0:6"
        assert await listed(mesh, musivums, 0) == [row]
        await musivums.end(0)
        await trio.sleep(BEAT + 1.0)
        assert await listed(mesh, musivums, 1) == [row]
        await musivums.begin(0)
        await trio.sleep(3 * BEAT)
        assert musivums.hubs[0].heard == [], "the second one answers"
        await musivums.end(1)
        await musivums.end(2)
        await trio.sleep(BEAT + 1.0)
        assert await listed(mesh, musivums, 0) == [row]
        status = await mesh.status(node)
        assert (status["status"], status["mesh_errors"]) == ("Healthy", 0)


async def test_a_node_that_reaches_none_serves_on_and_says_so(
    open_hub: OpenMesh, autojump_clock: MockClock
) -> None:
    async with a_node(open_hub) as (mesh, musivums, node):
        for number in (2, 1, 0):
            await musivums.end(number)
        await trio.sleep(3 * BEAT)
        status = await mesh.status(node)
        assert status["status"] == "Healthy"
        assert 1 <= status["mesh_errors"] <= 3
        assert status["last_mesh_error"].startswith("peer_unreachable: ")


async def test_any_of_its_musivums_may_tell_a_node_to_move(
    open_hub: OpenMesh, autojump_clock: MockClock
) -> None:
    async with a_node(open_hub) as (mesh, musivums, node):
        assert await musivums.hubs[2].push(node.address, LayerRange(0, 3)) == Accepted()
        await trio.sleep(1.0)
        assert (await mesh.status(node))["layer_range"] == [0, 3]
