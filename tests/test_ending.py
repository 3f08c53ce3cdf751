"""One line, a status, and a traceback for bugs alone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest
import typer

from tessella.core.errors import BadAddress, ModelUnavailable, PeerSilent, RemoteFailure
from tessella.ending import EndedBySignal, root_cause, run_program, tell


def ended(error: BaseException | None, *, trace_bugs: bool = True) -> int | str | None:
    app = typer.Typer()

    @app.command()
    def fail() -> None:
        if error is not None:
            raise error

    with pytest.raises(SystemExit) as caught:
        run_program(app, "tessella", [], trace_bugs=trace_bugs)
    return caught.value.code


def group(*errors: BaseException) -> BaseException:
    return BaseExceptionGroup("outer", [BaseExceptionGroup("inner", list(errors))])


@pytest.mark.parametrize(
    ("error", "status", "line"),
    [
        (None, 0, ""),
        (BadAddress("no port in 'x'"), 1, "tessella: bad_address: no port in 'x'\n"),
        (PeerSilent("p said nothing"), 75, "tessella: peer_silent: p said nothing\n"),
        (group(ModelUnavailable("0:3")), 75, "tessella: model_unavailable: 0:3\n"),
        (RemoteFailure("busy", "", retry=True), 75, "tessella: busy: busy\n"),
        (KeyboardInterrupt(), 130, ""),
        (group(KeyboardInterrupt(), PeerSilent("p")), 130, ""),
        (EndedBySignal(signal.SIGTERM), 143, ""),
        (typer.Exit(3), 3, ""),
    ],
)
def test_an_end_is_one_line_and_a_status(
    error: BaseException | None, status: int, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ended(error) == status
    assert capsys.readouterr().err == line


def test_a_bug_shows_its_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    assert ended(group(PeerSilent("p"), ZeroDivisionError("by zero"))) == 1
    shown = capsys.readouterr().err
    assert "Traceback" in shown
    assert shown.endswith("tessella: internal_error: ZeroDivisionError: by zero\n")


def test_a_bug_can_be_one_line_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert ended(group(ValueError("two\nlines")), trace_bugs=False) == 1
    assert capsys.readouterr().err == "tessella: internal_error: ValueError: two lines\n"


def test_what_a_peer_wrote_cannot_steer_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    tell("tessella", RemoteFailure("busy", "a\x1b[2Jb\nc\x9bd\x00", retry=True))
    assert capsys.readouterr().err == "tessella: busy: a[2Jb cd\n"


def test_a_bug_goes_before_a_signal_and_a_signal_before_an_error() -> None:
    silent, pressed, bug = PeerSilent("p"), KeyboardInterrupt(), ValueError("v")
    assert root_cause(group(silent, pressed, bug)) is bug
    assert root_cause(group(silent, pressed)) is pressed
    assert root_cause(silent) is silent


@pytest.mark.mesh
def test_a_reader_that_left_is_no_reason_for_a_traceback() -> None:
    """`tessella … | head`, whose reader has gone before the first line."""
    reader, writer = os.pipe()
    os.close(reader)
    program = [sys.executable, "-m", "tessella.cli.main", "--version"]
    ran = subprocess.run(program, stdout=writer, stderr=subprocess.PIPE, timeout=60, check=False)
    os.close(writer)
    assert (ran.returncode, ran.stderr) == (1, b"")
