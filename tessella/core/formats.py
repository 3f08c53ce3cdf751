"""How weights, keys and values are kept in memory, and exactly how many bytes that takes.

    word     a group holds         bytes   bits a value
    f32      1 value                   4           32
    f16      1 value                   2           16
    bf16     1 value                   2           16
    q8_0     32 int8, an f16 scale    34            8.5
    q4_0     32 int4, an f16 scale    18            4.5
    int4     32 int4, an f16 scale    18            4.5

Groups run along the columns of a row and never from one row into the next, so a row is padded to
whole groups. A row of weights is one output of a matrix; a row of keys or values is one head at
one position. What is computed with and sent is a `DType`, whatever is kept.
"""

from __future__ import annotations

from enum import Enum
from math import prod
from typing import TypeVar

from tessella.core.errors import BadConfig
from tessella.core.shapes import DType

# Values in a group and bytes of a group, by the word in lower case.
_GROUPS = {
    "f32": (1, 4),
    "f16": (1, 2),
    "bf16": (1, 2),
    "q8_0": (32, 34),
    "q4_0": (32, 18),
    "int4": (32, 18),
}
# Of a word that we do not know, as much is repeated.
_SHOWN_CHARS = 32


class _Format(Enum):
    """What formats of weights and of KV have in common; the value is the word that config says."""

    @property
    def bits(self) -> float:
        """Bits a value, scales counted."""
        values, nbytes = _GROUPS[self.value.lower()]
        return 8 * nbytes / values

    @property
    def is_grouped(self) -> bool:
        """Whether values share a scale."""
        return _GROUPS[self.value.lower()][0] > 1

    def row_bytes(self, columns: int) -> int:
        """Bytes of one row of values, padded to whole groups."""
        values, nbytes = _GROUPS[self.value.lower()]
        return -(-columns // values) * nbytes


_Kind = TypeVar("_Kind", bound=_Format)


def _parsed(kind: type[_Kind], word: str, what: str) -> _Kind:
    found = {each.value.lower(): each for each in kind}.get(word.lower())
    if found is None:
        known = ", ".join(each.value for each in kind)
        raise BadConfig(f"unknown {what} format {word[:_SHOWN_CHARS]!r}; one of {known}")
    return found


class WeightFormat(_Format):
    """How the weights of a shard are kept. The value is the word used in config and HTTP."""

    F32 = "f32"
    F16 = "f16"
    BF16 = "bf16"
    Q8_0 = "Q8_0"
    INT4 = "INT4"

    @classmethod
    def parse(cls, word: str) -> WeightFormat:
        """The format by its word, in any case. Raises BadConfig that names the word."""
        return _parsed(cls, word, "weight")

    @classmethod
    def of(cls, kept: DType | WeightFormat) -> WeightFormat:
        """The format of weights that are kept in a serving type, or the format itself."""
        return cls(kept.value)

    @property
    def of_tables(self) -> WeightFormat:
        """What embedding and head are kept in: 4 bits would cost them too much quality."""
        return WeightFormat.F16 if self is WeightFormat.INT4 else self

    @property
    def of_vectors(self) -> WeightFormat:
        """What norms and biases are kept in: they are small, and groups would spoil them."""
        return WeightFormat.F32 if self.is_grouped else self

    def tensor_bytes(self, size: tuple[int, ...]) -> int:
        """Bytes of a layer's tensor: a matrix `[rows, columns]`, or a norm or bias `[values]`."""
        kept = self if len(size) > 1 else self.of_vectors
        *rows, columns = size
        return kept.row_bytes(columns) * prod(rows)

    def table_bytes(self, rows: int, columns: int) -> int:
        """Bytes of an embedding or a head."""
        return self.of_tables.row_bytes(columns) * rows


class KvFormat(_Format):
    """How keys and values are kept. The value is the word used in config, wire and HTTP."""

    F32 = "f32"
    F16 = "f16"
    BF16 = "bf16"
    Q8_0 = "q8_0"
    Q4_0 = "q4_0"

    @classmethod
    def parse(cls, word: str) -> KvFormat:
        """The format by its word, in any case. Raises BadConfig that names the word."""
        return _parsed(cls, word, "KV")

    @classmethod
    def of(cls, kept: DType | WeightFormat | KvFormat) -> KvFormat:
        """The format of a cache in the serving type, or the format itself.

        Raises BadConfig for weights in groups: they do not say what they are served in.
        """
        if isinstance(kept, WeightFormat) and kept.is_grouped:
            raise BadConfig(f"KV beside weights in {kept.value} cannot be sized: name its format")
        return cls(kept.value)

    @property
    def scale(self) -> float:
        """Bytes relative to f16."""
        return self.bits / KvFormat.F16.bits
