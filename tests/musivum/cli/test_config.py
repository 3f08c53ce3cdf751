"""What holds, and who set it."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from musivum.cli.pages import example, markdown
from musivum.config import MusivumConfig


def test_every_key_is_shown_with_its_value_and_source(
    command: Any, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = home / ".musivum"
    data.mkdir()
    (data / "musivum.toml").write_text('missed_beats = 5\nhttp = [":80", ":81"]\n')
    monkeypatch.setenv("MUSIVUM_MIN_VRAM_MB", "7")
    monkeypatch.setenv("MUSIVUM_DATABASE_URL", "postgresql://u:s3cret@h/d?password=t00")
    ended = command("config")
    assert (ended.status, ended.err) == (0, "")
    lines = [line.split() for line in ended.out.splitlines()]
    assert lines[0] == ["file:", str(data / "musivum.toml")]
    assert ["missed_beats", "5", "file"] in lines
    assert ["http", ":80", ":81", "file"] in lines
    assert ["min_vram_mb", "7", "environment"] in lines
    assert ["dial_back", "true", "default"] in lines
    assert ["key", str(data / "musivum.key"), "default"] in lines
    assert ["database_url", "postgresql://u:***@h/d?password=***", "environment"] in lines
    assert [line[0] for line in lines[2:]] == [field.name for field in fields(MusivumConfig)]


def test_the_same_as_json_is_one_object(command: Any, home: Path) -> None:
    found = json.loads(command("config", "--json").out)
    assert found["database_url"] == {
        "value": f"sqlite:///{home}/.musivum/musivum.db",
        "source": "default",
    }
    assert found["exempt"]["value"] == ["127.0.0.0/8", "::1/128"]
    assert found["allow"]["value"] is None
    assert found["allow_private_addrs"]["value"] is False
    assert set(found) == {field.name for field in fields(MusivumConfig)}


def test_the_token_is_never_shown(
    command: Any, token_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MUSIVUM_ADMIN_TOKEN", "e" * 32)
    for args in ((), ("--json",)):
        out = command("config", *args).out
        assert "e" * 32 not in out
        assert "t" * 64 not in out
        assert str(token_file) in out


def test_documents_are_printed_as_they_are_and_one_at_a_time(command: Any) -> None:
    assert command("config", "--example").out == example()
    assert command("config", "--markdown").out == markdown()
    ended = command("config", "--example", "--json")
    assert (ended.status, ended.out) == (1, "")
    assert ended.err.startswith("musivum: bad_request: one of --example")


def test_a_wrong_setting_is_one_line(command: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MUSIVUM_MAX_NODE", "7")
    ended = command("config")
    assert ended.status == 78
    assert ended.err == (
        "musivum: bad_config: the environment has MUSIVUM_MAX_NODE, which is not known; the "
        "nearest is MUSIVUM_MAX_NODES\n"
    )
