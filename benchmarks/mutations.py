"""Golden bytes of everything that peers send, and ways to spoil them.

Half of the spoiling knows nothing of formats: bits, slices, lengths, splices. The other half takes
a msgpack body apart, changes one value in it, and packs it again, so that it reaches the checks of
fields that random bytes seldom reach.
"""

from __future__ import annotations

import random
import struct
import types
import typing
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any

import msgpack

from tessella.core.layers import LayerRange

# Where one byte, or a number of four, changes what follows most.
BYTES = (0x00, 0x01, 0x7F, 0x80, 0x90, 0x9F, 0xC0, 0xC1, 0xC4, 0xC7, 0xD9, 0xDD, 0xDF, 0xFF)
NUMBERS = (0, 1, 0x7F, 0xFF, 0x7FFF, 0xFFFF, 0x10000, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)
VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2**31, 2**63 - 1, 2**63, 2**64 - 1, -(2**63)),
    *(0.0, -0.0, 1.5, 1e308, float("nan"), float("inf"), float("-inf")),
    *("", "x", "é" * 40, "x" * 5000, "\0", "f32", b"", b"x" * 16, b"\xff" * 300),
    *([], [[]], [0, 1], [1, 0], [0] * 65, {}, {"a": 1}, {1: 1}, msgpack.ExtType(5, b"x")),
)
MOST_BYTES = 8192


def example(kind: Any) -> Any:  # noqa: ANN401 - annotations have no common type
    """A plain value of an annotation: what a peer with nothing to say would send."""
    kind = getattr(kind, "__supertype__", kind)
    if kind is LayerRange:
        return LayerRange(0, 2)
    if is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        values = {field.name: example(hints[field.name]) for field in fields(kind)}
        return typing.cast("Any", kind)(**values)
    origin = typing.get_origin(kind)
    if origin is tuple:
        return (example(typing.get_args(kind)[0]),)
    if origin in (types.UnionType, typing.Union):
        return example(typing.get_args(kind)[0])
    return {int: 1, float: 0.5, str: "x", bytes: b"abcd", bool: True}[kind]


def spoil_bytes(chance: random.Random, data: bytes, others: list[bytes]) -> bytes:
    """One to three blind changes."""
    out = bytearray(data)
    for _ in range(chance.randint(1, 3)):
        chance.choice(_BLIND)(chance, out, others)
    return bytes(out[:MOST_BYTES])


def spoil_body(chance: random.Random, body: bytes) -> bytes:
    """One value of a msgpack body is another one."""
    try:
        tree = msgpack.unpackb(body, strict_map_key=False)
    except (ValueError, msgpack.UnpackException):
        return body
    tree = _spoil_tree(chance, tree)
    try:
        packed: bytes = msgpack.packb(tree)
    except (ValueError, OverflowError):
        return body
    return packed


def _spoil_tree(chance: random.Random, tree: Any) -> Any:  # noqa: ANN401 - what msgpack has
    if not isinstance(tree, list) or not tree or chance.random() < 0.1:
        return chance.choice(VALUES)
    at = chance.randrange(len(tree))
    match chance.randrange(8):
        case 0:
            return tree[:at] + tree[at + 1 :]
        case 1:
            return [*tree, chance.choice(VALUES)]
        case 2:
            return tree[:at] + [tree[at]] * chance.choice((2, 65)) + tree[at + 1 :]
        case _:
            return [*tree[:at], _spoil_tree(chance, tree[at]), *tree[at + 1 :]]


def _flip(chance: random.Random, out: bytearray, others: list[bytes]) -> None:
    if out:
        out[chance.randrange(len(out))] ^= 1 << chance.randrange(8)


def _put(chance: random.Random, out: bytearray, others: list[bytes]) -> None:
    if out:
        out[chance.randrange(len(out))] = chance.choice(BYTES)


def _number(chance: random.Random, out: bytearray, others: list[bytes]) -> None:
    at = chance.choice((0, 4, 8, chance.randrange(len(out) + 1)))
    out[at : at + 4] = struct.pack("!I", chance.choice(NUMBERS))


def _cut(chance: random.Random, out: bytearray, others: list[bytes]) -> None:
    del out[chance.randrange(len(out) + 1) :]


def _drop(chance: random.Random, out: bytearray, others: list[bytes]) -> None:
    at = chance.randrange(len(out) + 1)
    del out[at : at + chance.randint(1, 8)]


def _repeat(chance: random.Random, out: bytearray, others: list[bytes]) -> None:
    at = chance.randrange(len(out) + 1)
    out[at:at] = out[at : at + chance.randint(1, 16)] * chance.choice((1, 2, 100))


def _splice(chance: random.Random, out: bytearray, others: list[bytes]) -> None:
    other = chance.choice(others)
    out[chance.randrange(len(out) + 1) :] = other[chance.randrange(len(other) + 1) :]


def _insert(chance: random.Random, out: bytearray, others: list[bytes]) -> None:
    at = chance.randrange(len(out) + 1)
    out[at:at] = chance.randbytes(chance.randint(1, 12))


_BLIND: tuple[Callable[[random.Random, bytearray, list[bytes]], None], ...] = (
    *(_flip, _put, _number, _cut, _drop, _repeat, _splice, _insert),
)
