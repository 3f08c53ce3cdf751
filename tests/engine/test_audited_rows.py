"""Rows as an audit has them: exact in f32, refused by name, bound to by one digest."""

from __future__ import annotations

import hashlib

import pytest
import torch

from tessella.core.errors import BadTensor
from tessella.core.shapes import DType
from tessella.core.tensors import WireTensor
from tessella.engine.audited_rows import digest_of, rows_of
from tessella.engine.shard import Shard

ROWS = torch.randn(5, 8, generator=torch.Generator().manual_seed(3))


@pytest.mark.parametrize("dtype", list(DType))
def test_rows_are_exactly_what_travelled_however_they_were_cut(dtype: DType) -> None:
    sent = [Shard.to_wire(ROWS[:2], dtype), Shard.to_wire(ROWS[2:], dtype)]
    rows = rows_of(sent, 8, dtype)
    assert rows.dtype == torch.float32
    assert Shard.to_wire(rows, dtype) == Shard.to_wire(ROWS, dtype)


def test_rows_that_are_no_numbers_are_rows_all_the_same() -> None:
    nan = WireTensor("f32", (1, 2), b"\xff" * 8)
    assert rows_of([nan], 2, DType.F32).isnan().all()


@pytest.mark.parametrize(
    "tensor",
    [
        WireTensor("bf16", (1, 8), bytes(16)),
        WireTensor("f32", (8,), bytes(32)),
        WireTensor("f32", (1, 4), bytes(16)),
        WireTensor("f32", (2, 8), bytes(32)),
        WireTensor("f32", (0, 8), b""),
    ],
)
def test_what_is_no_rows_of_the_session_is_refused(tensor: WireTensor) -> None:
    with pytest.raises(BadTensor, match="rows of shape"):
        rows_of([tensor], 8, DType.F32)


def test_nothing_is_no_rows() -> None:
    with pytest.raises(BadTensor, match="no rows"):
        rows_of([], 8, DType.F32)


def test_a_digest_is_that_of_the_bytes_in_f32() -> None:
    wire = Shard.to_wire(ROWS, DType.F32).data
    assert digest_of(ROWS) == hashlib.blake2b(wire, digest_size=32).digest()
    assert digest_of(ROWS[:4]) != digest_of(ROWS)
