from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import pytest
import torch
import trio
import trio.testing

from tessella.core.commitments import Rows
from tessella.core.errors import BadTensor, ContextTooLong, OutOfTurn, PeerReset, PositionGap
from tessella.core.ids import SessionId
from tessella.core.layers import LayerRange
from tessella.core.messages import Cancel, Hidden
from tessella.core.session import Lease, NeighbourLost, State
from tessella.core.shapes import DType
from tessella.core.tensors import WireTensor
from tessella.core.tiers import Tier
from tessella.engine.compute import Job
from tessella.engine.sampler import Choice
from tessella.engine.shard import Shard
from tessella.worker.counters import Counters
from tessella.worker.proofs.witness import Bill, Ticketing, Witness
from tessella.worker.stage import Outcome, Stage

T = TypeVar("T")


class Inline:
    """Computes at once, or not before `go` is set; like the real one it ends what it began."""

    def __init__(self) -> None:
        self.counter = 0
        self.go: trio.Event | None = None
        self.urgent: list[bool] = []
        self.tiers: list[Tier] = []

    async def run(
        self, work: Callable[[Job], T], *, urgent: bool = False, tier: Tier = Tier.LEECH
    ) -> T:
        self.urgent.append(urgent)
        self.tiers.append(tier)
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


async def test_every_step_is_computed_in_the_tier_of_its_session(toy_shard: Shard) -> None:
    compute, onward = Inline(), Next()
    lease = Lease(SessionId(b"s" * 16), 0, 8)
    stage = Stage(lease, toy_shard.layers, toy_shard, compute, Counters(), tier=Tier.VIP)
    await stage.run_ids([1, 2], 0, False, onward)
    await stage.run_hidden(hidden(toy_shard.to_wire(toy_shard.embed([3]), DType.F32), 2), onward)
    assert compute.tiers == [Tier.VIP, Tier.VIP]
    await a_stage(toy_shard, compute).run_ids([1], 0, True, onward)
    assert compute.tiers[2:] == [Tier.LEECH]


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
        await stage.run_hidden(hidden(nan, 0), onward)
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


def hidden(tensor: WireTensor, position: int) -> Hidden:
    """It asks for a token."""
    return Hidden(SessionId(b"s" * 16), 0, position, tensor, sample=True)


def a_witness() -> Witness:
    return Witness(Ticketing(b"", b"", b"r" * 16, LayerRange(0, 6), DType.F32))


class Chooses(Next):
    """A tail: within a prefill it gives nothing."""

    def finish(self, shard: Shard, output: torch.Tensor, upto: int, sample: bool) -> Outcome:
        return Choice(7, 0.0, ()) if sample else None


async def test_a_witness_sees_on_both_sides_what_the_neighbours_see(toy_shard: Shard) -> None:
    first, last = a_stage(toy_shard, Inline()), a_stage(toy_shard, Inline())
    first.witness, last.witness = a_witness(), a_witness()
    sent = Next()
    await first.run_ids([1, 2], 0, False, sent)
    await first.run_ids([3], 2, True, sent)
    for outcome, position, _, sample in sent.sent:
        assert isinstance(outcome, WireTensor)
        await last.run_hidden(replace(hidden(outcome, position), sample=sample), Chooses())
    before, after = first.witness.bill(), last.witness.bill()
    ids = Rows()
    ids.put(0, b"".join(each.to_bytes(4, "little") for each in (1, 2, 3)), 3)
    assert before.inputs == ids.commit()
    assert before.outputs == after.inputs
    # The tail binds itself to hidden states too, those of a prefill among them.
    assert (after.outputs.stop, after.start) == (3, 0)
    assert after.outputs != after.inputs


async def test_a_step_that_failed_was_not_seen(toy_shard: Shard) -> None:
    class Fails(Next):
        def finish(self, shard: Shard, output: torch.Tensor, upto: int, sample: bool) -> Outcome:
            raise PeerReset("gone")

    stage = a_stage(toy_shard, Inline())
    stage.witness = a_witness()
    with pytest.raises(PeerReset):
        await stage.run_ids([1, 2], 0, True, Fails())
    assert not stage.witness.owes


async def test_work_that_nobody_billed_is_abandoned_with_the_memory(toy_shard: Shard) -> None:
    abandoned: list[Bill] = []
    ticketing = Ticketing(b"", b"", b"r" * 16, LayerRange(0, 6), DType.F32)
    stage = a_stage(toy_shard, Inline())
    stage.witness = Witness(ticketing, abandoned=abandoned.append)
    await stage.run_ids([1, 2], 0, True, Next())
    stage.free()
    assert [bill.positions for bill in abandoned] == [2]
