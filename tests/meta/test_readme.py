"""What README tells people to type is what the commands take."""

from __future__ import annotations

import importlib
import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest
import typer.main

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
SCRIPTS: dict[str, str] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]


def command_of(program: str) -> Any:
    """The command behind a program of pyproject.toml."""
    module = importlib.import_module(SCRIPTS[program].partition(":")[0])
    return typer.main.get_command(module.app)


def told() -> list[list[str]]:
    """Every line of README's shell examples that runs a program of ours, as its words."""
    found = []
    for block in re.findall(r"^```sh\n(.*?)^```", README, re.DOTALL | re.MULTILINE):
        for line in re.split(r"\n|&&", block.replace("\\\n", " ")):
            words = shlex.split(line, comments=True)
            if words and words[0].removeprefix(".venv/bin/") in SCRIPTS:
                found.append([words[0].removeprefix(".venv/bin/"), *words[1:]])
    return found


def unknown(words: list[str]) -> list[str]:
    """The flags, and the subcommand, that a program does not have."""
    command = command_of(words[0])
    strange = []
    for word in words[1:]:
        flags = {flag for one in command.params for flag in one.opts}
        inner = getattr(command, "commands", {})
        if word.startswith("--"):
            strange += [word] if word not in flags | {"--help"} else []
        elif word in inner:
            command = inner[word]
        elif inner and not getattr(command, "invoke_without_command", False):
            strange.append(word)
    return strange


def test_every_program_that_readme_names_is_ours_and_takes_what_it_is_given() -> None:
    assert {words[0] for words in told()} >= {"musivum", "tessella", "tessella-worker"}
    assert {" ".join(words): unknown(words) for words in told() if unknown(words)} == {}


@pytest.mark.parametrize(
    ("line", "strange"),
    [
        ("tessella dance", ["dance"]),
        ("tessella chat --louder", ["--louder"]),
        ("tessella-worker --claim 4", ["--claim"]),
        ("tessella-worker plan --claim-mb 4 --musivum X", ["--musivum"]),
        ("musivum serve --p2p :0 --json", []),
    ],
)
def test_a_line_that_no_command_takes_would_be_seen(line: str, strange: list[str]) -> None:
    assert unknown(line.split()) == strange


def test_readme_has_the_lines_that_ci_runs() -> None:
    lines = README.splitlines()
    assert ".venv/bin/nox" in lines
    (setup,) = [line for line in lines if line.startswith("python3 -m venv .venv && ")]
    assert "--no-deps -r requirements.lock" in setup
