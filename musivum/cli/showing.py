"""Answers as one line of JSON, or as tables for people."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime

import typer

from tessella.tables import console, table

NOTHING = "-"


def show_json(answer: object) -> None:
    """One line on stdout."""
    typer.echo(json.dumps(answer))


def show_facts(facts: Mapping[str, object]) -> None:
    """Names and values, a line each; a list is a line for each of its items."""
    rows: list[tuple[str, object]] = []
    for name, value in facts.items():
        several = value if isinstance(value, list) else [value]
        rows += [(name if number == 0 else "", each) for number, each in enumerate(several)]
    console(sys.stdout).print(table("", ("", ""), [(name, _cell(each)) for name, each in rows]))


def show_rows(title: str, headings: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """A table; what is not known is a dash."""
    cells = [[_cell(value) for value in row] for row in rows]
    console(sys.stdout).print(table(title, headings, cells))


def _cell(value: object) -> object:
    return NOTHING if value is None or value == "" else value


def show_records(
    title: str, columns: Mapping[str, str], records: Iterable[Mapping[str, object]]
) -> None:
    """A table of objects: `columns` are headings by field."""
    rows = [[record.get(field) for field in columns] for record in records]
    show_rows(f"{title}: {len(rows)}", tuple(columns.values()), rows)


def span(layers: object) -> str:
    """`[0, 2]` as `0:2`."""
    return ":".join(map(str, layers)) if isinstance(layers, list) else NOTHING


def moment(seconds: object) -> str | None:
    """Seconds since 1970 as a date in UTC."""
    if not isinstance(seconds, int | float):
        return None
    try:
        return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S}Z"
    except (ValueError, OverflowError, OSError):
        return str(seconds)
