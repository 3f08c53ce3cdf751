"""A weights file gives the bytes asked for, or says that it cannot."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tessella.core.errors import BadWeights
from tessella.engine.weights_file import WeightsFile, read_small


def test_bytes_are_read_at_their_offset(tmp_path: Path) -> None:
    path = tmp_path / "weights"
    path.write_bytes(bytes(range(100)))
    file = WeightsFile(path)
    assert file.take(10, 5) == bytes(range(10, 15))
    with pytest.raises(BadWeights, match="truncated at byte 100"):
        file.take(90, 11)
    file.close()
    file.close()
    with pytest.raises(BadWeights, match="weights"):
        file.take(0, 1)


def test_a_file_cut_after_it_was_opened_is_said_to_be(tmp_path: Path) -> None:
    path = tmp_path / "weights"
    path.write_bytes(bytes(100))
    file = WeightsFile(path)
    os.truncate(path, 50)
    with pytest.raises(BadWeights, match="truncated at byte 50"):
        file.take(0, 100)
    file.close()


def test_what_is_no_file_is_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(BadWeights, match="pipe is not a file"):
        WeightsFile(tmp_path / "pipe")
    with pytest.raises(BadWeights, match="is not a file"):
        WeightsFile(tmp_path)
    with pytest.raises(BadWeights, match="absent is missing"):
        WeightsFile(tmp_path / "absent")


def test_a_small_file_over_its_limit_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(b"{}")
    assert read_small(path, 2) == b"{}"
    with pytest.raises(BadWeights, match="2 bytes, at most 1"):
        read_small(path, 1)
