"""What auditors are given, whose word is heard, and what outlives a restart."""

from __future__ import annotations

from dataclasses import replace

import pytest
import trio
from trio.testing import MockClock

from musivum.audits.desk import run_audits
from musivum.audits.giving import MAX_ACCUSED, MAX_HELD, REPORT_SECONDS, REST_SECONDS
from musivum.audits.queue import OPEN_SECONDS
from musivum.testing import clock
from tessella.core.attesting import NEIGHBOUR_SECONDS
from tessella.core.errors import BadRequest, NotAuthorized
from tessella.core.ids import PeerId
from tests.core.work import Work, identity
from tests.musivum.audits.room import (
    BAD,
    GOOD,
    Room,
    peer,
)


async def test_an_auditor_has_few_tasks_at_once(
    room: Room, worker: PeerId, auditors: list[PeerId], autojump_clock: MockClock
) -> None:
    room.works(worker, 5)
    for _ in range(MAX_HELD):
        assert await room.asks(auditors[0]) is not None
        room.time.jump(100)
    assert await room.asks(auditors[0]) is None


async def test_who_lets_a_task_lapse_rests_and_another_has_it(
    room: Room, worker: PeerId, auditors: list[PeerId], autojump_clock: MockClock
) -> None:
    room.works(worker)
    task = await room.gets(auditors[0])
    room.time.jump(REPORT_SECONDS + 1)
    await room.audits.tick()
    with pytest.raises(NotAuthorized):
        await room.tells(auditors[0], task, GOOD)
    room.works(worker)
    room.time.jump(REST_SECONDS / 2)
    assert await room.asks(auditors[0]) is None
    again = await room.gets(auditors[1])
    assert again.proof == task.proof
    assert again.audit_id != task.audit_id, "an order is good for once"
    assert room.audits.counters()["unreported"] == 1


async def test_a_report_is_heard_once_and_from_its_auditor_alone(
    room: Room, worker: PeerId, auditors: list[PeerId], autojump_clock: MockClock
) -> None:
    room.works(worker)
    task = await room.gets(auditors[0])
    with pytest.raises(NotAuthorized):
        await room.tells(auditors[1], task, BAD)
    with pytest.raises(NotAuthorized):
        await room.audits.report(auditors[0], replace(GOOD, audit_id=bytes(16)))
    await room.tells(auditors[0], task, GOOD)
    with pytest.raises(NotAuthorized):
        await room.tells(auditors[0], task, BAD)
    assert room.audits.counters()["passed"] == 1
    assert room.audits.counters()["open"] == 0


@pytest.mark.parametrize(
    ("change", "named"),
    [({"found": "guilty"}, "guilty"), ({"tokens": -1}, "tokens"), ({"reference": b""}, "hash")],
)
async def test_a_report_out_of_its_rules_changes_nothing(
    room: Room,
    worker: PeerId,
    auditors: list[PeerId],
    change: dict[str, object],
    named: str,
    autojump_clock: MockClock,
) -> None:
    room.works(worker)
    task = await room.gets(auditors[0])
    with pytest.raises(BadRequest, match=named):
        await room.tells(auditors[0], task, replace(GOOD, **change))  # type: ignore[arg-type]
    await room.tells(auditors[0], task, GOOD)


async def test_what_nobody_audits_within_an_hour_expires(
    room: Room, worker: PeerId, autojump_clock: MockClock
) -> None:
    room.works(worker, 3)
    room.time.jump(OPEN_SECONDS + 1)
    await room.audits.tick()
    assert room.audits.counters() == {
        "open": 0,
        "drawn": 3,
        "expired": 3,
        "passed": 0,
        "rejected": 0,
        "slashed": 0,
        "unavailable": 0,
    }
    assert not room.audits.suspects(worker)


async def test_who_speaks_against_everybody_is_asked_on_when_others_have_looked(
    room: Room, auditors: list[PeerId], autojump_clock: MockClock
) -> None:
    liar, *others = auditors
    for auditor in auditors:
        await room.asks(auditor)
    for number in range(1, 6):
        room.works(room.joins(number), 1)
    for _ in range(MAX_ACCUSED):
        await room.judged(liar, BAD)
    room.time.jump(100)
    assert await room.asks(liar) is None
    assert len([n for n in range(1, 6) if room.audits.suspects(peer(n))]) == MAX_ACCUSED
    await room.audited(others, lambda *_: GOOD)
    assert room.audits.counters()["open"] == 0
    assert [n for n in range(1, 6) if room.audits.suspects(peer(n))] == []
    assert room.audits.suspects(liar)


async def test_two_proofs_where_one_may_be_make_a_suspect(
    room: Room, worker: PeerId, autojump_clock: MockClock
) -> None:
    room.audits.conflicted([room.hop([worker]).claim])
    assert room.audits.suspects(worker)


@pytest.mark.parametrize("was_paid", [False, True], ids=["before it is paid", "after it was"])
async def test_who_commits_to_other_rows_than_it_vouched_for_is_a_suspect_and_nobody_beside_it(
    room: Room, was_paid: bool, autojump_clock: MockClock
) -> None:
    chain = [room.joins(number) for number in (1, 2, 3)]
    work = Work([identity(number) for number in (1, 2, 3)], issued_at=clock())
    entry, tail = work.proof(0), work.proof(2)
    liar = work.proof(1, salt=(b"", b"x"))
    await room.ledger.settle([entry, liar])
    if was_paid:
        await room.ledger.sweep(clock() + NEIGHBOUR_SECONDS)
    assert not any(map(room.audits.suspects, chain))
    for _ in range(2):
        await room.ledger.settle([tail])
    assert [room.audits.suspects(each) for each in chain] == [False, True, False]
    assert room.audits.counters()["refuted"] == 1
    paid = [await room.ledger.balance(each) > 0 for each in chain]
    assert paid == [True, was_paid, True]


@pytest.mark.parametrize(("behind", "is_out"), [((3, 4), True), ((3, 3), False)])
async def test_who_is_shown_to_by_two_that_it_vouched_for_other_rows_is_slashed(
    room: Room, behind: tuple[int, int], is_out: bool, autojump_clock: MockClock
) -> None:
    entry, liar, *_ = chain = [room.joins(number) for number in (1, 2, 3, 4)]
    for number in range(3):
        workers = [identity(1), identity(2), identity(behind[number % 2])]
        request_id = number.to_bytes(16, "big")
        work = Work(workers, issued_at=clock(), request_id=request_id)
        await room.ledger.settle(
            [work.proof(0), work.proof(1, salt=(b"", b"x"), sequence=number), work.proof(2)]
        )
        await room.audits.tick()
        assert bool(room.audits.barred(liar)) is (is_out and number == 2)
    assert not any(
        room.audits.barred(each) or room.audits.suspects(each) for each in chain if each != liar
    )
    assert await room.ledger.balance(liar) == 0 < await room.ledger.balance(entry)
    assert room.removed == ([liar] if is_out else [])


async def test_standings_outlive_a_restart_and_open_audits_do_not(
    room: Room, worker: PeerId, auditors: list[PeerId], autojump_clock: MockClock
) -> None:
    room.works(worker, 5)
    await room.asks(auditors[1])
    await room.judged(auditors[0], BAD)
    await room.judged(auditors[1], BAD)
    before = room.audits.standings.of(worker)
    again = await room.reopened()
    assert again.audits.standings.of(worker) == before
    assert again.audits.suspects(worker)
    assert again.audits.counters()["open"] == 0


async def test_what_time_asks_for_is_done_while_the_room_runs(
    room: Room, worker: PeerId, autojump_clock: MockClock
) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(run_audits, room.audits)
        room.works(worker)
        await trio.sleep(OPEN_SECONDS + 10)
        assert room.audits.counters()["expired"] == 1
        room.works(worker)
        nursery.cancel_scope.cancel()
    again = await room.reopened()
    assert again.audits.standings.of(worker).hops == 2
