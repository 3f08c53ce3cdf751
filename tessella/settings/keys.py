"""The keys of one program: each with its kind, its default, and its spelling in every source.

A program writes its keys down as a dataclass. A key says more about itself than the field can
with `key`:

    @dataclass(frozen=True)
    class Table:
        port: int = key(8080, PORT, flags=("--port",))
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, TypeVar

from tessella.settings.kinds import BY_ANNOTATION, Kind

T = TypeVar("T")

_DETAILS = "key"


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """One thing that an operator may set."""

    name: str
    kind: Kind
    default: object
    """As the program has it; None where it is left out."""
    section: str = ""
    """The table of the file in which it stands; empty is the top, before any table."""
    variables: tuple[str, ...]
    """Environment variables that say it. The first is its own."""
    flags: tuple[str, ...] = ()

    @property
    def place(self) -> str:
        """Where in the file it stands, for the end of a sentence."""
        return f"in [{self.section}]" if self.section else "at the top, before any [section]"


@dataclass(frozen=True, slots=True)
class _Details:
    kind: Kind | None
    flags: tuple[str, ...]
    variables: tuple[str, ...]


def key(
    default: T,
    kind: Kind | None = None,
    *,
    flags: tuple[str, ...] = (),
    variables: tuple[str, ...] = (),
) -> T:
    """A field of a dataclass of keys; without a kind it is that of its annotation.

    `variables` are others than the usual one.
    """
    details = _Details(kind, flags, variables)
    return field(default=default, metadata={_DETAILS: details})


def keys_of(
    table: type[Any],
    prefix: str,
    *,
    section: str = "",
    kinds: Mapping[str, Kind] | None = None,
    flags: Mapping[str, tuple[str, ...]] | None = None,
) -> dict[str, Key]:
    """The keys that a dataclass has as fields, in their order.

    `kinds` and `flags` are by name, for fields that do not say them themselves.
    """
    found = {}
    for each in fields(table):
        details = each.metadata.get(_DETAILS) or _Details(None, (), ())
        annotation = str(each.type).removesuffix(" | None")
        found[each.name] = Key(
            name=each.name,
            kind=details.kind or (kinds or {}).get(each.name) or BY_ANNOTATION[annotation],
            default=each.default,
            section=section,
            variables=(prefix + each.name.upper(), *details.variables),
            flags=details.flags or (flags or {}).get(each.name, ()),
        )
    return found


@dataclass(frozen=True)
class Keys:
    """All the keys of a program."""

    by_name: Mapping[str, Key]
    prefix: str
    """With which its environment variables begin."""
    others: tuple[str, ...] = ()
    """Variables that are known and no keys: with this prefix, or secrets, never in a file."""

    @cached_property
    def by_variable(self) -> dict[str, Key]:
        """The keys by each of their environment variables."""
        return {variable: one for one in self.by_name.values() for variable in one.variables}

    @cached_property
    def sections(self) -> tuple[str, ...]:
        """The tables of the file."""
        return tuple(dict.fromkeys(one.section for one in self.by_name.values() if one.section))

    def nearest(self, name: str) -> str:
        """The key whose name is most like this one, with its section."""
        found = self.by_name[_nearest(name, self.by_name)]
        return f"{found.name} in [{found.section}]" if found.section else found.name

    def nearest_variable(self, variable: str) -> str:
        """The environment variable that is most like this one."""
        known: dict[str, str] = {}
        for each in (*self.by_variable, *self.others):
            # The prefix, which nearly all have, would make any two of them near.
            known.setdefault(each.removeprefix(self.prefix), each)
        return known[_nearest(variable.removeprefix(self.prefix), known)]


def _nearest(name: str, known: Iterable[str]) -> str:
    return difflib.get_close_matches(name, known, n=1, cutoff=0.0)[0]
