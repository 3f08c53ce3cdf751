"""Tensors as they travel: a dtype, a shape, the bytes. Checking one takes no numeric library.

A hidden state is `[positions, hidden]`, little endian, row-major. `check` decides by arithmetic
alone whether a peer's tensor can be what this session carries; whether its values are finite is
seen by the engine, which owns the numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from tessella.core.errors import BadTensor
from tessella.core.shapes import DType

MIB = 1024 * 1024

# A frame on a stream holds one chunk. 16 MiB is the largest window a yamux stream grows to.
MAX_TENSOR_BYTES = 16 * MIB
# More positions in a chunk stop helping a matrix multiply and make a slow stage look silent.
MAX_CHUNK_POSITIONS = 512


@dataclass(frozen=True, slots=True)
class WireTensor:
    """A tensor on the wire. `data` may be any bytes-like; `check` has not been called yet."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes


def chunk_positions(hidden: int, dtype: DType) -> int:
    """Positions in one prefill chunk: min(512, 16 MiB // (hidden x itemsize)), at least 1."""
    return max(1, min(MAX_CHUNK_POSITIONS, MAX_TENSOR_BYTES // (hidden * dtype.itemsize)))


def check_hidden(tensor: WireTensor, *, hidden: int, dtype: DType) -> int:
    """The number of positions in a peer's hidden state.

    Raises BadTensor that names what lies: the dtype, the shape, or the number of bytes.
    """
    if tensor.dtype != dtype.value:
        raise BadTensor(f"a hidden state in {tensor.dtype}, this session carries {dtype.value}")
    if len(tensor.shape) != 2 or tensor.shape[1] != hidden:
        raise BadTensor(f"a hidden state of shape {list(tensor.shape)}, wanted [n, {hidden}]")
    positions = tensor.shape[0]
    if not 1 <= positions <= chunk_positions(hidden, dtype):
        raise BadTensor(f"a hidden state of {positions} positions")
    if prod(tensor.shape) * dtype.itemsize != len(tensor.data):
        raise BadTensor(f"{len(tensor.data)} bytes for shape {list(tensor.shape)} in {dtype.value}")
    return positions
