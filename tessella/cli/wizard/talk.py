"""How the wizard talks: questions with a default, and what is said between them."""

from __future__ import annotations

import os
import select
import signal
import sys
from collections.abc import Callable
from textwrap import indent
from typing import Any, Protocol, TypeVar

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.prompt import Prompt
from rich.text import Text

from tessella.core.errors import BadConfig, InputError, TessellaError
from tessella.core.text import one_line, printable
from tessella.tables import console

T = TypeVar("T")

MAX_ANSWER_CHARS = 4096
"""Longer than any path or address; what a slip of the clipboard types is refused."""
MARGIN = "  "
_YES = {"y": True, "yes": True, "n": False, "no": False}


class Talk(Protocol):
    """Somebody who answers questions."""

    def title(self, text: str) -> None:
        """Begin a part of the conversation."""

    def say(self, text: str) -> None:
        """A sentence; what others wrote in it is text, never markup."""

    def show(self, what: RenderableType) -> None:
        """A table, or a string as it is."""

    def ask(self, question: str, default: str = "") -> str:
        """The line that is typed, without blanks around it; `default` for an empty one.

        Raises EOFError (Ctrl-D) and KeyboardInterrupt (Ctrl-C).
        """


class TerminalTalk:
    """The conversation on a terminal."""

    def __init__(self, out: Console | None = None) -> None:
        self._out = out or console(sys.stdout)

    def title(self, text: str) -> None:
        """A line of its own, with space before it."""
        self._out.print()
        self._out.print(Text(text, style="bold"))

    def say(self, text: str) -> None:
        """Wrapped at the width of the terminal."""
        self._out.print(Text(one_line(text)))

    def show(self, what: RenderableType) -> None:
        """Moved in by two columns. The terminal breaks lines of a string, so they can be copied."""
        if isinstance(what, str):
            self._out.print(Text(indent(printable(what), MARGIN)), soft_wrap=True)
        else:
            self._out.print(Padding(what, (0, 0, 0, len(MARGIN))))

    def ask(self, question: str, default: str = "") -> str:
        """As `Talk.ask`; a line that is no text is asked for again."""
        # As a Text: in a plain string a bracket would be markup.
        prompt = Text(one_line(question), style="cyan")
        while True:
            try:
                line = self._typed(prompt, default)
                line.encode()
            except UnicodeError:
                self.say("That is no text of this terminal's encoding.")
                continue
            if len(line) <= MAX_ANSWER_CHARS and line.isprintable():
                return line.strip() or default
            self.say(f"That is not a line of at most {MAX_ANSWER_CHARS} characters.")

    def _typed(self, prompt: Text, default: str) -> str:
        typed: Any = TypedLines() if sys.stdin.isatty() else None
        if default:
            return Prompt.ask(prompt, console=self._out, default=default, stream=typed)
        return Prompt.ask(prompt, console=self._out, stream=typed)


class TypedLines:
    """Lines of the terminal on stdin. A Ctrl-C is heard whenever it comes.

    One that comes when the prompt is out and the read has not begun is only noted by Python's own
    reading, which then waits for a line all the same.
    """

    def readline(self) -> str:
        """The next line. Raises EOFError and KeyboardInterrupt."""
        ready, heard = os.pipe()
        os.set_blocking(heard, False)
        before = signal.set_wakeup_fd(heard, warn_on_full_buffer=False)
        try:
            select.select([sys.stdin, ready], [], [])
        finally:
            signal.set_wakeup_fd(before)
            os.close(ready)
            os.close(heard)
        line = sys.stdin.readline()
        if not line:
            raise EOFError
        return line


def ask_for(talk: Talk, question: str, read: Callable[[str], T], default: str = "") -> T:
    """Ask until `read` takes the answer; what it raises of InputError is said in between."""
    while True:
        try:
            return read(talk.ask(question, default))
        except InputError as exc:
            talk.say(sentence(exc))


def sentence(error: TessellaError) -> str:
    """An error, said to somebody who is asked again."""
    text = str(error)
    return f"{text[:1].upper()}{text[1:]}."


def ask_yes(talk: Talk, question: str, *, default: bool = True) -> bool:
    """Ask for yes or no."""
    return ask_for(talk, f"{question} [y/n]", _read_yes, "y" if default else "n")


def _read_yes(text: str) -> bool:
    try:
        return _YES[text.lower()]
    except KeyError:
        raise BadConfig("answer y or n") from None
