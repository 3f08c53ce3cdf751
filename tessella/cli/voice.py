"""How an answer is heard: as its text comes, or not before its end."""

from __future__ import annotations

import sys
from typing import Protocol

from tessella.core.text import printable


def note(text: str) -> None:
    """A line of the story, on stderr."""
    print(text, file=sys.stderr, flush=True)


class Voice(Protocol):
    """What says answers, one after the other."""

    def say(self, text: str) -> None:
        """The next piece."""

    def end(self) -> None:
        """The answer is complete, or broke off: leave the terminal at the start of a line."""


class PlainVoice:
    """Writes to stdout: as it came, or fit for the eyes if that is a terminal."""

    def __init__(self) -> None:
        self._ended = True

    def say(self, text: str) -> None:
        """Write the next piece."""
        print(printable(text) if sys.stdout.isatty() else text, end="", flush=True)
        self._ended = text.endswith("\n")

    def end(self) -> None:
        """End the line, if one was begun."""
        if not self._ended:
            print(flush=True)
        self._ended = True


class SilentVoice:
    """For an answer that is printed at its end."""

    def say(self, text: str) -> None:
        """Nothing."""

    def end(self) -> None:
        """Nothing."""
