"""How a command ends: one line for whoever typed it, and an exit status for a script.

0     done
1     an error that trying again does not help, or a bug (which shows its traceback)
2     a command line that does not parse
75    trying again later may help
130   Ctrl-C (128 + the number of the signal that ended it)
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from typing import NoReturn

import typer

from tessella.cli.render import one_line
from tessella.core.errors import PeerGone, TessellaError
from tessella.core.exits import EXIT_ERROR, exit_code, leaves

EXIT_SIGNAL = 128
EXIT_INTERRUPT = EXIT_SIGNAL + 2


class DownloadFailed(PeerGone):
    """A model could not be fetched: no network, or an index that does not answer."""

    code = "download_failed"


class ProcessDied(TessellaError):
    """A program that this command started ended before it was told to."""

    code = "process_died"

    def __init__(self, text: str, *, retry: bool, log: Sequence[str] = ()) -> None:
        super().__init__(text)
        self.retry = retry
        for line in log:
            self.add_note(f"  | {line}")


class EndedBySignal(BaseException):
    """A signal asked the command to end, and it has cleaned up."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def run_program(app: typer.Typer, program: str, args: Sequence[str] | None = None) -> NoReturn:
    """Run a command to its end, and leave the interpreter with its exit status."""
    try:
        try:
            app(args=None if args is None else list(args), prog_name=program)
        finally:
            sys.stdout.flush()
        status: int | str | None = 0
    except SystemExit as exc:
        status = exc.code
    except BaseException as exc:  # noqa: BLE001 - the last frame: whatever it is, it is told here
        status = _report(program, exc)
    sys.exit(status)


def tell(program: str, error: TessellaError) -> None:
    """The one line of an expected error, and the lines it has to show beside."""
    print(f"{program}: {error.code}: {one_line(str(error))}", file=sys.stderr)
    for note in getattr(error, "__notes__", ()):
        print(one_line(note), file=sys.stderr)


def root_cause(error: BaseException) -> BaseException:
    """What to report of a group: a bug before anything else, then the first expected error."""
    found = list(leaves(error))
    expected = (TessellaError, KeyboardInterrupt, BrokenPipeError, EndedBySignal)
    bugs = [leaf for leaf in found if not isinstance(leaf, expected)]
    ordered = bugs + [leaf for leaf in found if not isinstance(leaf, TessellaError)] + found
    return ordered[0]


def _report(program: str, error: BaseException) -> int:
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
    traceback.print_exception(error)
    kind = type(cause).__name__
    print(f"{program}: internal_error: {kind}: {one_line(str(cause))}", file=sys.stderr)
    return EXIT_ERROR


def _silence_stdout() -> None:
    """The interpreter flushes stdout once more on its way out; nobody is left to read it."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
