"""What canaries marked, and that only the mark itself, of the one who took it, gives away."""

from __future__ import annotations

from dataclasses import replace

import pytest
from trio.testing import MockClock

from musivum.audits import marks as module
from musivum.audits.marks import MARK_SECONDS, MAX_MARKS_EACH, MarkTable
from tessella.core.audits import gain_of
from tessella.core.errors import BadRequest, NotAuthorized
from tessella.core.ids import PeerId
from tessella.core.messages import Mark, Marks
from tests.musivum.audits.room import Room, said

CANARY, COPIER, OTHER = (PeerId(name) for name in ("canary", "copier", "other"))
NOW = 1_800_000_000.0
MARK = Mark(bytes(16), 1.05, COPIER, NOW)


def table(*marks: Mark) -> MarkTable:
    made = MarkTable()
    made.put(CANARY, Marks(marks), NOW)
    return made


def found(marks: MarkTable, copier: PeerId = COPIER, gain: float = 1.0511) -> PeerId | None:
    return marks.find(copier, gain, (NOW - 100, NOW + 100), lambda _: True)


def test_the_gain_of_who_took_a_mark_names_its_canary() -> None:
    assert found(table(MARK)) == CANARY
    assert found(table(MARK), copier=OTHER) is None
    assert found(table(MARK), gain=1.056) is None
    assert found(table(MARK), gain=1.0) is None
    assert table(MARK).find(COPIER, 1.05, (NOW - 100, NOW + 100), lambda _: False) is None


def test_only_a_mark_of_the_time_of_the_session_counts() -> None:
    marks = table(MARK)
    assert marks.find(COPIER, 1.05, (NOW - 9, NOW), lambda _: True) == CANARY
    assert marks.find(COPIER, 1.05, (NOW + 1, NOW + 9), lambda _: True) is None
    assert marks.find(COPIER, 1.05, (NOW - 9, NOW - 1), lambda _: True) is None


def test_what_was_said_of_a_session_first_stays() -> None:
    marks = table(MARK)
    marks.put(CANARY, Marks((replace(MARK, copier=OTHER),)), NOW)
    assert found(marks) == CANARY
    assert found(marks, copier=OTHER) is None
    assert len(marks) == 1


@pytest.mark.parametrize(
    "change",
    [{"gain": 1.01}, {"gain": 1.2}, {"gain": float("nan")}, {"gain": -1.05}, {"copier": CANARY},
     {"copier": PeerId("")}, {"copier": PeerId("x" * 65)},
     {"session_id": b""}, {"at": NOW + 3600}, {"at": NOW - 7200}, {"at": float("nan")}],
)  # fmt: skip
def test_what_no_canary_marks_is_refused_with_all_that_came_with_it(
    change: dict[str, object],
) -> None:
    marks = MarkTable()
    with pytest.raises(BadRequest):
        marks.put(CANARY, Marks((MARK, replace(MARK, **change))), NOW)  # type: ignore[arg-type]
    assert len(marks) == 0


def test_every_gain_that_a_canary_may_draw_is_taken() -> None:
    gains = [gain_of(b"key", bytes([number])) for number in range(200)]
    for start in range(0, 200, 50):
        marks = [
            replace(MARK, session_id=number.to_bytes(16, "big"), gain=gains[number])
            for number in range(start, start + 50)
        ]
        assert len(table(*marks)) == 50


def test_marks_are_forgotten_after_an_hour_and_beyond_so_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    marks = table(MARK, replace(MARK, session_id=b"2" * 16, at=NOW - 60))
    marks.expire(NOW + MARK_SECONDS - 30)
    assert len(marks) == 1
    marks.expire(NOW + MARK_SECONDS + 1)
    assert len(marks) == 0
    many = [replace(MARK, session_id=n.to_bytes(16, "big")) for n in range(MAX_MARKS_EACH + 5)]
    assert len(table(*many)) == MAX_MARKS_EACH
    monkeypatch.setattr(module, "MAX_CANARIES", 1)
    two = table(MARK)
    two.put(OTHER, Marks((replace(MARK, gain=0.95),)), NOW)
    assert found(two) is None


class Copying:
    """A node that copies from a canary, and who may see it."""

    def __init__(self, room: Room) -> None:
        self.room = room
        self.copier = room.joins(1)
        self.canary = room.joins(2, canary=True)
        self.auditors = [room.joins(number) for number in (11, 12)]

    async def marked(self, copier: PeerId | None = None, gain: float = 1.05) -> None:
        at = self.room.books.clocks.wall()
        mark = Mark(bytes(16), gain, copier or self.copier, at)
        await self.room.audits.marks(self.canary, Marks((mark,)))


@pytest.fixture
def copying(room: Room) -> Copying:
    return Copying(room)


async def test_who_serves_a_canarys_answer_as_its_own_is_barred_when_two_measured_it(
    room: Room, copying: Copying, autojump_clock: MockClock
) -> None:
    await copying.marked()
    room.works(copying.copier)
    await room.judged(copying.auditors[0], said(median=0.05, gain=1.0495))
    assert room.audits.barred(copying.copier) is None
    await room.judged(copying.auditors[1], said(median=0.05, gain=1.0505))
    assert room.audits.barred(copying.copier) == f"copied from {copying.canary}"
    assert room.audits.counters()["copied"] == 1


async def test_a_mark_of_somebody_elses_session_or_gain_accuses_nobody(
    room: Room, copying: Copying, autojump_clock: MockClock
) -> None:
    await copying.marked(copier=copying.auditors[0])
    room.works(copying.copier)
    await room.judged(copying.auditors[0], said(median=0.05, gain=1.0495))
    assert room.audits.barred(copying.copier) is None


async def test_an_honest_gain_is_no_copy_whatever_was_marked(
    room: Room, copying: Copying, autojump_clock: MockClock
) -> None:
    await copying.marked(gain=0.97)
    room.works(copying.copier)
    await room.judged(copying.auditors[0], said(gain=0.998))
    assert room.audits.barred(copying.copier) is None
    assert room.audits.counters()["passed"] == 1


async def test_the_word_of_a_canary_that_is_barred_counts_for_nothing(
    room: Room, copying: Copying, autojump_clock: MockClock
) -> None:
    await copying.marked()
    await room.audits.slash(copying.canary, "lied")
    room.works(copying.copier)
    await room.judged(copying.auditors[0], said(median=0.05, gain=1.0495))
    assert room.audits.barred(copying.copier) is None


async def test_a_canary_cannot_be_its_own_witness(
    room: Room, copying: Copying, autojump_clock: MockClock
) -> None:
    await copying.marked()
    room.works(copying.copier)
    await room.judged(copying.canary, said(median=0.05, gain=1.0495))
    assert room.audits.barred(copying.copier) is None


async def test_any_node_may_mark_and_a_stranger_may_not(
    room: Room, copying: Copying, autojump_clock: MockClock
) -> None:
    mark = Mark(bytes(16), 1.05, copying.copier, room.books.clocks.wall())
    await room.audits.marks(copying.auditors[0], Marks((mark,)))
    with pytest.raises(NotAuthorized):
        await room.audits.marks(PeerId("nobody"), Marks((mark,)))


async def test_a_mark_alone_harms_nobody(
    room: Room, copying: Copying, autojump_clock: MockClock
) -> None:
    mark = Mark(bytes(16), 1.05, copying.copier, room.books.clocks.wall())
    await room.audits.marks(copying.auditors[0], Marks((mark,)))
    room.works(copying.copier)
    await room.judged(copying.auditors[1], said())
    assert room.audits.barred(copying.copier) is None
    assert not room.audits.suspects(copying.copier)
