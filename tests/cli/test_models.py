from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from tessella.catalogue import CATALOGUE, DEFAULT_MODEL, models_directory, place_of

Command = Callable[..., Any]


def test_the_list_shows_what_is_here_and_what_can_be_fetched(command: Command) -> None:
    models_directory().mkdir(parents=True)
    (models_directory() / "mine.gguf").write_bytes(b"GGUF")
    ended = command("tessella", "models", "list", "--json")
    here, fetched = json.loads(ended.out)
    assert (here["name"], here["here"], here["bytes"]) == ("mine", True, 4)
    assert fetched == {
        "name": DEFAULT_MODEL,
        "here": False,
        "bytes": CATALOGUE[DEFAULT_MODEL].size,
        "path": str(place_of(DEFAULT_MODEL)),
    }


def test_the_table_has_a_row_a_model(command: Command) -> None:
    ended = command("tessella", "models", "list")
    assert ended.status == 0
    (row,) = [line for line in ended.out.splitlines() if DEFAULT_MODEL in line]
    assert "not here" in row


def test_an_unknown_name_is_one_line(command: Command) -> None:
    ended = command("tessella", "models", "pull", "gpt-9")
    assert ended.status == 1
    assert ended.err.startswith("tessella: unknown_model: no model 'gpt-9'")
    assert ended.err.count("\n") == 1
