"""Reading what a person types, while the rest of the program goes on."""

from __future__ import annotations

import contextlib
import sys
import termios
from collections.abc import Iterator
from functools import partial

import trio

PROMPT = "> "


def is_interactive() -> bool:
    """Whether there is someone to talk with."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def read_piped() -> str:
    """Everything that is piped in; the last line end is not part of it."""
    return sys.stdin.read().rstrip("\n")


async def read_line() -> str | None:
    """The next line with the editing that readline gives; None at its end (Ctrl-D).

    Cancelled, it leaves a thread behind that waits for the line for as long as the program lives.
    """
    # The stubs that libp2p brings along are older than this argument.
    wait = partial(trio.to_thread.run_sync, _input, abandon_on_cancel=True)  # type: ignore[call-arg, unused-ignore]
    line: str | None = await wait()
    return line


def _input() -> str | None:
    try:
        return input(PROMPT)
    except EOFError:
        return None


@contextlib.contextmanager
def terminal_restored() -> Iterator[None]:
    """Leave the terminal as it was, also when a read of a line never came to its end."""
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401 - `input` edits lines once it is imported
    before = termios.tcgetattr(sys.stdin.fileno())
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin.fileno(), termios.TCSADRAIN, before)
