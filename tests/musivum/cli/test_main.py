"""How the program ends, whatever ends it."""

from __future__ import annotations

from typing import Any

import pytest
import typer

from musivum.cli import main
from tessella import __version__
from tessella.core.errors import BadKey, PeerSilent


def test_it_says_its_version(command: Any) -> None:
    assert command("--version").out == f"musivum {__version__}\n"


def test_help_names_every_command(command: Any) -> None:
    ended = command("--help")
    assert ended.status == 0
    for name in (
        "serve",
        "status",
        "peers",
        "rebalance",
        "manifest",
        "reputation",
        "credits",
        "slash",
        "appeal",
        "ledger",
        "config",
    ):
        assert f"\n  {name} " in ended.out


def test_a_command_line_that_does_not_parse_is_status_2(command: Any) -> None:
    assert command("serve", "--no-such-flag").status == 2


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (ExceptionGroup("n", [BadKey("k")]), 1, "musivum: bad_key: k"),
        (
            ExceptionGroup("n", [ExceptionGroup("m", [PeerSilent("p")])]),
            75,
            "musivum: peer_silent: p",
        ),
        (
            ExceptionGroup("n", [BadKey("k"), KeyError("bug")]),
            1,
            "musivum: internal_error: KeyError: 'bug'",
        ),
        (ValueError("two\nlines"), 1, "musivum: internal_error: ValueError: two lines"),
    ],
)
def test_whatever_goes_wrong_is_one_line(
    error: Exception, code: int, line: str, command: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing = typer.Typer()

    @failing.command()
    def fail() -> None:
        raise error

    monkeypatch.setattr(main, "app", failing)
    ended = command()
    assert (ended.status, ended.out, ended.err) == (code, "", line + "\n")
