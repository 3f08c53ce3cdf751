"""What a person says at once: a line, or several of them.

a line that ends in a backslash goes on in the next
three quotes before the first line and behind the last hold whatever lies between
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

PROMPT, MORE = "> ", ". "
QUOTES = '"""'
MAX_TYPED = 4 * 1024 * 1024
"""Characters of one message: no request is longer."""

ReadLine = Callable[[str], Awaitable[str | None]]


async def read_message(read_line: ReadLine) -> str | None:
    """The next message; None where the lines end, also in the middle of one."""
    line = await read_line(PROMPT)
    if line is not None and line.lstrip().startswith(QUOTES):
        return await _quoted(line.lstrip().removeprefix(QUOTES), read_line)
    lines: list[str] = []
    while line is not None and line.endswith("\\") and _is_short(lines):
        lines.append(line.removesuffix("\\"))
        line = await read_line(MORE)
    return None if line is None else "\n".join([*lines, line])


async def _quoted(line: str | None, read_line: ReadLine) -> str | None:
    lines: list[str] = []
    while line is not None and not line.rstrip().endswith(QUOTES) and _is_short(lines):
        lines.append(line)
        line = await read_line(MORE)
    if line is None:
        return None
    return "\n".join([*lines, line.rstrip().removesuffix(QUOTES)]).strip("\n")


def _is_short(lines: list[str]) -> bool:
    return sum(map(len, lines)) < MAX_TYPED
