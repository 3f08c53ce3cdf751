"""Reader of one `.safetensors` file: `u64 header length | JSON header | tensors, back to back`.

The header is checked whole before a tensor is read: every size follows from its dtype and shape,
and the tensors tile the rest of the file exactly.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path

import torch

from tessella.core.config_keys import shown
from tessella.core.errors import BadWeights, UnsupportedModel
from tessella.core.tensors import MIB
from tessella.engine.checkpoint import TensorInfo
from tessella.engine.weights_file import SLICE_BYTES, WeightsFile

# The largest models list some thousand tensors at about 120 bytes each.
MAX_HEADER_BYTES = 4 * MIB
MAX_TENSORS = 20_000
MAX_DIMENSIONS = 8

_LENGTH_BYTES = 8
_READ = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
# Types that may lie in a file without being read, so that one odd buffer refuses no model.
_SIZES = {
    "F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1,
    "U64": 8, "U32": 4, "U16": 2, "U8": 1, "BOOL": 1, "F8_E4M3": 1, "F8_E5M2": 1,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Placed:
    info: TensorInfo
    start: int
    stop: int


class SafetensorsFile:
    """One file, opened: the header is read and checked. Whoever opened it calls `close`."""

    def __init__(self, path: Path) -> None:
        """Raises BadWeights naming the file, and the tensor where there is one."""
        self.path = path
        self._file = WeightsFile(path)
        try:
            self._placed, self._data = _read_header(self._file)
        except BaseException:
            self._file.close()
            raise

    @property
    def tensors(self) -> Mapping[str, TensorInfo]:
        """The tensors of this file, by name."""
        return {name: placed.info for name, placed in self._placed.items()}

    def read(self, name: str, into: torch.Tensor) -> None:
        """Fill `into` with a tensor, cast to its dtype, a slice at a time.

        Raises BadWeights if the tensor is missing, torn, or not of the shape of `into`, and
        UnsupportedModel if its type is not F32, F16 or BF16.
        """
        placed = self._placed.get(name)
        if placed is None:
            raise BadWeights(f"{self.path} holds no tensor {name}")
        if tuple(into.shape) != placed.info.shape:
            raise BadWeights(
                f"{self.path}: {name} has shape {list(placed.info.shape)}, not {list(into.shape)}"
            )
        dtype = _READ.get(placed.info.stored)
        if dtype is None:
            raise UnsupportedModel(f"{self.path}: {name} is of type {placed.info.stored}")
        flat = into.view(-1)
        buffer = bytearray(min(SLICE_BYTES, placed.stop - placed.start))
        for start in range(placed.start, placed.stop, SLICE_BYTES):
            count = min(SLICE_BYTES, placed.stop - start)
            self._file.fill(self._data + start, memoryview(buffer)[:count])
            first = (start - placed.start) // dtype.itemsize
            values = torch.frombuffer(buffer, dtype=dtype, count=count // dtype.itemsize)
            flat[first : first + len(values)].copy_(values)

    def close(self) -> None:
        """Close the file. Closing twice is no error."""
        self._file.close()


def _read_header(file: WeightsFile) -> tuple[dict[str, _Placed], int]:
    length = int.from_bytes(file.take(0, _LENGTH_BYTES), "little")
    if length > MAX_HEADER_BYTES:
        raise BadWeights(f"{file.path}: a header of {length} bytes, at most {MAX_HEADER_BYTES}")
    try:
        header = json.loads(file.take(_LENGTH_BYTES, length), object_pairs_hook=_no_twins)
    except (ValueError, RecursionError) as exc:
        raise BadWeights(f"{file.path}: the header is not valid JSON: {exc}") from exc
    if not isinstance(header, dict):
        raise BadWeights(f"{file.path}: the header is not a JSON object")
    header.pop("__metadata__", None)
    if len(header) > MAX_TENSORS:
        raise BadWeights(f"{file.path}: {len(header)} tensors, at most {MAX_TENSORS}")
    placed = {name: _place(file.path, name, entry) for name, entry in header.items()}
    data = _LENGTH_BYTES + length
    _check_tiling(file, placed, file.size - data)
    return placed, data


def _no_twins(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        twin = Counter(key for key, _ in pairs).most_common(1)[0][0]
        raise ValueError(f"the key {shown(twin)} comes twice")
    return found


def _place(path: Path, name: str, entry: object) -> _Placed:
    match entry:
        case {"dtype": str(stored), "shape": list(shape), "data_offsets": [int(start), int(stop)]}:
            pass
        case _:
            raise BadWeights(f"{path}: the header entry of {shown(name)} is malformed")
    if stored not in _SIZES:
        raise UnsupportedModel(f"{path}: {shown(name)} is of type {shown(stored)}")
    if len(shape) > MAX_DIMENSIONS or not all(type(n) is int and n >= 0 for n in shape):
        raise BadWeights(f"{path}: {shown(name)} has the shape {shown(shape)}")
    if stop - start != prod(shape) * _SIZES[stored]:
        raise BadWeights(
            f"{path}: {shown(name)} has {stop - start} bytes, not those of {shape} in {stored}"
        )
    return _Placed(TensorInfo(name, tuple(shape), stored), start, stop)


def _check_tiling(file: WeightsFile, placed: Mapping[str, _Placed], size: int) -> None:
    reached = 0
    for one in sorted(placed.values(), key=lambda one: (one.start, one.stop)):
        if one.start != reached:
            raise BadWeights(
                f"{file.path}: {shown(one.info.name)} starts at byte {one.start}, not {reached}"
            )
        if one.stop > size:
            raise BadWeights(f"{file.path} is truncated inside {shown(one.info.name)}")
        reached = one.stop
    if reached != size:
        raise BadWeights(f"{file.path} has {size - reached} bytes after its last tensor")
