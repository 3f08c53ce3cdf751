"""Sessions that run out of memory: each is one error, and many close the node for a while."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from tessella.core.errors import OutOfMemory, PeerClosed, RemoteFailure
from tessella.core.health import OomRule
from tessella.engine.shard import Shard
from tessella.worker import memory as memory_module
from tessella.worker.memory import Memory
from tessella.worker.testing import BEAT

OpenMesh = Callable[..., Any]
CUDA = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
RULE = OomRule(streak=3, window=30.0)


async def one(memory: Memory, error: BaseException | None) -> None:
    with memory.session():
        if error is not None:
            raise error


async def failing(memory: Memory, times: int, error: BaseException = CUDA) -> None:
    for _ in range(times):
        with pytest.raises(OutOfMemory):
            await one(memory, error)


@pytest.mark.parametrize("error", [CUDA, MemoryError(), OutOfMemory("told already")])
async def test_what_an_allocator_raises_is_one_error_of_ours(error: Exception) -> None:
    memory = Memory(RULE)
    await failing(memory, 1, error)
    assert memory.count == 1


async def test_what_could_not_be_had_is_not_held_by_the_error() -> None:
    memory = Memory(RULE)
    with pytest.raises(OutOfMemory) as caught:
        await one(memory, torch.OutOfMemoryError("CUDA out of memory"))
    context = caught.value.__context__
    assert context is None or context.__traceback__ is None


async def test_other_errors_say_nothing_about_memory() -> None:
    memory = Memory(OomRule(streak=2, window=30.0))
    await failing(memory, 1)
    for other in (PeerClosed("gone"), RuntimeError("a bug")):
        with pytest.raises(type(other)):
            await one(memory, other)
    await failing(memory, 1)
    assert memory.is_saturated(0, already=False)


async def test_a_session_that_is_cancelled_says_nothing_about_memory() -> None:
    memory = Memory(OomRule(streak=2, window=30.0))
    await failing(memory, 1)
    with trio.move_on_after(0) as scope, memory.session():
        await trio.sleep_forever()
    assert scope.cancelled_caught
    await failing(memory, 1)
    assert memory.is_saturated(0, already=False)


async def test_a_session_that_ends_well_ends_a_streak() -> None:
    memory = Memory(RULE)
    await failing(memory, 2)
    await one(memory, None)
    await failing(memory, 2)
    assert not memory.is_saturated(0, already=False)


async def test_it_stays_closed_until_there_is_room_for_a_session(
    autojump_clock: MockClock,
) -> None:
    free = 100
    memory = Memory(RULE, lambda: free)
    await failing(memory, 3)
    assert memory.is_saturated(500, already=False)
    await trio.sleep(31.0)
    assert memory.is_saturated(500, already=True), "another program has the memory"
    free = 500
    assert not memory.is_saturated(500, already=True)
    free = 100
    assert not memory.is_saturated(500, already=False), "it takes a streak to close it"


async def test_no_failure_is_missed_by_who_was_busy_with_the_last(
    autojump_clock: MockClock,
) -> None:
    memory, heard = Memory(RULE), []

    async def listen() -> None:
        seen = memory.count
        while True:
            seen = await memory.ran_out(seen)
            heard.append(seen)
            await trio.sleep(1.0)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(listen)
        await wait_all_tasks_blocked()
        await failing(memory, 1)
        await trio.sleep(0.5)
        await failing(memory, 2)
        await trio.sleep(5.0)
        nursery.cancel_scope.cancel()
    assert heard == [1, 3]


# A node of a mesh whose device has no memory left.


class Device:
    """Whose memory may run out: for KV, and for the arithmetic of layers."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.has_no_kv = self.has_no_room = False
        self.released = 0
        forward, open_cache = Shard.forward, Shard.open_cache

        def guarded_open(*args: Any) -> Any:
            if self.has_no_kv:
                raise torch.OutOfMemoryError("CUDA out of memory")
            return open_cache(*args)

        def guarded_forward(*args: Any) -> Any:
            if self.has_no_room:
                # As the compute thread tells it; here there is none.
                raise OutOfMemory("no memory for this session")
            return forward(*args)

        def release(_: Any) -> None:
            self.released += 1

        monkeypatch.setattr(Shard, "open_cache", guarded_open)
        monkeypatch.setattr(Shard, "forward", guarded_forward)
        monkeypatch.setattr(memory_module, "release_memory", release)


async def out_of_memory(mesh: Any, times: int = 1) -> None:
    for _ in range(times):
        with pytest.raises(RemoteFailure) as caught:
            await mesh.ask("hello", max_tokens=2)
        assert (caught.value.code, caught.value.retry) == ("out_of_memory", True)


async def test_a_session_without_room_for_its_kv_is_over_and_another_goes_on(
    open_mesh: OpenMesh, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = Device(monkeypatch)
    async with open_mesh([6]) as mesh:
        (node,) = mesh.nodes
        reference = await mesh.ask("a longer answer", max_tokens=40)
        node.compute.pace = 0.5
        answers: list[Any] = []

        async def ask() -> None:
            answers.append(await mesh.ask("a longer answer", max_tokens=40))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            await trio.sleep(3.0)
            held = (await mesh.status(node))["kv_bytes"]
            device.has_no_kv = True
            await out_of_memory(mesh)
            assert (await mesh.status(node))["kv_bytes"] == held > 0
        assert answers[0].ids == reference.ids
        assert ((await mesh.status(node))["out_of_memory"], device.released) == (1, 1)


async def test_a_session_without_room_for_its_arithmetic_is_freed(
    open_mesh: OpenMesh, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = Device(monkeypatch)
    async with open_mesh([6]) as mesh:
        (node,) = mesh.nodes
        device.has_no_room = True
        await out_of_memory(mesh)
        await trio.sleep(2.0)
        status = await mesh.status(node)
        assert (status["status"], status["kv_bytes"], status["sessions"]) == ("Healthy", 0, [])
        assert (status["out_of_memory"], device.released) == (1, 1)
        device.has_no_room = False
        assert (await mesh.ask("hello", max_tokens=2)).ids


async def test_a_streak_closes_the_node_for_new_sessions_and_quiet_opens_it_again(
    open_hub: OpenMesh, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = Device(monkeypatch)
    async with open_hub([(0, 6)], oom_streak=3, oom_window_seconds=30.0) as (mesh, hub):
        (node,) = mesh.nodes
        node.compute.pace = 1.0
        listed = hub.nodes[node.identity.peer_id]
        answers: list[Any] = []

        async def ask() -> None:
            answers.append(await mesh.ask("hello", max_tokens=12))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            await trio.sleep(1.5)
            device.has_no_kv = True
            await out_of_memory(mesh, 3)
            await trio.sleep(0.5)
            assert listed.status == "Saturated", "said at once, not by the next heartbeat"
            with pytest.raises(RemoteFailure) as caught:
                await mesh.ask("hello")
            assert (caught.value.code, caught.value.retry) == ("model_unavailable", True)
            assert "ran out of memory" in str(caught.value)
        assert len(answers[0].ids) == 12, "the one that runs goes on"
        device.has_no_kv = False
        await trio.sleep(40.0)
        assert listed.status == "Healthy"
        assert (await mesh.ask("hello", max_tokens=2)).ids
        await trio.sleep(3 * BEAT)
        assert listed.ways[-3:] == ["Healthy 0:6", "Saturated 0:6", "Healthy 0:6"]


async def test_a_node_without_memory_is_closed_again_by_one_more_failure(
    open_hub: OpenMesh, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = Device(monkeypatch)
    async with open_hub([(0, 6)], oom_streak=2, oom_window_seconds=10.0) as (mesh, hub):
        listed = hub.nodes[mesh.nodes[0].identity.peer_id]
        device.has_no_kv = True
        await out_of_memory(mesh, 2)
        await trio.sleep(12.0)
        assert listed.status == "Healthy"
        await out_of_memory(mesh, 1)
        await trio.sleep(12.0)
        assert listed.status == "Saturated", "twice as long"
        await trio.sleep(12.0)
        assert listed.status == "Healthy"


async def test_the_stage_that_has_none_is_not_blamed_for_it(
    open_mesh: OpenMesh, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_mesh([3, 3]) as mesh:
        front, back = mesh.nodes
        device = Device(monkeypatch)
        ours = Shard.open_cache

        def at_the_back(shard: Shard, *args: Any) -> Any:
            device.has_no_kv = shard.layers.start == 3
            return ours(shard, *args)

        monkeypatch.setattr(Shard, "open_cache", at_the_back)
        await out_of_memory(mesh)
        await trio.sleep(1.0)
        for node in (front, back):
            status = await mesh.status(node)
            assert (status["kv_bytes"], status["peer_failures"]) == (0, {})
        assert (await mesh.status(front))["out_of_memory"] == 0
        assert (await mesh.status(back))["out_of_memory"] == 1
