"""A peer's tensor is judged by arithmetic before anything is made of it."""

from __future__ import annotations

import pytest

from tessella.core.errors import BadTensor
from tessella.core.shapes import DType
from tessella.core.tensors import (
    MAX_TENSOR_BYTES,
    WireTensor,
    check_hidden,
    chunk_positions,
)

GOOD = WireTensor("f32", (2, 4), bytes(32))


def test_a_tensor_that_is_what_it_says_has_its_positions_counted() -> None:
    assert check_hidden(GOOD, hidden=4, dtype=DType.F32) == 2


@pytest.mark.parametrize(
    ("tensor", "culprit"),
    [
        (WireTensor("f16", (2, 4), bytes(16)), "in f16, this session carries f32"),
        (WireTensor("f64", (2, 4), bytes(64)), "in f64"),
        (WireTensor("f32", (2, 5), bytes(40)), r"shape \[2, 5\], wanted \[n, 4\]"),
        (WireTensor("f32", (4,), bytes(16)), r"shape \[4\]"),
        (WireTensor("f32", (1, 2, 4), bytes(32)), r"shape \[1, 2, 4\]"),
        (WireTensor("f32", (0, 4), b""), "0 positions"),
        (WireTensor("f32", (-1, 4), b""), "-1 positions"),
        (WireTensor("f32", (2**40, 4), bytes(32)), "positions"),
        (WireTensor("f32", (513, 4), bytes(513 * 16)), "513 positions"),
        (WireTensor("f32", (2, 4), bytes(31)), "31 bytes"),
        (WireTensor("f32", (2, 4), bytes(33)), "33 bytes"),
    ],
)
def test_a_tensor_that_lies_is_refused_by_what_lies(tensor: WireTensor, culprit: str) -> None:
    with pytest.raises(BadTensor, match=culprit):
        check_hidden(tensor, hidden=4, dtype=DType.F32)


@pytest.mark.parametrize(
    ("hidden", "dtype", "positions"),
    [
        (576, DType.F32, 512),
        (8192, DType.BF16, 512),
        (16384, DType.F32, 256),
        (2**24, DType.F32, 1),
    ],
)
def test_a_chunk_is_512_positions_or_what_16_mib_hold(
    hidden: int, dtype: DType, positions: int
) -> None:
    assert chunk_positions(hidden, dtype) == positions
    assert positions == 1 or positions * hidden * dtype.itemsize <= MAX_TENSOR_BYTES
