"""Which hops are audited."""

from __future__ import annotations

from dataclasses import replace

import pytest
from trio.testing import MockClock

from tessella.core.audits import SUSPECT_HOPS
from tessella.core.ids import PeerId
from tests.musivum.audits.room import (
    BAD,
    Room,
)


async def test_all_hops_of_a_suspect_are_drawn_until_it_has_served_enough(
    room: Room, worker: PeerId, auditors: list[PeerId], autojump_clock: MockClock
) -> None:
    room.audits.standings.put(replace(room.audits.standings.of(worker), hops=400))
    room.works(worker, 100)
    before = room.audits.counters()["drawn"]
    assert before < 20
    await room.judged(auditors[0], BAD)
    room.works(worker, SUSPECT_HOPS)
    assert room.audits.counters()["drawn"] == before + SUSPECT_HOPS
    assert not room.audits.suspects(worker)


async def test_a_proof_that_is_held_back_until_the_rows_are_gone_counts_as_hidden(
    room: Room, worker: PeerId, autojump_clock: MockClock
) -> None:
    began = room.books.clocks.wall()
    room.time.jump(3 * 3600)
    room.audits.settled([room.hop([worker], issued_at=began + 60)])
    assert room.audits.counters()["late"] == 1
    assert room.audits.counters()["open"] == 0
    assert room.audits.standings.of(worker).shown == (False,)


@pytest.mark.parametrize(
    ("issued", "received", "is_open"),
    [
        (-10_000.0, 0.0, True),  # before musivum was there
        (60.0, 100.0, False),  # it came in time, and waited for others since
    ],
)
async def test_what_comes_late_through_no_fault_of_its_worker_speaks_against_nobody(
    room: Room,
    worker: PeerId,
    issued: float,
    received: float,
    is_open: bool,
    autojump_clock: MockClock,
) -> None:
    began = room.books.clocks.wall()
    if not is_open:
        room.time.jump(3 * 3600)
    hop = room.hop([worker], issued_at=began + issued, received_at=began + received)
    room.audits.settled([hop])
    assert room.audits.counters()["open"] == is_open
    assert room.audits.standings.of(worker).shown == ()


async def test_what_nobody_could_look_at_wears_no_suspicion_off(
    room: Room, worker: PeerId, autojump_clock: MockClock
) -> None:
    room.audits.standings.put(room.audits.standings.of(worker).suspected())
    now = room.books.clocks.wall()
    room.audits.settled([room.hop([worker], received_at=now - 3001) for _ in range(SUSPECT_HOPS)])
    assert room.audits.counters()["stale"] == SUSPECT_HOPS
    assert room.audits.standings.of(worker).suspect_left == SUSPECT_HOPS


async def test_what_waits_for_others_is_drawn_meanwhile_and_once(
    room: Room, worker: PeerId, autojump_clock: MockClock
) -> None:
    hop = room.hop([worker])
    room.audits.waiting([hop])
    assert room.audits.counters()["open"] == 1
    room.audits.settled([hop])
    assert room.audits.counters()["drawn"] == 1
    assert room.audits.standings.of(worker).hops == 1


async def test_who_does_not_say_how_it_computes_is_not_audited(
    room: Room, worker: PeerId, autojump_clock: MockClock
) -> None:
    room.audits.settled([room.hop([worker], numeric="")])
    assert room.audits.counters()["undeclared"] == 1
    assert room.audits.counters()["open"] == 0
