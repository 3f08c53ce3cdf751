"""Kept rows: what is put is what is shown, within bounds of memory and time."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tessella.core.layers import LayerRange
from tessella.core.shapes import DType
from tessella.worker.audits import ring as rings
from tessella.worker.audits.ring import KEPT_SECONDS, PIECE_OVERHEAD, Held, Ring
from tessella.worker.proofs.witness import Ticketing

ROW = 16
A, B = b"a" * 16, b"b" * 16


class Time:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def ticketing(request_id: bytes = A) -> Ticketing:
    return Ticketing(b"", b"", request_id, LayerRange(0, 2), DType.F32)


def outputs(ring: Ring, request_id: bytes = A) -> Held:
    held = ring.outputs(ticketing(request_id))
    assert held is not None
    return held


def rows(count: int, salt: int = 0) -> bytes:
    return b"".join(bytes([salt, at % 256]) * (ROW // 2) for at in range(count))


def shown(ring: Ring, stop: int, request_id: bytes = A) -> bytes | None:
    """All rows; that their positions follow one another is seen on the way."""
    frames = ring.rows(request_id, stop)
    if frames is None:
        return None
    data = b""
    for position, tensor in frames:
        assert position * ROW == len(data)
        assert (tensor.dtype, tensor.shape) == ("f32", (len(tensor.data) // ROW, 4))
        data += tensor.data
    assert len(data) == stop * ROW
    return data


Puts = st.lists(st.tuples(st.integers(0, 40), st.integers(1, 12)), max_size=12)


@given(puts=Puts, stop=st.integers(1, 60))
def test_what_is_shown_is_what_was_put_last(puts: list[tuple[int, int]], stop: int) -> None:
    ring = Ring(1 << 20)
    held, model, whole = outputs(ring), bytearray(), True
    for salt, (position, count) in enumerate(puts):
        data = rows(count, salt)
        held.put(position, data, count)
        whole = whole and position * ROW <= len(model)
        if whole:
            model[position * ROW :] = data
    kept = bytes(model[: stop * ROW]) if whole and len(model) >= stop * ROW else None
    assert shown(ring, stop) == kept


@given(puts=Puts)
def test_nothing_is_left_of_what_is_let_go(puts: list[tuple[int, int]]) -> None:
    ring = Ring(1 << 20)
    first, second = outputs(ring), outputs(ring, B)
    for position, count in puts:
        first.put(position, rows(count), count)
    second.go_on_from(first)
    for position, count in reversed(puts):
        second.put(position, rows(count), count)
    ring.clear()
    assert ring.used == 0


def test_rows_of_many_steps_are_shown_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rings, "SHOWN_BYTES", 4 * ROW)
    ring = Ring(1 << 20)
    held = outputs(ring)
    held.put(0, rows(6), 6)
    for at in range(6, 11):
        held.put(at, rows(1, at), 1)
    frames = ring.rows(A, 11)
    assert frames is not None
    assert [tensor.shape[0] for _, tensor in frames] == [4, 4, 3]
    assert shown(ring, 11) == rows(6) + b"".join(rows(1, at) for at in range(6, 11))


def test_the_oldest_makes_room() -> None:
    ring = Ring(8 * (4 * ROW + PIECE_OVERHEAD))
    names = [bytes([number]) * 16 for number in range(10)]
    for name in names:
        outputs(ring, name).put(0, rows(4), 4)
    kept = [shown(ring, 4, name) is not None for name in names]
    assert kept == [False] * 2 + [True] * 8
    assert ring.used <= 8 * (4 * ROW + PIECE_OVERHEAD)


def test_one_session_has_a_quarter_of_it_at_most_and_leaves_others_alone() -> None:
    each = 10 * ROW + PIECE_OVERHEAD
    ring = Ring(8 * each)
    outputs(ring, B).put(0, rows(10), 10)
    large = outputs(ring)
    for at in range(0, 20, 10):
        large.put(at, rows(10), 10)
    assert shown(ring, 20) == rows(10) * 2
    large.put(20, rows(10), 10)
    assert shown(ring, 20) is None
    large.put(0, rows(1), 1)
    assert shown(ring, 1) is None
    assert shown(ring, 10, B) == rows(10)
    assert ring.used == each


def test_a_conversation_that_goes_on_shares_the_rows_that_it_held() -> None:
    ring = Ring(1 << 20)
    first = outputs(ring)
    first.put(0, rows(8, 1), 8)
    before, second = ring.used, outputs(ring, B)
    second.go_on_from(first)
    assert ring.used == before
    second.put(6, rows(2, 2), 2)
    assert shown(ring, 8) == rows(8, 1)
    assert shown(ring, 8, B) == rows(8, 1)[: 6 * ROW] + rows(2, 2)
    first.put(0, rows(1), 1)
    assert shown(ring, 8, B) == rows(8, 1)[: 6 * ROW] + rows(2, 2)


def test_a_conversation_whose_beginning_is_gone_is_not_shown_in_part() -> None:
    ring = Ring(1 << 20)
    first, second = outputs(ring), outputs(ring, B)
    first.put(0, rows(8), 8)
    ring.clear()
    second.go_on_from(first)
    second.put(8, rows(2), 2)
    assert shown(ring, 2, B) is None
    assert ring.used == 0


def test_rows_and_ids_of_one_request_are_apart() -> None:
    ring = Ring(1 << 20)
    ids = ring.ids(ticketing())
    assert ids is not None
    ids.put(0, b"\1\0\0\0\2\0\0\0", 2)
    ids.put(2, b"\3\0\0\0", 1)
    assert ring.token_ids(A, 3) == b"\1\0\0\0\2\0\0\0\3\0\0\0"
    assert ring.token_ids(A, 2) == b"\1\0\0\0\2\0\0\0"
    assert ring.token_ids(A, 4) is None
    assert ring.rows(A, 1) is None
    outputs(ring, B).put(0, rows(1), 1)
    assert ring.token_ids(B, 1) is None


def test_of_a_session_that_began_anew_what_a_proof_may_be_of_is_shown() -> None:
    ring = Ring(1 << 20)
    lost, anew = outputs(ring), outputs(ring)
    lost.put(0, rows(5, 1), 5)
    anew.put(0, rows(9, 2), 9)
    assert shown(ring, 9) == rows(9, 2)
    assert shown(ring, 5) == rows(5, 1)
    assert shown(ring, 4) is None  # of which of the two, nobody could say
    lost.put(5, rows(4, 1), 4)
    assert shown(ring, 9) is None


def test_rows_are_kept_for_an_hour() -> None:
    time = Time()
    ring = Ring(1 << 20, clock=time)
    outputs(ring).put(0, rows(2), 2)
    time.now += KEPT_SECONDS - 1
    outputs(ring, B).put(0, rows(2), 2)
    assert shown(ring, 2) is not None
    time.now += 2
    assert shown(ring, 2) is None
    assert shown(ring, 2, B) is not None
    time.now += KEPT_SECONDS
    ring.expire()
    assert ring.used == 0


def test_a_ring_of_nothing_keeps_nothing() -> None:
    assert Ring(0).outputs(ticketing()) is None
    assert Ring(0).ids(ticketing()) is None


@pytest.mark.parametrize(("data", "count"), [(b"x" * 33, 2), (b"", 0), (b"x" * 8, 1)])
def test_rows_of_another_size_end_what_is_kept_of_a_session(data: bytes, count: int) -> None:
    ring = Ring(1 << 20)
    held = outputs(ring)
    held.put(0, rows(2), 2)
    held.put(2, data, count)
    assert shown(ring, 2) is None
    assert ring.used == 0


def test_rows_of_another_dtype_are_not_gone_on_with() -> None:
    ring = Ring(1 << 20)
    first = outputs(ring)
    first.put(0, rows(2), 2)
    second = ring.outputs(replace(ticketing(B), dtype=DType.BF16))
    assert second is not None
    second.go_on_from(first)
    second.put(2, rows(2), 2)
    assert ring.rows(B, 2) is None


def test_ids_outlast_the_rows_of_a_busy_node() -> None:
    ring = Ring(4 * (64 * ROW + PIECE_OVERHEAD))
    held = ring.ids(ticketing(A))
    assert held is not None
    held.put(0, b"1234" * 8, 8)
    for number in range(20):
        outputs(ring, number.to_bytes(16, "big")).put(0, rows(48), 48)
    assert ring.token_ids(A, 8) == b"1234" * 8
    assert ring.used <= 4 * (64 * ROW + PIECE_OVERHEAD)


def test_ids_make_room_for_ids_where_there_are_no_rows() -> None:
    ring = Ring(4 * (64 + PIECE_OVERHEAD))
    for number in range(20):
        held = ring.ids(ticketing(number.to_bytes(16, "big")))
        assert held is not None
        held.put(0, b"1234" * 8, 8)
    assert ring.token_ids((0).to_bytes(16, "big"), 8) is None
    assert ring.token_ids((19).to_bytes(16, "big"), 8) == b"1234" * 8
