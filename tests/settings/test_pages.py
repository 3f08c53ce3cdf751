"""Documents say every key, and what they write can be read."""

from __future__ import annotations

import tomllib

import pytest

from tessella.settings.keys import Keys
from tessella.settings.pages import Entry, entries, field_docs, markdown_table, toml, toml_file


@pytest.fixture
def shown(keys: Keys, tables: tuple[type, type]) -> list[Entry]:
    meanings = field_docs(tables[0]) | field_docs(tables[1])
    return entries(keys.by_name, meanings, {"home": "/h"}, {"hours": "an hour"})


def test_the_meaning_of_a_key_is_its_docstring(tables: tuple[type, type]) -> None:
    assert field_docs(tables[0]) == {
        "name": "What it is called. Not empty.",
        "home": "Where it lives. None is nowhere.",
    }


def test_a_file_has_every_key_and_one_without_a_default_commented_out(shown: list[Entry]) -> None:
    text = toml_file(shown)
    assert '# What it is called. Not empty. (a string)\nname = "toy"\n' in text
    assert '# home = "/h"\n' in text
    assert "\n[play]\n\n# How long" in text
    assert tomllib.loads(text) == {
        "name": "toy",
        "play": {"hours": 1.0, "players": 2, "mode": "off"},
    }


def test_a_file_has_the_values_that_are_given(shown: list[Entry]) -> None:
    text = toml_file(shown, {"home": "/x", "players": 4})
    found = tomllib.loads(text)
    assert (found["home"], found["play"]["players"], found["name"]) == ("/x", 4, "toy")


@pytest.mark.parametrize(
    "value", ['"quoted" \\ and\nlines\t\x7f\x1f', "ö𝄞", True, 0, 1.5, ["a", "b"], []]
)
def test_a_value_is_read_as_it_was_written(value: object) -> None:
    assert tomllib.loads(f"key = {toml(value)}") == {"key": value}


def test_a_table_has_a_row_a_key_with_all_its_spellings(shown: list[Entry]) -> None:
    lines = markdown_table(shown).splitlines()
    assert len(lines) == 2 + len(shown)
    assert lines[2] == (
        '| `name` | a string | `"toy"` | What it is called. Not empty. | '
        "`TOY_NAME`, `NAME_OF_TOY` | `--name`, `--called` |"
    )
    assert "| left out | Where it lives." in lines[3]
    assert "| an hour | How long" in lines[4]
    assert "How it plays \\| rests." in lines[6]
