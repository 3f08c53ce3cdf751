"""`tessella init`: two files, neither of which is written over by accident."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tessella.cli.client_config import read_config
from tessella.keys import load_key

Command = Callable[..., Any]


def test_it_writes_a_configuration_and_a_key_and_says_so(command: Command, home: Path) -> None:
    ended = command("tessella", "-a", "http://x:8080", "init", "--max-tokens", "9")
    directory = home / ".config" / "tessella"
    config, key = directory / "client.toml", directory / "client.key"
    assert ended.out.splitlines() == [f"wrote {config}", f"wrote {key} ({load_key(key).peer_id})"]
    assert (read_config(None).api_url, read_config(None).max_tokens) == ("http://x:8080", 9)
    assert [path.stat().st_mode & 0o777 for path in (config, key)] == [0o600, 0o600]


def test_a_configuration_is_kept_unless_forced_and_a_key_always(
    command: Command, tmp_path: Path
) -> None:
    path = tmp_path / "my.toml"
    assert command("tessella", "init", "-c", str(path), "--model", "one").status == 0
    key = (tmp_path / "client.key").read_bytes()
    refused = command("tessella", "init", "-c", str(path), "--model", "two")
    assert refused.status != 0
    assert refused.out == ""
    assert f"bad_config: {path} exists: --force" in refused.err
    assert read_config(path).model == "one"
    forced = command("tessella", "-c", str(path), "init", "--model", "two", "--force")
    assert "kept " in forced.out
    assert read_config(path).model == "two"
    assert (tmp_path / "client.key").read_bytes() == key


def test_what_cannot_be_used_is_not_written(command: Command, tmp_path: Path) -> None:
    path = tmp_path / "my.toml"
    ended = command("tessella", "init", "-c", str(path), "--bootstrap", "nonsense")
    assert "nonsense" in ended.err
    assert list(tmp_path.glob("my*")) == []
