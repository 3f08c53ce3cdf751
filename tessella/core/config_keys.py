"""Typed look-ups in what a checkpoint says about itself, with the key in every complaint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tessella.core.errors import BadWeights, UnsupportedModel

# A 32-bit float holds this; the arithmetic of a rope stays finite below it.
_MAX_NUMBER = 1e30
_SHOWN_CHARS = 60


@dataclass(frozen=True, slots=True)
class Keys:
    """Typed look-ups in one mapping. Raises BadWeights naming the key."""

    values: Mapping[str, object]
    prefix: str = ""

    def get(self, key: str) -> object:
        """The value, or None."""
        return self.values.get(key)

    def named(self, key: str) -> str:
        """The key as the file spells it, for messages."""
        return f"{self.prefix}{key}"

    def whole(self, key: str, limit: int, default: int | None = None) -> int:
        """A whole number from 1 to `limit`."""
        value = self.get(key)
        value = default if value is None else value
        if value is None:
            raise BadWeights(f"{self.named(key)} is missing")
        if isinstance(value, bool) or not isinstance(value, int):
            raise BadWeights(f"{self.named(key)} must be a whole number, not {shown(value)}")
        if not 1 <= value <= limit:
            raise BadWeights(f"{self.named(key)} must be from 1 to {limit}, not {shown(value)}")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        """A finite number above 0."""
        value = self.get(key)
        value = default if value is None else value
        if value is None:
            raise BadWeights(f"{self.named(key)} is missing")
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise BadWeights(f"{self.named(key)} must be a number, not {shown(value)}")
        if not 0 < value <= _MAX_NUMBER:
            raise BadWeights(f"{self.named(key)} must be above 0 and finite, not {shown(value)}")
        return float(value)

    def flag(self, key: str) -> bool:
        """A truth value; a missing one is false."""
        value = self.get(key)
        if value is not None and not isinstance(value, bool):
            raise BadWeights(f"{self.named(key)} must be true or false, not {shown(value)}")
        return bool(value)

    def word(self, key: str, default: str | None = None) -> str:
        """A string."""
        value = self.get(key)
        value = default if value is None else value
        if value is None:
            raise BadWeights(f"{self.named(key)} is missing")
        if not isinstance(value, str):
            raise BadWeights(f"{self.named(key)} must be a string, not {shown(value)}")
        return value

    def refuse(self, key: str, *harmless: object) -> None:
        """Raises UnsupportedModel if the key has a value other than null and these."""
        value = self.get(key)
        if value is not None and value not in harmless:
            raise UnsupportedModel(f"{self.named(key)} = {shown(value)} is not supported")


def shown(value: object) -> str:
    """A stranger's value as a message may hold it: its repr, cut short."""
    if isinstance(value, int) and value.bit_length() > 128:
        return "a number of more than 128 bits"
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}…"
