from __future__ import annotations

import json
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tessella.cli import peers, worker
from tessella.cli.chat_options import Asked
from tessella.cli.options import MUSIVUM_VARIABLE
from tessella.core.errors import BadConfig
from tessella.core.identity import Identity
from tessella.keys import load_key
from tessella.worker.config import WorkerConfig

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


FIRST = f"/ip4/10.0.0.1/tcp/1/p2p/{Identity(b'1' * 32).peer_id}"
FIRST_TOO = FIRST.replace("10.0.0.1", "10.0.0.2")
SECOND = f"/ip4/10.0.0.3/tcp/1/p2p/{Identity(b'2' * 32).peer_id}"


@pytest.fixture
def configured(
    command: Command, toy: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., list[tuple[str, ...]]]:
    """A function that gives the musivums of the node that a command line would run."""

    def run(*args: str, environment: str | None = None) -> list[tuple[str, ...]]:
        found: list[WorkerConfig] = []
        monkeypatch.setattr(worker, "run_command", lambda main: found.append(main.args[0]))
        monkeypatch.delenv(MUSIVUM_VARIABLE, raising=False)
        if environment is not None:
            monkeypatch.setenv(MUSIVUM_VARIABLE, environment)
        ended = command("tessella-worker", "--weights", str(toy), "--claim-mb=64", *args)
        assert ended.status == 0, ended.err
        return [musivum.full() for musivum in found[0].musivum]

    return run


@pytest.mark.parametrize(
    ("args", "environment"),
    [
        (("--musivum", FIRST, "--musivum", SECOND), None),
        (("--musivum", f"{FIRST},{SECOND}"), None),
        ((), f"{FIRST},{SECOND}"),
        ((), f"{FIRST} {SECOND}"),
        ((), f" {FIRST} , {SECOND} "),
        (("--musivum", FIRST, "--musivum", SECOND), SECOND),
    ],
)
def test_a_node_may_be_told_several_musivums(
    configured: Callable[..., list[tuple[str, ...]]], args: tuple[str, ...], environment: str | None
) -> None:
    assert configured(*args, environment=environment) == [(FIRST,), (SECOND,)]


def test_addresses_of_one_musivum_are_one_musivum(
    configured: Callable[..., list[tuple[str, ...]]],
) -> None:
    args = ("--musivum", FIRST, "--musivum", SECOND, "--musivum", FIRST_TOO)
    assert configured(*args) == [(FIRST, FIRST_TOO), (SECOND,)]


@pytest.mark.parametrize("environment", ["", "  "])
def test_a_variable_that_is_set_to_nothing_says_nothing(
    configured: Callable[..., list[tuple[str, ...]]], environment: str
) -> None:
    args = ("--kademlia", "--layers", "0:3")
    assert configured(*args, environment=environment) == []


@pytest.mark.parametrize("environment", ["", " , ", None])
def test_without_a_mesh_the_variable_is_named(
    command: Command, toy: Path, monkeypatch: pytest.MonkeyPatch, environment: str | None
) -> None:
    monkeypatch.delenv(MUSIVUM_VARIABLE, raising=False)
    if environment is not None:
        monkeypatch.setenv(MUSIVUM_VARIABLE, environment)
    ended = command("tessella-worker", "--weights", str(toy), "--claim-mb=64")
    assert (ended.status, MUSIVUM_VARIABLE in ended.err) == (78, True)


def test_whoever_asks_once_asks_the_first_of_several(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[str | None] = []

    def configured(_: object, asked: Asked) -> None:
        found.append(asked.musivum)
        raise BadConfig("far enough")

    monkeypatch.setattr(peers, "configured", configured)
    monkeypatch.setenv(MUSIVUM_VARIABLE, f"{FIRST}, {SECOND}")
    assert command("tessella", "peers").status == 78
    assert found == [FIRST]
