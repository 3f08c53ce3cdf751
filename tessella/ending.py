"""How a command ends: one line for whoever typed it, and an exit status for a script.

0     done
1     an error that trying again does not help, or a bug
2     a command line that does not parse
75    trying again later may help
78    a key, flag or variable is missing or wrong
130   Ctrl-C (128 + the number of the signal that ended it)
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from typing import NoReturn

import typer

from tessella.core.errors import TessellaError
from tessella.core.exits import EXIT_ERROR, exit_code, leaves
from tessella.core.text import one_line

EXIT_SIGNAL = 128
EXIT_INTERRUPT = EXIT_SIGNAL + 2


class EndedBySignal(BaseException):
    """A signal asked the command to end, and it has cleaned up."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def run_program(
    app: typer.Typer, program: str, args: Sequence[str] | None = None, *, trace_bugs: bool = True
) -> NoReturn:
    """Run a command to its end, and leave the interpreter with its exit status.

    A bug is one line as well, below its traceback if `trace_bugs`.
    """
    try:
        try:
            app(args=None if args is None else list(args), prog_name=program)
        finally:
            sys.stdout.flush()
        status: int | str | None = 0
    except SystemExit as exc:
        status = exc.code
    except BaseException as exc:  # noqa: BLE001 - the last frame: whatever it is, it is told here
        status = _report(program, exc, trace_bugs)
    sys.exit(status)


def tell(program: str, error: TessellaError) -> None:
    """The one line of an expected error, and the lines it has to show beside."""
    _say(f"{program}: {error.code}: {one_line(str(error))}")
    for note in getattr(error, "__notes__", ()):
        _say(one_line(note))


def root_cause(error: BaseException) -> BaseException:
    """What to report of a group: a bug before anything else, then the first expected error."""
    found = list(leaves(error))
    expected = (TessellaError, KeyboardInterrupt, BrokenPipeError, EndedBySignal)
    bugs = [leaf for leaf in found if not isinstance(leaf, expected)]
    ordered = bugs + [leaf for leaf in found if not isinstance(leaf, TessellaError)] + found
    return ordered[0]


def _report(program: str, error: BaseException, trace_bugs: bool) -> int:
    cause = root_cause(error)
    match cause:
        case KeyboardInterrupt():
            return EXIT_INTERRUPT
        case EndedBySignal():
            return EXIT_SIGNAL + cause.number
        case BrokenPipeError():
            _silence_stdout()
            return EXIT_ERROR
        case TessellaError():
            tell(program, cause)
            return exit_code(cause)
    if trace_bugs:
        traceback.print_exception(error)
    _say(f"{program}: internal_error: {type(cause).__name__}: {one_line(str(cause))}")
    return EXIT_ERROR


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")


def _silence_stdout() -> None:
    """The interpreter flushes stdout once more on its way out; nobody is left to read it."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
