"""Sketches: their bytes, what they hold of a session, and that they tell honest work from other."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from tessella.core.audits import (
    SKETCH_ROUNDING,
    Measured,
    Verdict,
    judge,
    sketch_tolerance,
)
from tessella.core.errors import NotFinite
from tessella.core.layers import LayerRange
from tessella.core.numeric import NumericClass, Tolerance, tolerances
from tessella.core.proofs import MAX_SKETCH
from tessella.core.shapes import DType
from tessella.engine.checkpoint import Checkpoint
from tessella.engine.device import Device, torch_dtype
from tessella.engine.recompute import measure, recompute
from tessella.engine.shard import load_shard
from tessella.engine.sketch import (
    PLACE,
    STEP,
    Sketcher,
    compare,
    row_bytes,
    sketch,
    sketched_positions,
)
from tessella.engine.toy import toy_shape, write_toy
from tessella.engine.weights import open_checkpoint

HIDDEN = 96
SHAPE = toy_shape(hidden=128, layers=3)
LAYERS = LayerRange(1, 3)


def noise(rows: int, seed: int = 0, hidden: int = HIDDEN) -> Tensor:
    return torch.randn(rows, hidden, generator=torch.Generator().manual_seed(seed))


def compared(held: bytes, reference: Tensor, start: int = 0) -> Measured:
    found = compare(held, reference, start)
    assert found is not None
    return found


def test_a_row_is_a_stretch_and_its_largest_values_by_channel() -> None:
    rows = torch.zeros(16, 4)
    rows[15] = torch.tensor([1.0, -2.0, 0.5, 3.0])
    assert sketch(rows, 32).hex() == "01000200" + "00000034" + "010000b8" + "02000030" + "0300003a"


def test_a_wide_row_names_its_64_largest_channels_in_260_bytes() -> None:
    row = noise(1)
    held = sketch(row, PLACE)
    assert len(held) == row_bytes(HIDDEN) == row_bytes(8192) == 260
    words = struct.unpack("<130H", held)
    assert set(words[2::2]) == set(row[0].abs().topk(64).indices.tolist())
    assert list(words[2::2]) == sorted(words[2::2])


def test_channels_and_stretches_use_all_16_bits() -> None:
    row = torch.zeros(1, 60_000)
    row[0, 59_000:59_064] = 1.0
    words = struct.unpack("<130H", sketch(row, PLACE + STEP * 50_000))
    assert words[0] == 50_000
    assert words[2::2] == tuple(range(59_000, 59_064))
    found = compared(sketch(row, PLACE + STEP * 50_000), row, PLACE + STEP * 50_000)
    assert found.worst == 0.0


@pytest.mark.parametrize(
    ("start", "stop", "expected"),
    [
        (0, 15, []),
        (0, 16, [15]),
        (15, 16, [15]),
        (16, 47, []),
        (16, 80, [47, 79]),
        (100, 180, [111, 143, 175]),
    ],
)
def test_one_position_of_each_stretch_is_sketched(
    start: int, stop: int, expected: list[int]
) -> None:
    assert list(sketched_positions(start, stop, HIDDEN)) == expected
    assert len(sketch(noise(stop - start), start)) == 260 * len(expected)


@settings(max_examples=40)
@given(st.integers(0, 70), st.lists(st.integers(1, 60), min_size=1, max_size=8))
def test_work_in_pieces_gives_the_sketch_of_the_whole(start: int, sizes: list[int]) -> None:
    rows = noise(sum(sizes))
    sketcher = Sketcher(start, HIDDEN)
    position = start
    for piece in rows.split(sizes):  # type: ignore[no-untyped-call]
        sketcher.add(piece, position)
        position += len(piece)
    assert sketcher.taken() == sketch(rows, start)


@settings(max_examples=40)
@given(st.integers(0, 70), st.integers(1, 150), st.integers(0, 150), st.integers(1, 80))
def test_what_is_taken_back_and_done_again_is_sketched_as_it_was_last(
    start: int, rows: int, back: int, more: int
) -> None:
    first, second = noise(rows), noise(more, seed=1)
    kept = max(0, rows - back)
    sketcher = Sketcher(start, HIDDEN)
    sketcher.add(first, start)
    if back % 2:
        sketcher.truncate(start + kept)
    sketcher.add(second, start + kept)
    assert sketcher.taken() == sketch(torch.cat((first[:kept], second)), start)


def test_a_sketch_is_full_at_its_limit_and_has_room_again_after_a_way_back() -> None:
    rows = noise(1).expand(100 * STEP, HIDDEN)
    sketcher = Sketcher(0, HIDDEN)
    sketcher.add(rows, 0)
    sketcher.add(rows, 100 * STEP)
    held = sketcher.taken()
    assert MAX_SKETCH - 260 < len(held) <= MAX_SKETCH
    assert compared(held, rows).tokens == len(sketched_positions(0, 10**6, HIDDEN)) == 63
    sketcher.truncate(STEP)
    assert sketcher.taken() == held[:260]
    sketcher.add(rows, STEP)
    assert sketcher.taken() == held


def test_a_session_without_a_sketched_position_cannot_be_judged_by_one() -> None:
    assert compare(b"", noise(PLACE), 0) is None


@pytest.mark.parametrize("size", [1e-6, 1.0, 1e9])
def test_rows_of_any_size_lose_no_more_than_rounding(size: float) -> None:
    rows = noise(16) * size
    found = compared(sketch(rows, 0), rows)
    assert found.worst <= SKETCH_ROUNDING
    assert found.gain == pytest.approx(1.0, abs=SKETCH_ROUNDING)


def test_a_row_of_zeros_is_a_row() -> None:
    found = compared(sketch(torch.zeros(16, HIDDEN), 0), torch.zeros(16, HIDDEN))
    assert (found.tokens, found.worst, found.gain, found.finite) == (1, 0.0, 1.0, True)


@settings(max_examples=40)
@given(st.integers(0, 2**30), st.floats(0, 2), st.booleans())
def test_the_error_of_a_sketch_is_never_above_that_of_its_rows(
    seed: int, size: float, heavy: bool
) -> None:
    reference = noise(1, seed)
    if heavy:
        reference[:, :3] *= 50
    output = reference + size * noise(1, seed + 1)
    whole = measure(output, reference)
    found = compared(sketch(output, PLACE), reference, PLACE)
    norm = float(output.norm() / reference.norm())
    assert found.worst <= whole.worst + SKETCH_ROUNDING * norm + 1e-9
    assert found.tokens == 1


def test_channels_that_are_not_the_largest_are_an_error() -> None:
    reference = noise(1)
    smallest = reference[0].abs().topk(64, largest=False).indices.sort().values
    values = reference[0, smallest].half().view(torch.int16)
    words = torch.stack((smallest.to(torch.int16), values), dim=1).flatten()
    named = struct.pack("<HH", 0, 0) + words.numpy().tobytes()
    assert compared(named, reference, PLACE).worst > 0.5


def torn(held: bytes, at: int, word: int) -> bytes:
    changed = bytearray(held)
    struct.pack_into("<H", changed, 2 * at, word)
    return bytes(changed)


WHOLE = sketch(noise(80), 0)
MALFORMED = {
    "nothing": b"",
    "one row short": WHOLE[:260],
    "one row more": WHOLE + WHOLE[:260],
    "a byte short": WHOLE[:-1],
    "another stretch": torn(WHOLE, 130, 7),
    "rows that change places": WHOLE[260:516] + WHOLE[:260],
    "a channel beyond the model": torn(WHOLE, 128, HIDDEN),
    "a channel twice": torn(WHOLE, 4, struct.unpack_from("<H", WHOLE, 4)[0]),
    "no number": torn(WHOLE, 3, 0x7E00),
    "an exponent beyond all numbers": torn(WHOLE, 1, 0x7FFF),
    "infinite": torn(WHOLE, 3, 0x7C00),
}


@pytest.mark.parametrize("held", MALFORMED.values(), ids=MALFORMED.keys())
def test_bytes_that_are_no_sketch_of_these_positions_are_malformed(held: bytes) -> None:
    found = compared(held, noise(80))
    klass = NumericClass(DType.BF16, "bf16", DType.BF16)
    assert judge(found, klass, 1).verdict is Verdict.MALFORMED


def test_rows_recomputed_without_a_number_judge_nobody() -> None:
    reference = noise(80)
    reference[47, 0] = float("nan")
    with pytest.raises(NotFinite, match="recomputed"):
        compare(WHOLE, reference, 0)


def test_the_tolerance_is_wider_and_leaves_room_for_rounding_once() -> None:
    wide = sketch_tolerance(Tolerance(0.01, 0.2, 0.004), 4)
    assert wide.median_of(4) == pytest.approx(1.5 * 0.01 * 2 + SKETCH_ROUNDING)
    assert wide.token == pytest.approx(0.3 + SKETCH_ROUNDING)
    assert wide.gain == pytest.approx(0.006 + SKETCH_ROUNDING)


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    path = tmp_path_factory.mktemp("toy")
    write_toy(path, shape=SHAPE)
    return open_checkpoint(path)


def inputs(toy: Checkpoint, step: int = 7) -> Tensor:
    ids = [(step * at * at + 3 * at) % 256 for at in range(80)]
    return recompute(toy, LayerRange(0, 1), ids, lambda: None).to(torch.bfloat16)


def worked(toy: Checkpoint, source: Tensor, dtype: DType) -> Tensor:
    shard = load_shard(toy, LAYERS, device=Device.CPU, dtype=dtype)
    cache = shard.open_cache(len(source), LAYERS)
    return shard.forward(source.to(torch_dtype(dtype)), cache, 0, LAYERS, lambda: None)


def verdict(toy: Checkpoint, held: bytes, klass: NumericClass) -> Verdict:
    reference = recompute(toy, LAYERS, inputs(toy), lambda: None)
    allowed = sketch_tolerance(tolerances(klass), len(LAYERS))
    return judge(compared(held, reference), klass, len(LAYERS), allowed).verdict


@pytest.mark.parametrize("wire", DType)
@pytest.mark.parametrize("compute", DType)
def test_an_honest_node_passes_by_its_sketch(toy: Checkpoint, compute: DType, wire: DType) -> None:
    held = sketch(worked(toy, inputs(toy), compute).to(torch_dtype(wire)), 0)
    assert verdict(toy, held, NumericClass(compute, "f32", wire)) is Verdict.PASSED


CHEATS: dict[str, Callable[[Checkpoint, DType], Tensor]] = {
    "echo": lambda toy, _: inputs(toy).float(),
    "other prompt": lambda toy, dtype: worked(toy, inputs(toy, step=11), dtype),
    "scale 1.05": lambda toy, dtype: worked(toy, inputs(toy), dtype) * 1.05,
    "scale 0.95": lambda toy, dtype: worked(toy, inputs(toy), dtype) * 0.95,
    "stale by one": lambda toy, dtype: worked(toy, inputs(toy), dtype).roll(1, 0),
}


@pytest.mark.parametrize("dtype", DType)
@pytest.mark.parametrize("cheat", CHEATS)
def test_a_cheat_is_caught_by_its_sketch_alone(toy: Checkpoint, cheat: str, dtype: DType) -> None:
    held = sketch(CHEATS[cheat](toy, dtype), 0)
    klass = NumericClass(dtype, "f32", dtype)
    assert verdict(toy, held, klass) is Verdict.REJECTED


def test_a_hundredth_of_scale_is_caught_where_f32_or_f16_was_declared(toy: Checkpoint) -> None:
    for dtype in (DType.F32, DType.F16):
        held = sketch(worked(toy, inputs(toy), dtype) * 1.01, 0)
        assert verdict(toy, held, NumericClass(dtype, "f32", dtype)) is Verdict.REJECTED
