"""One value, or one line that names key, value, source and kind."""

from __future__ import annotations

import pytest

from tessella.core.errors import BadAddress, BadConfig
from tessella.settings.checking import checked
from tessella.settings.keys import Keys


def refusing(_: object) -> object:
    raise BadAddress("no address 'x'")


def test_a_value_of_another_kind_is_named_with_its_key_and_source(keys: Keys) -> None:
    players = keys.by_name["players"]
    with pytest.raises(BadConfig) as caught:
        checked(players, 9, players.kind.read, "toy.toml")
    assert str(caught.value) == "players = 9 in toy.toml: has to be a whole number, 1 to 4"


@pytest.mark.parametrize(("is_typed", "error"), [(False, BadConfig), (True, BadAddress)])
def test_what_is_wrong_inside_keeps_its_type_where_it_was_typed(
    keys: Keys, is_typed: bool, error: type[Exception]
) -> None:
    with pytest.raises(error, match=r"^players in there: no address 'x'$"):
        checked(keys.by_name["players"], "x", refusing, "there", is_typed=is_typed)


def test_a_value_that_is_refused_is_shown_in_part_and_without_its_password(keys: Keys) -> None:
    players = keys.by_name["players"]
    with pytest.raises(BadConfig) as caught:
        checked(players, ["https://u:s3cret@h/" + "x" * 500], players.kind.read, "there")
    assert "s3cret" not in str(caught.value)
    assert len(str(caught.value)) < 300
