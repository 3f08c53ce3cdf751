"""Files that are replaced: whole, and for their owner alone."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tessella.cli.private_file import read_file, replace_file
from tessella.core.errors import BadConfig


def test_a_file_is_replaced_whole_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "file"
    for text in ("one", "two é"):
        replace_file(path, "the file", text)
    assert read_file(path, "the file", 100) == "two é"
    assert list(path.parent.iterdir()) == [path]
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700


def test_a_link_is_replaced_and_not_followed(tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path / "kept")
    replace_file(tmp_path / "link", "the file", "new")
    assert (tmp_path / "kept").read_text() == "mine"


def test_what_is_no_file_of_reasonable_size_is_named_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert read_file(tmp_path / "pipe", "the file", 5) == ""
    (tmp_path / "long").write_text("123456")
    with pytest.raises(BadConfig, match="long is longer than 5 bytes"):
        read_file(tmp_path / "long", "the file", 5)
    with pytest.raises(FileNotFoundError):
        read_file(tmp_path / "none", "the file", 5)
