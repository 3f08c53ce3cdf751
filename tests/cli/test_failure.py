"""Errors that only commands have."""

from __future__ import annotations

import pytest

from tessella.cli.failure import ProcessDied
from tessella.ending import tell


def test_a_program_that_died_shows_its_last_words(capsys: pytest.CaptureFixture[str]) -> None:
    tell("tessella", ProcessDied("worker-2 ended", retry=False, log=["one", "two"]))
    assert capsys.readouterr().err.splitlines() == [
        "tessella: process_died: worker-2 ended",
        "  | one",
        "  | two",
    ]
