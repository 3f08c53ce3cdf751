"""A row is a line where nobody looks, and what is in a cell is text."""

from __future__ import annotations

import io

from tessella.tables import console, table


def shown(title: str, headings: list[str], rows: list[list[object]]) -> list[str]:
    out = io.StringIO()
    console(out).print(table(title, headings, rows))
    return [line.rstrip() for line in out.getvalue().splitlines()]


def test_a_row_that_is_piped_is_one_line_however_long() -> None:
    lines = shown("", ["a", "b"], [["x" * 200, 1]])
    assert [line.split() for line in lines] == [["a", "b"], ["x" * 200, "1"]]


def test_neither_markup_nor_an_escape_in_a_cell_is_obeyed() -> None:
    assert shown("t", ["a"], [["[red]x[/red]"], ["\x1b[2Jy\nz"]]) == [
        "t",
        "a",
        "[red]x[/red]",
        "[2Jy z",
    ]
