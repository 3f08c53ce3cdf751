"""Where a task sends its auditor."""

from __future__ import annotations

from dataclasses import replace

from trio.testing import MockClock

from tessella.core.ids import PeerId
from tests.musivum.audits.room import (
    FIRST,
    LAST,
    Room,
    sides,
)


async def test_a_task_sends_its_auditor_to_the_stage_before_and_to_the_audited(
    room: Room, autojump_clock: MockClock
) -> None:
    chain = [room.joins(1, FIRST), room.joins(2, LAST)]
    auditor = room.joins(11)
    settlement = room.hop(chain, 1)
    room.audits.settled([settlement])
    task = await room.gets(auditor)
    assert (task.proof, task.proof_signature) == (settlement.signed.payload, bytes(64))
    assert sides(task) == [(chain[0], "outputs"), (chain[1], "outputs")]
    assert task.inputs_addrs == task.outputs_addrs == room.books.roster.node(chain[0]).row.addrs


async def test_rows_of_a_spare_are_asked_of_the_spare(
    room: Room, autojump_clock: MockClock
) -> None:
    chain, spare = [room.joins(1, FIRST), room.joins(2, LAST)], room.joins(3, FIRST)
    hop = room.hop(chain, 1)
    proof = replace(hop.claim.proof, sender=spare)
    room.audits.settled([replace(hop, claim=replace(hop.claim, proof=proof))])
    room.books.roster.leave(chain[0])
    assert sides(await room.gets(room.joins(11))) == [(spare, "outputs"), (chain[1], "outputs")]


async def test_of_an_entry_the_token_ids_are_asked_for(
    room: Room, worker: PeerId, auditors: list[PeerId], autojump_clock: MockClock
) -> None:
    room.works(worker)
    assert sides(await room.gets(auditors[0])) == [(worker, "inputs"), (worker, "outputs")]
