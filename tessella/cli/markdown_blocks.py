"""Markdown cut into blocks while it comes: those that are complete, and the one still open.

A block ends at a blank line outside of a fence, or with the fence. How the text was cut when it
came makes no difference to its blocks.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

MAX_OPEN = 4096
"""Characters of an open block: it is drawn again and again, so that it has to be small."""
MAX_LINE = 1024
"""Characters of a line before its end has come: a paragraph of 200 words."""
_FENCE = re.compile(r"( *)(`{3,}|~{3,})[^`\n]*\n")
_NESTED = 4
"""From so many spaces on a fence belongs to the list above it."""


@dataclass(frozen=True, slots=True)
class _Fence:
    opening: str
    """The line that opened it: with it the rest of a long one opens again."""
    marks: str

    def closed_by(self, line: str) -> bool:
        """Whether a line ends the fence."""
        marks = line.strip()
        return len(marks) >= len(self.marks) and set(marks) == {self.marks[0]}


class Blocks:
    """The blocks of one text."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._size = 0
        self._rest = ""
        self._is_in_line = False
        self._fence: _Fence | None = None

    @property
    def open(self) -> str:
        """The block that is not complete."""
        return "".join(self._parts) + self._rest

    def ending(self, lines: int) -> str:
        """The same to look at the end of it: of a fence no more than its last lines."""
        if self._fence is None or len(self._parts) <= lines:
            return self.open
        return "".join([self._fence.opening, *self._parts[-lines:], self._rest])

    def feed(self, text: str) -> list[str]:
        """The blocks that the next piece completes."""
        found: list[str] = []
        *lines, last = text.split("\n")
        for piece in (*(f"{line}\n" for line in lines), last):
            self._rest += piece
            while len(self._rest) > MAX_LINE:
                part, self._rest = self._rest[:MAX_LINE], self._rest[MAX_LINE:]
                found += self._take(part)
            if self._rest.endswith("\n"):
                line, self._rest = self._rest, ""
                found += self._take(line)
        return found

    def close(self) -> list[str]:
        """The block that is left, if any: the text has ended."""
        left = self.open
        self._parts, self._size, self._rest = [], 0, ""
        self._is_in_line, self._fence = False, None
        return [left] if left.strip() else []

    def _take(self, part: str) -> list[str]:
        """A line, or a part of a long one."""
        begins, self._is_in_line = not self._is_in_line, not part.endswith("\n")
        if self._fence is not None:
            return self._take_fenced(self._fence, part, begins)
        opened = _FENCE.fullmatch(part) if begins else None
        if opened is not None:
            found = self._flush() if len(opened[1]) < _NESTED else []
            self._fence = _Fence(part.lstrip(" "), opened[2])
            self._append(part)
            return found
        self._append(part)
        is_blank = begins and not part.strip()
        return self._flush() if is_blank or self._size > MAX_OPEN else []

    def _take_fenced(self, fence: _Fence, part: str, begins: bool) -> list[str]:
        self._append(part)
        if begins and fence.closed_by(part):
            self._fence = None
            return self._flush()
        if self._size <= MAX_OPEN:
            return []
        self._append(f"\n{fence.marks}\n")
        found = self._flush()
        self._append(fence.opening)
        return found

    def _append(self, part: str) -> None:
        self._parts.append(part)
        self._size += len(part)

    def _flush(self) -> list[str]:
        """The open block, unless it is blank: then it goes before the next."""
        if self._size <= MAX_OPEN and not any(part.strip() for part in self._parts):
            return []
        block = "".join(self._parts)
        self._parts, self._size = [], 0
        return [block]
