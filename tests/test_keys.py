"""The identity file: made once, for its owner alone, and never trusted when others may use it."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from tessella.core.errors import BadKey
from tessella.core.identity import SEED_BYTES, Identity
from tessella.keys import create_key, load_key, load_or_create_key


def test_a_key_is_made_once_and_stays(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "er" / "node.key"
    first = load_or_create_key(path)
    assert load_or_create_key(path).peer_id == first.peer_id
    assert path.read_bytes() == first.seed
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert os.listdir(path.parent) == ["node.key"]


def test_two_keys_differ(tmp_path: Path) -> None:
    assert create_key(tmp_path / "a").seed != create_key(tmp_path / "b").seed


def test_a_key_that_is_there_is_never_replaced(tmp_path: Path) -> None:
    kept = create_key(tmp_path / "a")
    with pytest.raises(FileExistsError):
        create_key(tmp_path / "a")
    assert load_key(tmp_path / "a").seed == kept.seed
    assert os.listdir(tmp_path) == ["a"]


def test_a_program_that_loses_the_race_takes_the_winner_s_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "node.key"
    real_link = os.link

    def another_was_faster(source: Path, target: Path) -> None:
        target.write_bytes(b"w" * SEED_BYTES)
        target.chmod(0o600)
        real_link(source, target)

    monkeypatch.setattr(os, "link", another_was_faster)
    assert load_or_create_key(path).seed == b"w" * SEED_BYTES
    assert os.listdir(tmp_path) == ["node.key"]


def write(path: Path, data: bytes, mode: int = 0o600) -> Path:
    path.write_bytes(data)
    path.chmod(mode)
    return path


@pytest.mark.parametrize(
    ("data", "mode", "named"),
    [
        (b"", 0o600, "has to be 32 bytes, and has 0"),
        (b"x" * 31, 0o600, "has to be 32 bytes, and has 31"),
        (b"x" * 33, 0o600, "has to be 32 bytes, and has more"),
        (b"x" * 32, 0o640, "mode 0640"),
        (b"x" * 32, 0o604, "mode 0604"),
        (b"x" * 32, 0o620, "mode 0620"),
    ],
)
def test_a_file_that_is_no_safe_key_is_refused_and_kept(
    tmp_path: Path, data: bytes, mode: int, named: str
) -> None:
    path = write(tmp_path / "node.key", data, mode)
    with pytest.raises(BadKey, match=named) as caught:
        load_or_create_key(path)
    assert str(path) in str(caught.value)
    assert path.read_bytes() == data


def test_a_key_of_the_right_size_and_mode_is_loaded(tmp_path: Path) -> None:
    assert load_key(write(tmp_path / "k", b"s" * 32)).peer_id == Identity(b"s" * 32).peer_id


def test_a_missing_key_is_not_made_by_loading(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        load_key(tmp_path / "none")


def test_what_is_not_a_file_is_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe", 0o600)
    for path in (tmp_path / "pipe", tmp_path):
        with pytest.raises(BadKey, match=f"{path} is not a file"):
            load_or_create_key(path)


def test_a_place_that_cannot_be_written_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BadKey, match=r"file/node\.key"):
        load_or_create_key(tmp_path / "file" / "node.key")

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(BadKey, match="No space left on device"):
        load_or_create_key(tmp_path / "new" / "node.key")
    assert os.listdir(tmp_path / "new") == []
