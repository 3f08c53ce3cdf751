from __future__ import annotations

import json
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tessella.keys import load_key

Command = Callable[..., Any]


def test_a_key_is_made_once_and_shown(command: Command, home: Path) -> None:
    path = home / ".config" / "tessella" / "node.key"
    made = command("tessella-worker", "keys", "new")
    assert made.out.strip() == load_key(path).peer_id
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert command("tessella-worker", "keys", "show").out == made.out
    again = command("tessella-worker", "keys", "new")
    assert (again.status, again.out) == (1, "")
    assert str(path) in again.err
    assert command("tessella-worker", "keys", "show").out == made.out


def test_a_plan_shows_what_claims_get(command: Command, toy: Path) -> None:
    args = ("plan", "--weights", str(toy), "--workers", "3", "--min-vram-mb", "0", "--json")
    ended = command("tessella-worker", *args)
    plan = json.loads(ended.out)
    assert (plan["model"], plan["device"], plan["dtype"]) == ("toy", "cpu", "f32")
    assert [one["layer_range"] for one in plan["ranges"]] == [[0, 2], [2, 4], [4, 6]]
    assert plan["holes"] == []


def test_a_plan_as_text_names_the_layers_nobody_gets(command: Command, toy: Path) -> None:
    args = ("plan", "--weights", str(toy), "--claim-mb", "24", "--min-vram-mb", "0")
    ended = command("tessella-worker", *args)
    assert ended.status == 0
    (missing,) = [line for line in ended.out.splitlines() if "nobody's" in line]
    assert missing.startswith("layers 3:6")


@pytest.mark.parametrize("program", ["tessella", "tessella-worker"])
def test_help_is_shown_without_the_engine_and_the_network(program: str, command: Command) -> None:
    ended = command(program, "--help")
    assert ended.status == 0
    assert program in ended.out


@pytest.mark.parametrize("program", ["tessella", "tessella-worker"])
def test_a_wrong_flag_is_a_usage_error(program: str, command: Command) -> None:
    ended = command(program, "--no-such-flag")
    assert ended.status == 2
    assert "--no-such-flag" in ended.err
