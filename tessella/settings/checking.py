"""One value read as its kind, or one line about it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from tessella.core.errors import BadConfig, InputError
from tessella.settings.keys import Key
from tessella.settings.masking import masked

T = TypeVar("T")

_SHOWN = 200


def checked(
    key: Key, value: T, read: Callable[[T], object], where: str, *, is_typed: bool = False
) -> object:
    """What `read` makes of a value; `where` it was set is told with what is wrong about it.

    What is wrong is a BadConfig, but for what somebody typed: there an error inside a value, such
    as a BadAddress, keeps its type.
    """
    try:
        return read(value)
    except (ValueError, OverflowError):
        shown = masked(repr(value))[:_SHOWN]
        raise BadConfig(f"{key.name} = {shown} in {where}: has to be {key.kind.told}") from None
    except InputError as exc:
        kind = type(exc) if is_typed else BadConfig
        raise kind(f"{key.name} in {where}: {exc}") from None
