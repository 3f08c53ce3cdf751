"""The rows of an audit: what travelled, as numbers, and what an auditor says of its own."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from math import prod

import torch
from torch import Tensor

from tessella.core.commitments import DIGEST_BYTES
from tessella.core.errors import BadTensor
from tessella.core.shapes import DType
from tessella.core.tensors import WireTensor
from tessella.engine.device import torch_dtype


@torch.inference_mode()
def rows_of(tensors: Sequence[WireTensor], hidden: int, dtype: DType) -> Tensor:
    """Rows `[n, hidden]` in f32, exactly as they travelled; they may be anything but numbers.

    Raises BadTensor for a tensor of another dtype or shape, or none at all.
    """
    for tensor in tensors:
        shape = tensor.shape
        if tensor.dtype != dtype.value or len(shape) != 2 or shape[1] != hidden:
            raise BadTensor(f"rows of shape {list(shape)} in {tensor.dtype[:20]!r}")
        if prod(shape) * dtype.itemsize != len(tensor.data) or not tensor.data:
            raise BadTensor(f"{len(tensor.data)} bytes for rows of shape {list(shape)}")
    if not tensors:
        raise BadTensor("no rows")
    # torch wants memory it could write to, so the bytes are copied once.
    data = bytearray(b"".join(tensor.data for tensor in tensors))
    return torch.frombuffer(data, dtype=torch_dtype(dtype)).view(-1, hidden).to(torch.float32)


@torch.inference_mode()
def digest_of(rows: Tensor) -> bytes:
    """BLAKE2b-256 of rows in f32, as their bytes lie on a little-endian CPU."""
    values = rows.to("cpu", torch.float32).contiguous()
    view = values.flatten().view(torch.uint8).numpy().data
    return hashlib.blake2b(view, digest_size=DIGEST_BYTES).digest()


@torch.inference_mode()
def is_finite(rows: Tensor) -> bool:
    """Whether every value is a number."""
    return bool(rows.isfinite().all())
