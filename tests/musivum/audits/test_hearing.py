"""What follows from what auditors say: suspicion at once, the rest when it is sure."""

from __future__ import annotations

import pytest
from trio.testing import MockClock

from musivum.audits.queue import OPEN_SECONDS
from musivum.placing.grants import Grants
from tessella.core.errors import NotAuthorized
from tessella.core.ids import PeerId
from tessella.core.messages import AskGrant, AuditReport
from tests.musivum.audits.room import (
    BAD,
    CONFIG,
    FIRST,
    GOOD,
    IS_UNABLE,
    LAST,
    MODEL,
    SAYS_FRAUD,
    SEES_A_SKETCH,
    SEES_NOTHING,
    SEES_TOO_LITTLE,
    US,
    Room,
    a_room,
    peer,
    said,
)


async def test_one_rejection_makes_a_suspect_and_is_looked_at_again_at_once(
    room: Room, worker: PeerId, auditors: list[PeerId], autojump_clock: MockClock
) -> None:
    room.works(worker, 3)
    first = await room.gets(auditors[0])
    await room.gets(auditors[1])
    await room.tells(auditors[0], first, BAD)
    assert room.audits.suspects(worker)
    assert room.audits.standings.of(worker).record.findings == (), "not before a second look"
    task = await room.asks(auditors[1])
    assert task is not None
    assert task.proof == first.proof, "before what nobody looked at yet"
    await room.tells(auditors[1], task, BAD)
    findings = room.audits.standings.of(worker).record.findings
    assert [each.auditor for each in findings] == auditors[:2]
    assert room.audits.barred(worker) is None


async def test_a_second_auditor_that_passes_makes_suspects_of_both_and_a_third_decides(
    room: Room, worker: PeerId, auditors: list[PeerId], autojump_clock: MockClock
) -> None:
    liar, second, third = auditors
    for auditor in auditors:
        await room.asks(auditor)
    room.works(worker)
    await room.judged(liar, BAD)
    await room.judged(second, GOOD)
    assert room.audits.suspects(liar)
    assert room.audits.suspects(second)
    assert await room.asks(liar) is None, "no suspect judges others"
    await room.judged(third, GOOD)
    assert not room.audits.suspects(worker)
    assert not room.audits.suspects(second)
    assert room.audits.suspects(liar)
    assert room.audits.standings.of(liar).outvoted == 1
    assert room.audits.standings.of(second).outvoted == 0
    assert room.audits.counters()["split"] == 1
    (finding,) = room.audits.standings.of(worker).record.findings
    assert finding.auditor == third


async def test_without_a_third_auditor_a_split_counts_for_nobody(
    room: Room, worker: PeerId, auditors: list[PeerId], autojump_clock: MockClock
) -> None:
    await room.asks(auditors[1])
    room.works(worker)
    await room.judged(auditors[0], BAD)
    await room.judged(auditors[1], GOOD)
    room.time.jump(OPEN_SECONDS + 1)
    await room.audits.tick()
    assert room.audits.counters()["undecided"] == 1
    assert room.audits.standings.of(worker).record.findings == ()
    assert room.audits.suspects(worker)


async def test_a_rejection_that_nobody_else_can_look_at_counts_once(
    room: Room, worker: PeerId, auditors: list[PeerId], autojump_clock: MockClock
) -> None:
    room.works(worker)
    await room.judged(auditors[0], BAD)
    room.time.jump(601)
    await room.audits.tick()
    assert len(room.audits.standings.of(worker).record.findings) == 1


async def test_rows_that_are_gone_are_nothing_against_the_audited(
    room: Room, autojump_clock: MockClock
) -> None:
    chain = [room.joins(1, FIRST), room.joins(2, LAST)]
    auditors = [room.joins(number) for number in (11, 12, 13)]
    for auditor in auditors:
        await room.asks(auditor)
    room.audits.settled([room.hop(chain, 1)])
    await room.judged(auditors[0], SEES_NOTHING)
    assert room.audits.counters()["unavailable"] == 0, "another one may be luckier"
    await room.judged(auditors[1], SEES_NOTHING)
    assert room.audits.counters()["unavailable"] == 1
    assert room.audits.standings.of(chain[1]).shown == ()
    assert room.audits.standings.of(chain[0]).shown == (False,)


@pytest.mark.parametrize(("hidden", "suspected"), [(10, False), (11, True)])
async def test_who_hides_more_than_half_of_its_last_audits_is_a_suspect(
    room: Room,
    worker: PeerId,
    auditors: list[PeerId],
    hidden: int,
    suspected: bool,
    autojump_clock: MockClock,
) -> None:
    room.works(worker, 20)
    said_of = iter([SEES_A_SKETCH] * hidden + [GOOD] * (20 - hidden))
    await room.audited(auditors, lambda *_: next(said_of))
    assert room.audits.counters()["passed"] == 20
    assert room.audits.suspects(worker) is suspected


async def test_one_word_of_fraud_is_a_rejection_and_two_are_the_end(
    room: Room, worker: PeerId, auditors: list[PeerId], autojump_clock: MockClock
) -> None:
    await room.asks(auditors[1])
    room.works(worker)
    await room.judged(auditors[0], SAYS_FRAUD)
    assert room.audits.barred(worker) is None
    await room.judged(auditors[1], said("malformed"))
    reason = room.audits.barred(worker)
    assert reason == "the output is none of any layers"
    assert room.removed == [worker]
    assert room.audits.counters()["slashed"] == 1


async def test_the_open_audits_of_who_is_barred_are_let_go(
    room: Room, worker: PeerId, auditors: list[PeerId], autojump_clock: MockClock
) -> None:
    room.works(worker, 5)
    await room.audits.slash(worker, "caught")
    assert room.audits.counters()["open"] == 0
    room.works(worker)
    assert room.audits.counters()["open"] == 0


async def test_an_entry_that_hides_what_it_was_asked_gets_no_tickets_for_a_day(
    room: Room, worker: PeerId, auditors: list[PeerId], autojump_clock: MockClock
) -> None:
    grants = Grants(US, CONFIG, room.books, room.ledger, room.audits)
    anonymous, named = AskGrant(MODEL, 10, True, b""), AskGrant(MODEL, 10, False, b"")
    first = await grants.grant(worker, anonymous)
    assert first.ticket
    room.works(worker, 11)
    await room.audited(auditors, lambda *_: SEES_NOTHING)
    with pytest.raises(NotAuthorized, match="no tickets for a day"):
        await grants.grant(worker, anonymous)
    for _ in range(20):
        granted = await grants.grant(peer(99), named)
        assert worker.encode() not in granted.ticket
    reopened = await room.reopened()
    assert reopened.audits.is_benched(worker)
    assert (await a_room(autojump_clock)).audits.is_benched(worker) is False


@pytest.mark.parametrize("said_of", [SEES_A_SKETCH, SEES_TOO_LITTLE, IS_UNABLE])
async def test_rows_that_are_gone_cost_nobody_its_tickets(
    room: Room,
    worker: PeerId,
    auditors: list[PeerId],
    said_of: AuditReport,
    autojump_clock: MockClock,
) -> None:
    room.works(worker, 20)
    await room.audited(auditors, lambda *_: said_of)
    assert not room.audits.is_benched(worker)


async def test_one_auditor_alone_costs_nobody_its_tickets(
    room: Room, worker: PeerId, autojump_clock: MockClock
) -> None:
    rival = room.joins(11)
    for _ in range(20):
        room.works(worker)
        await room.judged(rival, SEES_NOTHING)
        room.time.jump(700)
        await room.audits.tick()
    assert room.audits.counters()["unavailable"] == 20
    assert room.audits.standings.of(worker).shown == ()
    assert not room.audits.is_benched(worker)
