"""Server-sent events out of bytes that arrive in any pieces. Nothing here waits.

parser = EventParser()
for event in parser.feed(piece):
    ...                                     # Data("{...}"), Comment("keep-alive")
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tessella.core.errors import BadFrame, FrameTooLarge

MAX_EVENT = 256 * 1024
"""Bytes of a line, and of an event. A token with all its alternatives is under 4 KiB."""
MAX_STREAM = 256 * 1024 * 1024
"""Bytes of a whole answer: about half a million tokens, at some 500 bytes each."""
_LINE_END = re.compile(rb"\r\n|\n|\r")


@dataclass(frozen=True, slots=True)
class Data:
    """The data of an event, its lines joined."""

    text: str


@dataclass(frozen=True, slots=True)
class Comment:
    """A line that is no event: a sign of life, or a word for whoever looks."""

    text: str


class EventParser:
    """Reads one stream. Fields other than `data` are passed over, as the standard says.

    An event whose blank line never came is no event.
    """

    def __init__(self, most: int = MAX_STREAM) -> None:
        self._most = most
        self._total = 0
        self._rest = bytearray()
        self._after_return = False
        self._data: list[str] = []
        self._held = 0

    def feed(self, piece: bytes) -> list[Data | Comment]:
        """What the next bytes complete. Raises BadFrame, and FrameTooLarge above a limit."""
        self._total += len(piece)
        if self._total > self._most:
            raise FrameTooLarge(self._total, self._most)
        if self._after_return and piece.startswith(b"\n"):
            piece = piece[1:]
            self._after_return = False
        if not piece:
            return []
        self._after_return = piece.endswith(b"\r")
        # Only what is new is looked through: a long line in small pieces costs no more than itself.
        first, *later = _LINE_END.split(piece)
        self._rest += first
        found: list[Data | Comment] = []
        for following in later:
            found += self._line(bytes(self._rest))
            self._rest = bytearray(following)
        _check(len(self._rest))
        return found

    def _line(self, line: bytes) -> list[Data | Comment]:
        _check(len(line))
        if not line:
            event = [Data("\n".join(self._data))] if self._data else []
            self._data, self._held = [], 0
            return list(event)
        try:
            name, _, value = line.decode().partition(":")
        except UnicodeDecodeError:
            raise BadFrame("an event stream that is not UTF-8") from None
        value = value.removeprefix(" ")
        if not name:
            return [Comment(value)]
        if name == "data":
            self._held += len(line)
            _check(self._held)
            self._data.append(value)
        return []


def _check(length: int) -> None:
    if length > MAX_EVENT:
        raise FrameTooLarge(length, MAX_EVENT)
