"""The lines that were typed, kept from one conversation to the next."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from tessella.catalogue import home
from tessella.cli.private_file import read_file, replace_file
from tessella.core.errors import BadConfig
from tessella.core.text import printable

FILE_NAME = "chat_history"
MAX_HISTORY = 1000
"""Lines that are kept: the last ones."""
MAX_HISTORY_FILE = 4 * 1024 * 1024
"""Bytes: so many lines of a whole paragraph each."""
_WHAT = "the history"


def read_history(path: Path) -> list[str]:
    """The lines in a file, the oldest first. What cannot be read is no history."""
    with suppress(FileNotFoundError, BadConfig):
        lines = printable(read_file(path, _WHAT, MAX_HISTORY_FILE)).splitlines()
        return [line for line in lines if line.strip()][-MAX_HISTORY:]
    return []


def write_history(path: Path, lines: Sequence[str]) -> None:
    """Keep the last lines. Raises BadConfig."""
    kept = list(lines[-MAX_HISTORY:])
    while kept and sum(len(line.encode()) + 1 for line in kept) > MAX_HISTORY_FILE:
        del kept[: len(kept) // 2 + 1]
    replace_file(path, _WHAT, "".join(f"{line}\n" for line in kept))


@contextmanager
def history_kept(path: Path | None = None) -> Iterator[None]:
    """Lines of earlier conversations can be called up again, and those of this one are kept.

    Only at a terminal, and only where Python was built with readline. That it cannot be written
    ends nothing: the conversation was had.
    """
    try:
        import readline
    except ImportError:
        yield
        return
    if not sys.stdin.isatty():
        yield
        return
    where = path or home() / FILE_NAME
    readline.clear_history()
    for line in read_history(where):
        readline.add_history(line)
    try:
        yield
    finally:
        places = range(1, readline.get_current_history_length() + 1)
        lines = [readline.get_history_item(place) for place in places]
        with suppress(BadConfig):
            write_history(where, [line for line in lines if line])
