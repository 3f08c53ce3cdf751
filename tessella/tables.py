"""Tables for people, on a terminal or piped. What comes from a peer is data: markup is text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TextIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tessella.core.text import one_line

# Where nobody looks at a terminal a row of the widest table stays one line.
PIPED_WIDTH = 400


def console(file: TextIO) -> Console:
    """A console on a stream: as wide as the terminal, or as a long line where there is none."""
    return Console(file=file, width=None if file.isatty() else PIPED_WIDTH, highlight=False)


def table(title: str, headings: Sequence[str], rows: Iterable[Sequence[object]]) -> Table:
    """A table of plain cells."""
    made = Table(
        title=Text(title) if title else None,
        title_justify="left",
        box=None,
        pad_edge=False,
        show_header=any(headings),
    )
    for heading in headings:
        made.add_column(heading, overflow="fold")
    for row in rows:
        made.add_row(*(Text(one_line(str(cell))) for cell in row))
    return made
