"""The header of a GGUF file (versions 2 and 3, little endian), read with every length bounded.

`magic | version | tensor count | pair count | key-value pairs | tensor infos | padding | tensors`

No number of the file is believed before it is compared with the file's size and a cap, and no
memory is taken for it before. The tensors have to lie one after the other, as they are written.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from math import prod

from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

from tessella.core.config_keys import shown
from tessella.core.errors import BadWeights, UnsupportedModel
from tessella.core.tensors import MIB
from tessella.engine.weights_file import WeightsFile

# A vocabulary of 256 Ki tokens with its merges and scores takes about 16 MiB.
MAX_HEADER_BYTES = 128 * MIB
MAX_PAIRS = 4096
MAX_TENSORS = 20_000
MAX_ELEMENTS = 1 << 21
MAX_NAME_BYTES = 256
# The longest strings are chat templates.
MAX_STRING_BYTES = MIB
MAX_DIMENSIONS = 4
MAX_ALIGNMENT = 65_536

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_WINDOW_BYTES = MIB
_BOOL, _STRING, _ARRAY = 7, 8, 9
# Value types that are one number: the code of `struct`, which is that of `array` too.
_SCALARS = {
    0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", _BOOL: "?", 10: "Q", 11: "q", 12: "d",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class SkippedArray:
    """An array that was passed over: its length is known, its values are not."""

    length: int

    def __len__(self) -> int:
        return self.length


@dataclass(frozen=True, slots=True)
class GgufTensor:
    """Where a tensor lies. `shape` is row-major: the fastest dimension last."""

    name: str
    shape: tuple[int, ...]
    stored: GGMLQuantizationType
    offset: int
    """From the start of the file, in bytes."""
    size: int
    """In bytes."""

    @property
    def rows(self) -> int:
        """Rows of the last dimension; each is quantised on its own."""
        return prod(self.shape[:-1])


@dataclass(frozen=True, slots=True)
class GgufHeader:
    """The pairs, and the tensors in the order of the file."""

    metadata: dict[str, object]
    tensors: dict[str, GgufTensor]


def read_header(file: WeightsFile, keep: Callable[[str], bool]) -> GgufHeader:
    """The header, checked whole.

    Arrays under keys that `keep` refuses become a `SkippedArray`: a vocabulary is large, and most
    stages have no use for it. Raises BadWeights or UnsupportedModel naming the file.
    """
    cursor = _Cursor(file)
    if cursor.take(4) != _MAGIC:
        raise BadWeights(f"{file.path} is not a GGUF file")
    version = cursor.number("I")
    if version not in _VERSIONS:
        raise UnsupportedModel(f"{file.path}: GGUF version {version} is not one of {_VERSIONS}")
    tensors = cursor.count("Q", MAX_TENSORS, "tensors")
    pairs = cursor.count("Q", MAX_PAIRS, "key-value pairs")
    metadata: dict[str, object] = {}
    for _ in range(pairs):
        key = cursor.string(MAX_NAME_BYTES, "a key")
        if key in metadata:
            raise BadWeights(f"{file.path}: the key {shown(key)} comes twice")
        metadata[key] = cursor.value(key, keep(key))
    infos = [_tensor_info(cursor) for _ in range(tensors)]
    return GgufHeader(metadata, _placed(file, infos, cursor.offset, _alignment(file, metadata)))


class _Cursor:
    """Reads forward through a window of the file; what it takes is bounded by the file's size."""

    def __init__(self, file: WeightsFile) -> None:
        self._file = file
        self._end = min(file.size, MAX_HEADER_BYTES)
        self._window = b""
        self._start = 0
        self.offset = 0

    def take(self, count: int) -> bytes:
        """The next `count` bytes."""
        at = self.offset - self._start
        if at + count > len(self._window):
            self._check(count)
            self._start, at = self.offset, 0
            wanted = min(max(count, _WINDOW_BYTES), self._end - self.offset)
            self._window = bytes(self._file.take(self.offset, wanted))
        self.offset += count
        return self._window[at : at + count]

    def skip(self, count: int) -> None:
        """Pass over `count` bytes."""
        self._check(count)
        self.offset += count

    def _check(self, count: int) -> None:
        if self.offset + count > self._end:
            raise BadWeights(f"{self._file.path} is truncated or corrupt in its header")

    def number(self, code: str) -> int:
        """A whole number, by its `struct` code."""
        value: int = struct.unpack(f"<{code}", self.take(struct.calcsize(code)))[0]
        return value

    def count(self, code: str, limit: int, what: str) -> int:
        """A count of at most `limit`, and of no more than there are bytes to come."""
        found = self.number(code)
        if found > min(limit, self._end - self.offset):
            raise BadWeights(f"{self._file.path}: {found} {what}, at most {limit}")
        return found

    def string(self, limit: int, what: str) -> str:
        """A string of at most `limit` bytes."""
        length = self.count("Q", limit, f"bytes in {what}")
        try:
            return self.take(length).decode()
        except UnicodeDecodeError as exc:
            raise BadWeights(f"{self._file.path}: {what} is not UTF-8") from exc

    def value(self, key: str, kept: bool) -> object:
        """The value of a pair, with its type before it."""
        kind = self.number("I")
        if kind == _STRING:
            return self.string(MAX_STRING_BYTES, shown(key))
        if kind == _ARRAY:
            return self._array(key, kept)
        if kind not in _SCALARS:
            raise BadWeights(f"{self._file.path}: {shown(key)} has the unknown type {kind}")
        code = _SCALARS[kind]
        return struct.unpack(f"<{code}", self.take(struct.calcsize(code)))[0]

    def _array(self, key: str, kept: bool) -> object:
        kind = self.number("I")
        length = self.count("Q", MAX_ELEMENTS, f"elements in {shown(key)}")
        if kind == _STRING:
            return self._strings(key, length, kept)
        if kind not in _SCALARS:
            raise BadWeights(f"{self._file.path}: {shown(key)} is an array of type {kind}")
        code = _SCALARS[kind]
        size = length * struct.calcsize(code)
        if not kept:
            self.skip(size)
            return SkippedArray(length)
        return list(struct.unpack(f"<{length}{code}", self.take(size)))

    def _strings(self, key: str, length: int, kept: bool) -> object:
        if kept:
            return [self.string(MAX_STRING_BYTES, shown(key)) for _ in range(length)]
        for _ in range(length):
            self.skip(self.count("Q", MAX_STRING_BYTES, f"bytes in {shown(key)}"))
        return SkippedArray(length)


@dataclass(frozen=True, slots=True)
class _Info:
    name: str
    shape: tuple[int, ...]
    kind: int
    offset: int


def _tensor_info(cursor: _Cursor) -> _Info:
    name = cursor.string(MAX_NAME_BYTES, "a tensor's name")
    dimensions = cursor.count("I", MAX_DIMENSIONS, f"dimensions in {shown(name)}")
    # The file counts from the fastest dimension.
    shape = tuple(cursor.number("Q") for _ in range(dimensions))[::-1]
    return _Info(name, shape, cursor.number("I"), cursor.number("Q"))


def _alignment(file: WeightsFile, metadata: dict[str, object]) -> int:
    value = metadata.get("general.alignment", 32)
    if not isinstance(value, int) or not 1 <= value <= MAX_ALIGNMENT or value & (value - 1):
        raise BadWeights(f"{file.path}: general.alignment {shown(value)} is not a power of two")
    return value


def _placed(
    file: WeightsFile, infos: list[_Info], header: int, alignment: int
) -> dict[str, GgufTensor]:
    start = _aligned(header, alignment)
    reached = 0
    placed: dict[str, GgufTensor] = {}
    for info in infos:
        if info.name in placed:
            raise BadWeights(f"{file.path}: the tensor {shown(info.name)} comes twice")
        stored, size = _size(file, info)
        if info.offset != reached:
            raise BadWeights(
                f"{file.path}: {shown(info.name)} lies at {info.offset}, not at {reached}"
            )
        if start + info.offset + size > file.size:
            raise BadWeights(f"{file.path} is truncated inside {shown(info.name)}")
        placed[info.name] = GgufTensor(info.name, info.shape, stored, start + info.offset, size)
        reached = _aligned(info.offset + size, alignment)
    if file.size > start + reached:
        raise BadWeights(f"{file.path} has bytes after its last tensor")
    return placed


def _size(file: WeightsFile, info: _Info) -> tuple[GGMLQuantizationType, int]:
    try:
        stored = GGMLQuantizationType(info.kind)
    except ValueError as exc:
        raise UnsupportedModel(f"{file.path}: {shown(info.name)} is of type {info.kind}") from exc
    group, group_bytes = GGML_QUANT_SIZES[stored]
    if not info.shape or 0 in info.shape or info.shape[-1] % group:
        raise BadWeights(
            f"{file.path}: {shown(info.name)} has the shape {list(info.shape)} in {stored.name}"
        )
    return stored, prod(info.shape) // group * group_bytes


def _aligned(offset: int, alignment: int) -> int:
    return -(-offset // alignment) * alignment
