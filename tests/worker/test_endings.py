"""However a session ends, every stage frees it within a second and disturbs no other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from tessella.core.errors import PeerGone, RemoteFailure

OpenMesh = Callable[..., Any]
PROMPT = "a prompt of several chunks, " * 3


async def sessions(mesh: Any) -> list[int]:
    return [len((await mesh.status(node))["sessions"]) for node in mesh.nodes]


async def kv_bytes(mesh: Any) -> list[int]:
    return [(await mesh.status(node))["kv_bytes"] for node in mesh.nodes]


async def test_a_complete_answer_leaves_nothing_behind(
    open_mesh: OpenMesh, autojump_clock: MockClock
) -> None:
    async with open_mesh([2, 2, 2]) as mesh:
        await mesh.ask(PROMPT, max_tokens=3)
        await trio.sleep(1.0)
        assert await sessions(mesh) == [0, 0, 0]
        assert await kv_bytes(mesh) == [0, 0, 0]


@pytest.mark.parametrize(("after", "pace"), [(0.2, 0.0), (0.5, 3.0), (5.0, 3.0), (40.0, 3.0)])
async def test_a_client_that_vanishes_frees_every_stage_within_a_second(
    open_mesh: OpenMesh, autojump_clock: MockClock, after: float, pace: float
) -> None:
    async with open_mesh([2, 2, 2], hop_timeout=10.0) as mesh:
        for node in mesh.nodes:
            node.compute.pace = pace
        async with mesh.net.host(b"g" * 32) as guest:
            with trio.move_on_after(after):
                await mesh.ask(PROMPT, max_tokens=150, host=guest)
        for node in mesh.nodes:
            node.compute.pace = 0.0
        await trio.sleep(1.0)
        assert await sessions(mesh) == [0, 0, 0]


async def test_two_clients_and_one_is_killed_in_mid_answer(
    open_mesh: OpenMesh, autojump_clock: MockClock
) -> None:
    async with open_mesh([2, 2, 2]) as mesh:
        reference = await mesh.ask(PROMPT, max_tokens=60)
        for node in mesh.nodes:
            node.compute.pace = 0.05
        kept: list[Any] = []

        async def keep() -> None:
            kept.append(await mesh.ask(PROMPT, max_tokens=60))

        async with mesh.net.host(b"g" * 32) as guest, trio.open_nursery() as nursery:
            nursery.start_soon(keep)
            both: list[int] = []

            async def look() -> None:
                await trio.sleep(3.9)
                assert await sessions(mesh) == [2, 2, 2]
                both.extend(await kv_bytes(mesh))

            nursery.start_soon(look)
            with trio.move_on_after(4.0):
                await mesh.ask("another prompt", max_tokens=150, host=guest)
            await trio.sleep(1.0)
            assert not kept, "the answer was over before its neighbour was killed"
            assert await sessions(mesh) == [1, 1, 1]
            assert all(0 < now < then for now, then in zip(await kv_bytes(mesh), both, strict=True))
        assert kept[0].ids == reference.ids


async def test_the_death_of_a_middle_stage_is_one_clear_error_and_parks_the_tail(
    open_mesh: OpenMesh,
    autojump_clock: MockClock,
) -> None:
    async with open_mesh([2, 2, 2], hop_timeout=4.0) as mesh:
        entry, middle, tail = mesh.nodes
        for node in mesh.nodes:
            node.compute.pace = 0.05
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_kill_after, mesh, middle, 2.0)
            with pytest.raises(RemoteFailure) as caught:
                await mesh.ask(PROMPT, max_tokens=150)
        assert caught.value.retry
        await trio.sleep(0.9)
        assert (await mesh.status(entry))["sessions"] == []
        assert (await mesh.status(entry))["peer_failures"] == {middle.identity.peer_id: 1}
        await trio.sleep(4.2)
        assert (await mesh.status(tail))["sessions"] == []


async def _kill_after(mesh: Any, node: Any, seconds: float) -> None:
    await trio.sleep(seconds)
    mesh.crash(node)


async def test_the_death_of_the_entry_frees_the_other_stages(
    open_mesh: OpenMesh, autojump_clock: MockClock
) -> None:
    async with open_mesh([2, 2, 2]) as mesh:
        for node in mesh.nodes:
            node.compute.pace = 0.05
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_kill_after, mesh, mesh.nodes[0], 2.0)
            with pytest.raises(PeerGone):
                await mesh.ask(PROMPT, max_tokens=150)
        await trio.sleep(1.0)
        for node in mesh.nodes[1:]:
            assert (await mesh.status(node))["sessions"] == []


async def test_a_slow_stage_is_waited_for(open_mesh: OpenMesh, autojump_clock: MockClock) -> None:
    async with open_mesh([2, 2, 2], hop_timeout=4.0) as mesh:
        reference = await mesh.ask("one chunk", max_tokens=2)
        mesh.nodes[1].compute.pace = 30.0
        answer = await mesh.ask("one chunk", max_tokens=2)
        assert answer.ids == reference.ids
        assert answer.done.total_seconds > 30.0


@pytest.mark.parametrize("place", [1, 2])
async def test_a_silent_stage_is_named_within_the_hop_timeout(
    open_mesh: OpenMesh, autojump_clock: MockClock, place: int
) -> None:
    async with open_mesh([2, 2, 2], hop_timeout=4.0) as mesh:
        silent = mesh.nodes[place]
        silent.compute.stuck = True
        started = trio.current_time()
        with pytest.raises(RemoteFailure, match=silent.identity.peer_id) as caught:
            await mesh.ask(PROMPT, max_tokens=2)
        assert caught.value.code == "peer_silent"
        assert 4.0 <= trio.current_time() - started <= 7.0
        before = mesh.nodes[place - 1]
        assert (await mesh.status(before))["peer_failures"] == {silent.identity.peer_id: 1}
        await trio.sleep(1.0)
        held = [len((await mesh.status(node))["sessions"]) for node in mesh.nodes]
        assert held == [0, 0, 0]


async def test_a_connection_that_goes_silent_counts_as_silence(
    open_mesh: OpenMesh, autojump_clock: MockClock
) -> None:
    async with open_mesh([2, 2, 2], hop_timeout=4.0) as mesh:
        entry, middle, _ = mesh.nodes
        mesh.net.silence(entry.identity.peer_id, middle.identity.peer_id)
        with pytest.raises(RemoteFailure) as caught:
            await mesh.ask(PROMPT, max_tokens=2)
        assert caught.value.code in ("peer_silent", "peer_unreachable")
