"""A `ModelShape` as JSON, the way a node tells a tracker what it wants a part of."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any

from tessella.core.configs import (
    MAX_CONTEXT,
    MAX_HEAD_DIM,
    MAX_HEADS,
    MAX_LAYERS,
    MAX_VOCAB,
    MAX_WIDTH,
)
from tessella.core.errors import BadFrame
from tessella.core.shapes import ModelShape, Rope, RopeKind

# A shape is about 500 bytes.
MAX_SHAPE_BYTES = 8 * 1024
MAX_FAMILY_CHARS = 64

_LIMITS = {
    "layers": MAX_LAYERS,
    "hidden": MAX_WIDTH,
    "intermediate": MAX_WIDTH,
    "heads": MAX_HEADS,
    "kv_heads": MAX_HEADS,
    "head_dim": MAX_HEAD_DIM,
    "vocab": MAX_VOCAB,
    "context": MAX_CONTEXT,
}
_ROPE_NUMBERS = (
    "theta",
    "factor",
    "low_freq_factor",
    "high_freq_factor",
    "beta_fast",
    "beta_slow",
)
# Above any frequency base.
_MAX_NUMBER = 1e30
_FLAGS = ("tied", "qkv_bias", "out_bias", "mlp_bias")


def encode_shape(shape: ModelShape) -> bytes:
    """UTF-8 JSON: the fields by name, the rope nested, its kind by its word."""
    plain = asdict(shape)
    plain["rope"]["kind"] = shape.rope.kind.value
    return json.dumps(plain, sort_keys=True, separators=(",", ":")).encode()


def decode_shape(data: bytes) -> ModelShape:
    """The inverse. Raises BadFrame that names the first field beyond its rule."""
    if len(data) > MAX_SHAPE_BYTES:
        raise BadFrame(f"a shape of {len(data)} bytes, over the limit of {MAX_SHAPE_BYTES}")
    try:
        loaded = json.loads(data)
    except (ValueError, RecursionError) as exc:
        raise BadFrame("a shape that is not JSON") from exc
    plain = _object(loaded, ModelShape, "shape")
    family = plain["family"]
    if not isinstance(family, str) or len(family) > MAX_FAMILY_CHARS or not family.isprintable():
        raise BadFrame("shape.family is no word")
    numbers: dict[str, Any] = {
        key: _whole(plain[key], limit, f"shape.{key}") for key, limit in _LIMITS.items()
    }
    flags: dict[str, Any] = {key: _flag(plain[key], f"shape.{key}") for key in _FLAGS}
    return ModelShape(
        family=family,
        norm_eps=_number(plain["norm_eps"], "shape.norm_eps"),
        rope=_rope(_object(plain["rope"], Rope, "shape.rope")),
        **numbers,
        **flags,
    )


def _rope(plain: Mapping[str, object]) -> Rope:
    words = {kind.value: kind for kind in RopeKind}
    kind, original, attention = plain["kind"], plain["original_context"], plain["attention_factor"]
    if not isinstance(kind, str) or kind not in words:
        raise BadFrame("shape.rope.kind is no word we have")
    numbers: dict[str, Any] = {
        key: _number(plain[key], f"shape.rope.{key}") for key in _ROPE_NUMBERS
    }
    if original != 0:
        numbers["original_context"] = _whole(original, MAX_CONTEXT, "shape.rope.original_context")
    if attention is not None:
        numbers["attention_factor"] = _number(attention, "shape.rope.attention_factor")
    return Rope(kind=words[kind], **numbers)


def _object(value: object, kind: type[Any], name: str) -> Mapping[str, object]:
    """A JSON object with just the fields of a class."""
    wanted = {field.name for field in fields(kind)}
    if not isinstance(value, dict) or value.keys() != wanted:
        raise BadFrame(f"{name} is not an object of {', '.join(sorted(wanted))}")
    return value


def _whole(value: object, limit: int, name: str) -> int:
    if type(value) is not int or not 1 <= value <= limit:
        raise BadFrame(f"{name} is not a whole number from 1 to {limit}")
    return value


def _number(value: object, name: str) -> float:
    # An integer of JSON may be too long for a float; NaN is within no limit.
    if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= _MAX_NUMBER:
        return float(value)
    raise BadFrame(f"{name} is not a number up to {_MAX_NUMBER:g}")


def _flag(value: object, name: str) -> bool:
    if not isinstance(value, bool):
        raise BadFrame(f"{name} is not true or false")
    return value
