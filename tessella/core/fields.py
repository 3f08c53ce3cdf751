"""How a frozen dataclass becomes an array of plain values and back, checked field by field.

The annotations are the schema: `int`, `float`, `str`, `bytes`, `bool`, tuples of one type,
optional values, and dataclasses nested as arrays. What arrives from a peer is compared with it
exactly; an integer is never taken for a bool, nor a missing field for a default.
"""

from __future__ import annotations

import math
import types
import typing
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar

from tessella.core.errors import BadFrame

T = TypeVar("T")
Decode = Callable[[object], Any]

# Counters, positions and ids: what fits every language's signed 64-bit integer.
_INT_LIMIT = 2**63


def to_plain(value: object) -> Any:  # noqa: ANN401 - what msgpack takes
    """A value as msgpack carries it: dataclasses and tuples become lists."""
    if is_dataclass(value):
        return [to_plain(getattr(value, name)) for name, _ in _schema(type(value))]
    if isinstance(value, tuple):
        return [to_plain(item) for item in value]
    return value


def from_plain(kind: type[T], values: list[Any]) -> T:
    """An instance of a dataclass from plain values. Raises BadFrame that names the field."""
    wanted = _schema(kind)
    if len(values) != len(wanted):
        raise BadFrame(f"{kind.__name__} has {len(wanted)} fields, not {len(values)}")
    found = {}
    for (name, decode), value in zip(wanted, values, strict=True):
        try:
            found[name] = decode(value)
        except TypeError as exc:
            raise BadFrame(f"{kind.__name__}.{name}: {exc}") from None
    try:
        return kind(**found)
    except ValueError as exc:
        raise BadFrame(f"{kind.__name__}: {exc}") from None


def _schema(kind: Any) -> tuple[tuple[str, Decode], ...]:  # noqa: ANN401 - any dataclass
    """The fields of a dataclass with the function that checks each."""
    known = _SCHEMAS.get(kind)
    if known is None:
        hints = typing.get_type_hints(kind)
        known = tuple((field.name, _decoder(hints[field.name])) for field in fields(kind))
        _SCHEMAS[kind] = known
    return known


# One entry a class, made when it is first met; classes are as many as the code has.
_SCHEMAS: dict[Any, tuple[tuple[str, Decode], ...]] = {}


def _decoder(hint: Any) -> Decode:  # noqa: ANN401 - annotations have no common type
    hint = getattr(hint, "__supertype__", hint)  # a NewType is checked as what it names
    origin = typing.get_origin(hint)
    if origin is tuple:
        return _tuple_of(_decoder(typing.get_args(hint)[0]))
    if origin in (types.UnionType, typing.Union):
        (inner,) = (arg for arg in typing.get_args(hint) if arg is not type(None))
        return _optional(_decoder(inner))
    if is_dataclass(hint):
        return _nested(typing.cast("type[Any]", hint))
    return _SCALARS[hint]


def _int(value: object) -> int:
    if type(value) is not int or not -_INT_LIMIT <= value < _INT_LIMIT:
        raise TypeError("wanted an integer of 64 bits")
    return value


def _float(value: object) -> float:
    if type(value) is int or type(value) is float:
        number = float(value)
        if math.isfinite(number):
            return number
    raise TypeError("wanted a finite number")


def _exactly(kind: type[Any]) -> Decode:
    def decode(value: object) -> object:
        if type(value) is not kind:
            raise TypeError(f"wanted {kind.__name__}, not {type(value).__name__}")
        return value

    return decode


_SCALARS: dict[Any, Decode] = {
    int: _int,
    float: _float,
    str: _exactly(str),
    bytes: _exactly(bytes),
    bool: _exactly(bool),
}


def _tuple_of(item: Decode) -> Decode:
    def decode(value: object) -> tuple[Any, ...]:
        if type(value) is not list:
            raise TypeError(f"wanted an array, not {type(value).__name__}")
        return tuple(item(part) for part in value)

    return decode


def _optional(inner: Decode) -> Decode:
    return lambda value: None if value is None else inner(value)


def _nested(kind: type[Any]) -> Decode:
    def decode(value: object) -> object:
        if type(value) is not list:
            raise TypeError(f"wanted an array, not {type(value).__name__}")
        return from_plain(kind, value)

    return decode
