"""Lines that are remembered: the last ones, for their owner alone."""

from __future__ import annotations

import readline
from pathlib import Path

import pytest

from tessella.cli import history
from tessella.cli.history import MAX_HISTORY, history_kept, read_history, write_history


def test_the_last_lines_are_kept_in_order(tmp_path: Path) -> None:
    path = tmp_path / "history"
    write_history(path, [f"line {number} é" for number in range(MAX_HISTORY + 5)])
    kept = read_history(path)
    assert (len(kept), kept[0], kept[-1]) == (MAX_HISTORY, "line 5 é", f"line {MAX_HISTORY + 4} é")
    assert path.stat().st_mode & 0o777 == 0o600


def test_long_lines_are_kept_as_far_as_they_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "MAX_HISTORY_FILE", 20)
    write_history(tmp_path / "history", ["a" * 9, "b" * 9, "c" * 9])
    assert read_history(tmp_path / "history") == ["c" * 9]


def test_what_cannot_be_read_is_no_history_and_steers_no_terminal(tmp_path: Path) -> None:
    assert read_history(tmp_path) == read_history(tmp_path / "none") == []
    (tmp_path / "odd").write_bytes(b"one\x1b[2J\n\n\xc2\x9btwo\n")
    assert read_history(tmp_path / "odd") == ["one[2J", "two"]
    (tmp_path / "torn").write_bytes(b"\xff")
    assert read_history(tmp_path / "torn") == []


def test_lines_typed_at_a_terminal_are_there_the_next_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    path = tmp_path / "home" / "history"
    with history_kept(path):
        readline.add_history("one")
    readline.clear_history()
    with history_kept(path):
        assert readline.get_history_item(1) == "one"
        readline.add_history("two")
    assert read_history(path) == ["one", "two"]


def test_a_home_that_cannot_be_written_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    (tmp_path / "file").touch()
    with history_kept(tmp_path / "file" / "history"):
        readline.add_history("one")


def test_nothing_is_kept_of_what_is_piped_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: False, raising=False)
    with history_kept(tmp_path / "history"):
        pass
    assert not (tmp_path / "history").exists()
