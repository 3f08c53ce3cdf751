"""A key has a name, a kind, a default, and a spelling in every source."""

from __future__ import annotations

import pytest

from tessella.settings.keys import Keys


def test_keys_are_the_fields_of_a_class_in_their_order(keys: Keys) -> None:
    assert list(keys.by_name) == ["name", "home", "hours", "players", "mode"]
    assert keys.sections == ("play",)
    name, home, players = (keys.by_name[each] for each in ("name", "home", "players"))
    assert (name.default, name.section, name.flags) == ("toy", "", ("--name", "--called"))
    assert name.variables == ("TOY_NAME", "NAME_OF_TOY")
    assert (home.default, home.kind.told, home.flags) == (None, "a path", ())
    assert (players.section, players.kind.told) == ("play", "a whole number, 1 to 4")


def test_a_class_of_keys_is_made_of_its_defaults(tables: tuple[type, type]) -> None:
    top, play = tables
    assert (top().name, top().home, play().hours) == ("toy", None, 1.0)


def test_where_a_key_belongs_is_told(keys: Keys) -> None:
    assert keys.by_name["hours"].place == "in [play]"
    assert keys.by_name["name"].place == "at the top, before any [section]"


@pytest.mark.parametrize(
    ("name", "nearest"),
    [("hour", "hours in [play]"), ("nam", "name"), ("Players!", "players in [play]")],
)
def test_the_nearest_key_is_found(keys: Keys, name: str, nearest: str) -> None:
    assert keys.nearest(name) == nearest


@pytest.mark.parametrize(
    ("variable", "nearest"),
    [
        ("TOY_HOUR", "TOY_HOURS"),
        ("TOY_NAME_OF", "NAME_OF_TOY"),
        ("TOY_SECRET_TOKEN", "SECRET_TOKEN"),
        ("TOY_HOME_DIR", "TOY_HOME_DIRECTORY"),
    ],
)
def test_the_nearest_variable_is_found_whatever_its_prefix(
    keys: Keys, variable: str, nearest: str
) -> None:
    assert keys.nearest_variable(variable) == nearest
