"""Reading what a person types, while the rest of the program goes on."""

from __future__ import annotations

import contextlib
import sys
import termios
from collections.abc import Iterator
from functools import partial

import trio

MAX_LINE_CHARS = 1024 * 1024
"""Of a line that is piped in; a request is not much longer."""


def is_interactive() -> bool:
    """Whether there is someone to talk with."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def read_piped() -> str:
    """Everything that is piped in; the last line end is not part of it."""
    return sys.stdin.read().rstrip("\n")


async def read_line(prompt: str) -> str | None:
    """The next line with the editing that readline gives; None at its end (Ctrl-D).

    Cancelled, it leaves a thread behind that waits for the line for as long as the program lives.
    """
    # The stubs that libp2p brings along are older than this argument.
    wait = partial(trio.to_thread.run_sync, _input, prompt, abandon_on_cancel=True)  # type: ignore[call-arg, unused-ignore]
    line: str | None = await wait()
    return line


def _input(prompt: str) -> str | None:
    if not sys.stdin.isatty():
        line = sys.stdin.readline(MAX_LINE_CHARS)
        return line.removesuffix("\n") if line else None
    # What is typed is not the answer: a prompt has no place in a file that stdout goes to.
    if not sys.stdout.isatty():
        print(prompt, end="", file=sys.stderr, flush=True)
        prompt = ""
    try:
        return input(prompt)
    except EOFError:
        return None


@contextlib.contextmanager
def terminal_restored() -> Iterator[None]:
    """Leave the terminal as it was, also when a read of a line never came to its end."""
    if not sys.stdin.isatty():
        yield
        return
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401 - `input` edits lines once it is imported
    before = termios.tcgetattr(sys.stdin.fileno())
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin.fileno(), termios.TCSADRAIN, before)
