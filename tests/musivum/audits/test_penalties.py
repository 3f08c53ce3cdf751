"""A culprit loses what it has and no more, once, and gets it back if that was wrong."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from musivum.audits.penalties import Slashed
from musivum.audits.standing import SECONDS_A_DAY
from tessella.core.errors import BadRequest, Refused, StoreUnavailable
from tessella.core.ids import PeerId
from tessella.core.ledger import SLASHED, Line
from tests.musivum.audits.room import BAD, Room, peer

CREDIT = 1_000_000


async def convicted(room: Room, worker: PeerId) -> None:
    """Two auditors reject two hops of it."""
    auditors = [room.joins(number) for number in (11, 12)]
    for auditor in auditors:
        await room.asks(auditor)
    room.works(worker, 2)
    await room.audited(auditors, lambda *_: BAD)
    assert room.audits.is_barred(worker)


async def test_who_is_guilty_loses_a_hundred_hops_and_the_day(
    room: Room, worker: PeerId, autojump_clock: MockClock
) -> None:
    await room.earns(worker, 50 * CREDIT)
    room.time.jump(2 * SECONDS_A_DAY)
    await room.earns(worker, 30 * CREDIT)
    await room.earns(worker, 200 * CREDIT)
    room.time.jump(SECONDS_A_DAY)
    await room.earns(worker, 7 * CREDIT)
    await convicted(room, worker)
    # Twelve layers by 50 positions are 0.6 credits.
    lost = 60 * CREDIT + 7 * CREDIT
    (entry,) = await room.entries("slash")
    assert entry.lines == (Line(worker, -lost), Line(SLASHED, lost))
    assert entry.reason.startswith("bf16/bf16/bf16 over 12 layers: median error 0.5 is above")
    assert await room.ledger.balance(worker) == 287 * CREDIT - lost
    assert room.audits.barred(worker) == entry.reason
    assert room.removed == [worker]
    assert room.books.roster.find(worker) is None


async def test_nobody_is_fined_below_nothing(
    room: Room, worker: PeerId, autojump_clock: MockClock
) -> None:
    await room.earns(worker, CREDIT)
    await convicted(room, worker)
    assert await room.ledger.balance(worker) == 0
    assert await room.ledger.balance(SLASHED) == CREDIT


async def test_a_culprit_without_credits_is_barred_all_the_same(
    room: Room, worker: PeerId, autojump_clock: MockClock
) -> None:
    await convicted(room, worker)
    (entry,) = await room.entries("slash")
    assert entry.lines == ()


async def test_a_bar_lasts_thirty_days(
    room: Room, worker: PeerId, autojump_clock: MockClock
) -> None:
    await convicted(room, worker)
    room.time.jump(30 * SECONDS_A_DAY - 60)
    assert room.audits.barred(worker) is not None
    room.time.jump(61)
    assert room.audits.barred(worker) is None
    assert room.audits.suspects(worker)


async def test_a_bar_holds_while_the_store_cannot_write_and_its_fine_follows(
    room: Room, worker: PeerId, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    await room.earns(worker, 500 * CREDIT)
    write = room.ledger.write

    async def full(_: object) -> object:
        raise StoreUnavailable("the disk is full")

    monkeypatch.setattr(room.ledger, "write", full)
    await convicted(room, worker)
    assert await room.ledger.balance(worker) == 500 * CREDIT
    monkeypatch.setattr(room.ledger, "write", write)
    for _ in range(3):
        await room.audits.tick()
    assert await room.ledger.balance(worker) == 0
    assert len(await room.entries("slash")) == 1


async def test_a_fine_that_is_owed_outlives_a_restart_and_is_taken_once(
    room: Room, worker: PeerId, autojump_clock: MockClock
) -> None:
    await room.earns(worker, 500 * CREDIT)
    now = room.books.clocks.wall()
    standing = room.audits.standings.of(worker)
    room.audits.standings.put(standing.barred("caught", now + 100, now, owed=20 * CREDIT))
    again = await room.reopened()
    assert again.audits.barred(worker) == "caught"
    assert again.books.roster.find(worker) is None, "who is barred is not listed again"
    await again.audits.tick()
    once_more = await again.reopened()
    await once_more.audits.tick()
    assert len(await room.entries("slash")) == 1
    assert once_more.audits.standings.of(worker).fined == 500 * CREDIT


async def test_a_fine_that_two_are_about_to_take_is_taken_once(
    room: Room, worker: PeerId, autojump_clock: MockClock
) -> None:
    await room.earns(worker, 500 * CREDIT)
    now = room.books.clocks.wall()
    standing = room.audits.standings.of(worker)
    room.audits.standings.put(standing.barred("caught", now + 100, now, owed=20 * CREDIT))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(room.audits.tick)
        nursery.start_soon(room.audits.tick)
    assert len(await room.entries("slash")) == 1


async def test_an_operator_slashes_with_a_sum_and_days(
    room: Room, worker: PeerId, autojump_clock: MockClock
) -> None:
    await room.earns(worker, 10 * CREDIT)
    slashed = await room.audits.slash(worker, "sold its key\x1b[2J", 4 * CREDIT, 2)
    now = room.books.clocks.wall()
    (entry,) = await room.entries("slash")
    assert slashed == Slashed(-4 * CREDIT, 6 * CREDIT, slashed.until, entry.sequence)
    assert slashed.until == pytest.approx(now + 2 * SECONDS_A_DAY)
    assert entry.reason == room.audits.barred(worker) == "sold its key[2J"
    assert room.removed == [worker]
    assert room.audits.counters()["slashed"] == 1


async def test_without_a_sum_an_operator_takes_what_a_day_brought(
    room: Room, worker: PeerId, autojump_clock: MockClock
) -> None:
    await room.earns(worker, 10 * CREDIT)
    room.time.jump(2 * SECONDS_A_DAY)
    await room.earns(worker, 3 * CREDIT)
    assert (await room.audits.slash(worker, "caught")).micro == -3 * CREDIT


async def test_no_days_take_the_fine_alone(
    room: Room, worker: PeerId, autojump_clock: MockClock
) -> None:
    await room.earns(worker, 10 * CREDIT)
    slashed = await room.audits.slash(worker, "rude", CREDIT, 0)
    assert slashed.until is None
    assert room.audits.barred(worker) is None
    assert room.removed == []


@pytest.mark.parametrize(
    ("who", "micro", "days", "named"),
    [("nobody", 1, 1, "no peer"), (peer(1), -1, 1, "-1"), (peer(1), 1, -1, "days"),
     (peer(1), 1, 10**6, "days"), (peer(1), 1, float("nan"), "days")],
)  # fmt: skip
async def test_an_order_out_of_its_rules_does_nothing(
    room: Room, who: str, micro: int, days: float, named: str, autojump_clock: MockClock
) -> None:
    with pytest.raises(BadRequest, match=named):
        await room.audits.slash(PeerId(who), "x", micro, days)
    assert await room.entries("slash") == []


async def test_an_order_that_cannot_be_kept_is_not_done(
    room: Room, worker: PeerId, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    async def full(_: object) -> object:
        raise StoreUnavailable("the disk is full")

    monkeypatch.setattr(room.ledger, "write", full)
    with pytest.raises(StoreUnavailable):
        await room.audits.slash(worker, "caught")
    assert room.audits.barred(worker) is None


async def test_an_appeal_gives_back_what_was_taken_and_clears_the_record(
    room: Room, worker: PeerId, autojump_clock: MockClock
) -> None:
    await room.earns(worker, 500 * CREDIT)
    await convicted(room, worker)
    back = await room.audits.appeal(worker, "its disk was broken")
    assert (back.micro, back.balance, back.until) == (500 * CREDIT, 500 * CREDIT, None)
    (entry,) = await room.entries("appeal")
    assert (entry.reason, entry.sequence) == ("its disk was broken", back.sequence)
    assert entry.lines == (Line(worker, 500 * CREDIT), Line(SLASHED, -500 * CREDIT))
    assert room.audits.barred(worker) is None
    assert not room.audits.suspects(worker)
    assert room.audits.standings.counts(worker).slashes == 0
    with pytest.raises(Refused, match="nothing is held"):
        await room.audits.appeal(worker)


async def test_two_fines_are_given_back_together(
    room: Room, worker: PeerId, autojump_clock: MockClock
) -> None:
    await room.earns(worker, 10 * CREDIT)
    await room.audits.slash(worker, "one", 2 * CREDIT)
    await room.audits.slash(worker, "two", 3 * CREDIT)
    assert (await room.audits.appeal(worker)).micro == 5 * CREDIT
