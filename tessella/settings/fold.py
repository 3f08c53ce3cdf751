"""All sources folded to one value a key, and who set it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tessella.settings.keys import Keys
from tessella.settings.sources import DEFAULT, Source, read_value


@dataclass(frozen=True, slots=True)
class Folded:
    """What the sources say together."""

    values: Mapping[str, Any]
    """As the program takes them, by key: those that somebody set."""
    sources: Mapping[str, str]
    """For every key: `default`, `file`, `environment` or `flag`."""


def fold(keys: Keys, sources: Iterable[Source]) -> Folded:
    """Each source goes before those that come earlier, key by key.

    Every value is read, also one that another source goes before: what is wrong in a file would
    else come to light on the day a variable is gone. Raises as `read_value`.
    """
    values: dict[str, Any] = {}
    names = dict.fromkeys(keys.by_name, DEFAULT)
    for source in sources:
        for name in source.values:
            values[name] = read_value(keys.by_name[name], source)
            names[name] = source.name
    return Folded(values, names)
