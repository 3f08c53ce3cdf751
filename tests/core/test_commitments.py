"""What a stage binds itself to, and what two neighbours have in common."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tessella.core.commitments import (
    FIRST_LENGTHS,
    LAST_LENGTHS,
    MARK_BYTES,
    MAX_MARKS,
    Rows,
    are_at_odds,
    check_commit,
    in_common,
    step_of,
)
from tessella.core.errors import BadFrame, LocalError
from tessella.core.messages import Commit


def rows(count: int, *, changed: int | None = None) -> Rows:
    """`count` rows of four bytes; from `changed` on they are other rows."""
    made = Rows()
    for position in range(count):
        other = changed is not None and position >= changed
        made.put(position, position.to_bytes(3, "big") + bytes([other]), 1)
    return made


def test_the_digest_is_that_of_the_digests_of_the_rows() -> None:
    made = Rows()
    made.put(0, b"aabb", 2)
    parts = [hashlib.blake2b(row, digest_size=16).digest() for row in (b"aa", b"bb")]
    assert made.commit().digest == hashlib.blake2b(b"".join(parts), digest_size=32).digest()


@given(st.lists(st.integers(1, 40), min_size=1, max_size=12))
def test_how_the_rows_are_cut_into_chunks_makes_no_difference(sizes: list[int]) -> None:
    chunked, total = Rows(), sum(sizes)
    position = 0
    for size in sizes:
        data = b"".join((position + n).to_bytes(3, "big") + b"\0" for n in range(size))
        chunked.put(position, data, size)
        position += size
    assert chunked.commit() == rows(total).commit()


@given(st.lists(st.tuples(st.integers(0, 80), st.integers(1, 40)), min_size=1, max_size=12))
def test_whatever_was_put_again_a_commit_is_to_the_rows_that_are_left(
    steps: list[tuple[int, int]],
) -> None:
    made, left = Rows(), list[bytes]()
    for number, (position, count) in enumerate(steps):
        at, before = min(position, len(made)), made.copy()
        made.put(at, bytes([number]) * count, count)
        left[at:] = [bytes([number])] * count
        at_once = Rows()
        at_once.put(0, b"".join(left), len(left))
        assert made.commit() == at_once.commit()
        assert len(made) == len(left)
        before.put(0, b"other", 1)
        assert made.commit() == at_once.commit(), "a copy is another"


def test_marks_are_digests_of_as_many_rows() -> None:
    commit, step = rows(100).commit(), 16
    marks = [commit.marks[at : at + step] for at in range(0, len(commit.marks), step)]
    lengths = [*FIRST_LENGTHS, 32, 64, 96]
    assert marks == [rows(length).commit().digest[:step] for length in lengths]
    last = [commit.last[at : at + step] for at in range(0, len(commit.last), step)]
    assert last == [rows(length).commit().digest[:step] for length in (99, 98, 97, 96)]


def test_rows_put_again_take_the_place_of_what_stood_there_and_behind() -> None:
    made = rows(20, changed=5)
    for position in range(5, 9):
        made.put(position, position.to_bytes(3, "big") + b"\0", 1)
    assert made.commit() == rows(9).commit()


@pytest.mark.parametrize(("position", "data", "count"), [(1, b"a", 1), (0, b"", 0), (0, b"abc", 2)])
def test_rows_after_a_gap_or_of_no_size_are_a_bug_of_ours(
    position: int, data: bytes, count: int
) -> None:
    with pytest.raises(LocalError):
        Rows().put(position, data, count)


@pytest.mark.parametrize("count", [1, 2, 31, 32, 33, 500, 1024, 1025, 5000])
def test_a_commit_stays_small_however_long_the_session(count: int) -> None:
    commit = rows(count).commit()
    check_commit(commit)
    multiples, first = count // step_of(count), sum(each <= count for each in FIRST_LENGTHS)
    assert multiples <= MAX_MARKS
    assert len(commit.marks) == MARK_BYTES * (first + multiples)
    assert len(commit.last) == MARK_BYTES * min(LAST_LENGTHS, count - 1)


@pytest.mark.parametrize(
    ("ours", "theirs", "agreed"),
    [
        (700, 700, 700),
        (700, 699, 699),  # a decode step apart
        (700, 512, 512),  # a chunk of the prefill apart
        (20, 19, 19),
        (20, 10, 8),  # too far apart for any other length
        (100, 1, 1),
        (5000, 4096, 4096),
    ],
)
def test_neighbours_that_were_cut_off_apart_agree_on_what_both_saw(
    ours: int, theirs: int, agreed: int
) -> None:
    a, b = rows(ours).commit(), rows(theirs).commit()
    assert in_common(a, b) == in_common(b, a) == agreed


@given(st.integers(1, 300), st.integers(0, 299))
def test_other_rows_are_never_agreed_on(count: int, changed: int) -> None:
    changed = min(changed, count - 1)
    agreed = in_common(rows(count).commit(), rows(count, changed=changed).commit())
    assert agreed <= changed
    assert are_at_odds(rows(count).commit(), rows(count, changed=changed).commit())


@given(st.integers(1, 200), st.integers(1, 200))
def test_what_is_agreed_on_is_no_more_than_either_has(ours: int, theirs: int) -> None:
    agreed = in_common(rows(ours).commit(), rows(theirs).commit())
    assert 0 < agreed <= min(ours, theirs)
    assert agreed == ours or ours != theirs
    assert not are_at_odds(rows(ours).commit(), rows(theirs).commit())


GOOD = rows(40).commit()


@pytest.mark.parametrize(
    "commit",
    [
        Commit(0, b"d" * 32, b"", b""),
        replace(GOOD, digest=b"short"),
        replace(GOOD, marks=GOOD.marks + b"m" * 16),
        replace(GOOD, last=b""),
        replace(GOOD, stop=10_000),
    ],
)
def test_a_commit_that_no_stage_makes_is_refused(commit: Commit) -> None:
    with pytest.raises(BadFrame):
        check_commit(commit)
