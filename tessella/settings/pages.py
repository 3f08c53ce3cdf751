"""Documents made of keys: the file with all of them, and tables that explain them."""

from __future__ import annotations

import ast
import inspect
import json
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Any

from tessella.settings.keys import Key
from tessella.settings.kinds import plain

COLUMNS = 96
HEADINGS = ("key", "type", "default", "meaning, unit and rule", "variable", "flag")


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One key as documents show it."""

    key: Key
    meaning: str
    """Its docstring: what it is, its unit and its rule."""
    example: str
    """As TOML has it: the default, or what says about the same where that is no value at all."""
    told_default: str = ""
    """What a table says for the default, if not `example`."""

    @property
    def is_left_out(self) -> bool:
        """Whether the default is no value at all."""
        return self.key.default is None


def entries(
    keys: Mapping[str, Key],
    meanings: Mapping[str, str],
    examples: Mapping[str, object],
    told_defaults: Mapping[str, str] | None = None,
) -> list[Entry]:
    """Every key, in order. `examples` has a value for each whose default is None."""
    return [
        Entry(
            key=key,
            meaning=meanings[name],
            example=toml(examples[name] if key.default is None else key.default),
            told_default=(told_defaults or {}).get(name, ""),
        )
        for name, key in keys.items()
    ]


def field_docs(documented: type[Any]) -> dict[str, str]:
    """The docstrings below the fields of a class, each on one line."""
    (body,) = ast.parse(textwrap.dedent(inspect.getsource(documented))).body
    found = {}
    statements = body.body if isinstance(body, ast.ClassDef) else []
    for field, doc in pairwise(statements):
        match field, doc:
            case ast.AnnAssign(target=ast.Name(name)), ast.Expr(ast.Constant(str(text))):
                found[name] = " ".join(text.split())
    return found


def toml(value: object) -> str:
    """A value as TOML writes it: what JSON writes, with the letters as they are."""
    # JSON has DEL as it is, which TOML does not.
    return json.dumps(plain(value), ensure_ascii=False).replace("\x7f", "\\u007f")


def toml_file(shown: Iterable[Entry], values: Mapping[str, object] | None = None) -> str:
    """A file with these keys, what each means, and its value.

    A key without a value in `values` has its default, behind a `#` where that is none.
    """
    given = values or {}
    parts = []
    for section, inside in groupby(shown, lambda entry: entry.key.section):
        parts += [f"[{section}]\n"] if section else []
        parts += [_commented(entry, given) for entry in inside]
    return "\n".join(parts)


def _commented(entry: Entry, given: Mapping[str, object]) -> str:
    name = entry.key.name
    lines = textwrap.wrap(f"{entry.meaning} ({entry.key.kind.told})", COLUMNS)
    comment = "".join(f"# {line}\n" for line in lines)
    if name in given:
        return f"{comment}{name} = {toml(given[name])}\n"
    return f"{comment}{'# ' if entry.is_left_out else ''}{name} = {entry.example}\n"


def markdown_table(shown: Iterable[Entry]) -> str:
    """A table in Markdown, a row a key."""
    rows = [HEADINGS, ["---"] * len(HEADINGS), *(tuple(_cells(entry)) for entry in shown)]
    return "".join(f"{_row(row)}\n" for row in rows)


def _cells(entry: Entry) -> Iterator[str]:
    yield f"`{entry.key.name}`"
    yield entry.key.kind.told
    yield entry.told_default or ("left out" if entry.is_left_out else f"`{entry.example}`")
    yield entry.meaning
    yield ", ".join(f"`{variable}`" for variable in entry.key.variables)
    yield ", ".join(f"`{flag}`" for flag in entry.key.flags)


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
