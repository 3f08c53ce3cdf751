from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import pytest
import torch
import trio
import trio.testing

from tessella.core.errors import BadTensor, ContextTooLong, OutOfTurn, PeerReset, PositionGap
from tessella.core.ids import SessionId
from tessella.core.messages import Cancel
from tessella.core.session import Lease, NeighbourLost, State
from tessella.core.shapes import DType
from tessella.core.tensors import WireTensor
from tessella.engine.compute import Job
from tessella.engine.shard import Shard
from tessella.worker.counters import Counters
from tessella.worker.stage import Outcome, Stage

T = TypeVar("T")


class Inline:
    """Computes at once, or not before `go` is set; like the real one it ends what it began."""

    def __init__(self) -> None:
        self.counter = 0
        self.go: trio.Event | None = None
        self.urgent: list[bool] = []

    async def run(self, work: Callable[[Job], T], *, urgent: bool = False) -> T:
        self.urgent.append(urgent)
        if self.go is not None:
            with trio.CancelScope(shield=True):
                await self.go.wait()
        return work(_Job())


class _Job(Job):
    def __init__(self) -> None: ...

    def advance(self) -> None: ...


class Next:
    """An `Onward` that keeps what it gets."""

    def __init__(self) -> None:
        self.sent: list[tuple[Outcome, int, int, bool]] = []

    def finish(self, shard: Shard, output: torch.Tensor, upto: int, sample: bool) -> Outcome:
        return shard.to_wire(output, DType.F32)

    async def send(self, outcome: Outcome, position: int, upto: int, sample: bool) -> None:
        self.sent.append((outcome, position, upto, sample))


def a_stage(shard: Shard, compute: Inline, capacity: int = 8) -> Stage:
    lease = Lease(SessionId(b"s" * 16), 0, capacity)
    return Stage(lease, shard.layers, shard, compute, Counters())


async def test_chunks_and_single_steps_give_what_one_piece_gives(toy_shard: Shard) -> None:
    whole, parts = Next(), Next()
    await a_stage(toy_shard, Inline()).run_ids([1, 2, 3], 0, True, whole)
    compute = Inline()
    stage = a_stage(toy_shard, compute)
    await stage.run_ids([1, 2], 0, False, parts)
    await stage.run_ids([3], 2, True, parts)
    assert [sent[1:] for sent in parts.sent] == [(0, 2, False), (2, 3, True)]
    assert compute.urgent == [False, True]
    one, last = whole.sent[0][0], parts.sent[1][0]
    assert isinstance(one, WireTensor)
    assert isinstance(last, WireTensor)
    whole_last = toy_shard.from_wire(one)[-1]
    assert torch.allclose(toy_shard.from_wire(last)[0], whole_last, atol=1e-4)


async def test_a_lower_position_rolls_back(toy_shard: Shard) -> None:
    stage, onward = a_stage(toy_shard, Inline()), Next()
    await stage.run_ids([1, 2, 3], 0, False, onward)
    await stage.run_ids([9], 1, False, onward)
    assert stage.lease.held == 2


@pytest.mark.parametrize(
    ("count", "position", "error"), [(1, 1, PositionGap), (9, 0, ContextTooLong)]
)
async def test_a_step_that_cannot_be_leaves_the_session_as_it_was(
    toy_shard: Shard, count: int, position: int, error: type[Exception]
) -> None:
    stage, onward = a_stage(toy_shard, Inline()), Next()
    with pytest.raises(error):
        await stage.run_ids([1] * count, position, False, onward)
    await stage.run_ids([1], 0, False, onward)
    assert stage.lease.held == 1


async def test_a_step_that_fails_holds_nothing_more(toy_shard: Shard) -> None:
    stage, onward = a_stage(toy_shard, Inline()), Next()
    nan = WireTensor("f32", (1, 64), b"\xff" * 256)
    with pytest.raises(BadTensor, match="finite"):
        await stage.run_hidden(nan, 0, False, onward)
    assert (stage.lease.held, onward.sent) == (0, [])


async def test_a_closed_session_takes_no_step(toy_shard: Shard) -> None:
    stage = a_stage(toy_shard, Inline())
    stage.lease = stage.lease.close(Cancel)
    with pytest.raises(OutOfTurn, match="closed"):
        await stage.run_ids([1], 0, False, Next())


async def test_a_session_that_ends_during_a_step_stays_ended(toy_shard: Shard) -> None:
    compute, onward = Inline(), Next()
    compute.go = trio.Event()
    stage = a_stage(toy_shard, compute)
    with pytest.raises(PeerReset):
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(stage.run_ids, [1], 0, False, onward)
                await trio.testing.wait_all_tasks_blocked()
                stage.lease = stage.lease.park(NeighbourLost, 1.0)
                compute.go.set()
                raise PeerReset("the neighbour is gone")
        except ExceptionGroup as group:
            raise group.exceptions[0] from None
    assert stage.lease.state is State.PARKED
    assert onward.sent == []
