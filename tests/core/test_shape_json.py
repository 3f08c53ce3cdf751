"""A shape that a node sends is the shape that arrives, and no field of it is taken on trust."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tessella.core.configs import MAX_LAYERS
from tessella.core.errors import BadFrame
from tessella.core.shape_json import MAX_SHAPE_BYTES, decode_shape, encode_shape
from tessella.core.shapes import ModelShape, Rope, RopeKind

SHAPE = ModelShape(
    family="llama",
    layers=30,
    hidden=576,
    intermediate=1536,
    heads=9,
    kv_heads=3,
    head_dim=64,
    vocab=49152,
    context=8192,
    tied=True,
)
YARN = Rope(theta=1e6, kind=RopeKind.YARN, factor=4.0, original_context=4096, attention_factor=1.25)


@pytest.mark.parametrize("rope", [Rope(), YARN, Rope(kind=RopeKind.LLAMA3, factor=32.0)])
def test_a_shape_arrives_as_it_was(rope: Rope) -> None:
    shape = ModelShape(**{name: getattr(SHAPE, name) for name in SHAPE.__slots__} | {"rope": rope})
    assert decode_shape(encode_shape(shape)) == shape


def changed(path: str, value: object) -> bytes:
    plain: dict[str, Any] = json.loads(encode_shape(SHAPE))
    place = plain
    *outer, last = path.split(".")
    for key in outer:
        place = place[key]
    place[last] = value
    return json.dumps(plain).encode()


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("layers", 0),
        ("layers", MAX_LAYERS + 1),
        ("layers", 30.0),
        ("layers", True),
        ("hidden", "576"),
        ("vocab", 1 << 40),
        ("tied", 1),
        ("norm_eps", "small"),
        ("norm_eps", 10**400),
        ("norm_eps", False),
        ("family", 7),
        ("family", "x" * 65),
        ("rope", None),
        ("rope.kind", "linear2"),
        ("rope.kind", []),
        ("rope.theta", float("nan")),
        ("rope.factor", float("inf")),
        ("rope.original_context", -1),
        ("rope.attention_factor", "1"),
    ],
)
def test_a_field_beyond_its_rule_is_named(path: str, value: object) -> None:
    with pytest.raises(BadFrame, match=rf"shape\.{path}"):
        decode_shape(changed(path, value))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"{}",
        b"\xff",
        b"[" * 5000,
        changed("more", 1),
        changed("rope.more", 1),
        b" " * (MAX_SHAPE_BYTES + 1),
    ],
)
def test_what_is_no_shape_is_refused(data: bytes) -> None:
    with pytest.raises(BadFrame):
        decode_shape(data)
