"""What flags, the environment and a file may say, and how they are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from tessella.core.errors import BadConfig
from tessella.settings.keys import Keys
from tessella.settings.sources import (
    environment_source,
    file_source,
    flags_source,
    read_toml,
    read_value,
)

MOST = 1000


def written(directory: Path, text: str) -> Path:
    path = directory / "toy.toml"
    path.write_text(text)
    return path


def test_a_file_says_keys_at_the_top_and_in_sections(keys: Keys, tmp_path: Path) -> None:
    path = written(tmp_path, 'name = "x"\n[play]\nplayers = 3\n')
    found = file_source(keys, path, MOST)
    assert (found.name, found.values) == ("file", {"name": "x", "players": 3})
    assert found.where("players") == str(path)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("nam = 1", "'nam' is not known; the nearest is name"),
        ("[play]\nplayer = 1", "'player' is not known; the nearest is players in [play]"),
        ("players = 1", "players stands at the top, and belongs in [play]"),
        (
            '[play]\nname = "x"',
            "name stands in [play], and belongs at the top, before any [section]",
        ),
        ("[players]\nx = 1", "players stands at the top, and belongs in [play]"),
        ("[paly]\nplayers = 1", "[paly] is no section; there are [play]"),
        ("play = 1", "play is a section: [play]"),
        ("[[play]]\nplayers = 1", "play is a section: [play]"),
        ("secret_token = 's3cret'", "'secret_token' is read from the environment alone: SECRET"),
        ("[play]\nSecret_Token = 's3cret'", "is read from the environment alone: SECRET_TOKEN"),
        ("a = 1\nb = [", "Invalid value (at line 2, its end)"),
        ("a = 1\nb = \n", "Invalid value (at line 2"),
        ("a = 1\na = 2\n", "Cannot overwrite a value (at line 2"),
        ("a = " + "[" * 900, "nested too deeply"),
    ],
)
def test_what_a_file_may_not_say_is_named(keys: Keys, text: str, line: str, tmp_path: Path) -> None:
    path = written(tmp_path, text)
    with pytest.raises(BadConfig) as caught:
        file_source(keys, path, MOST)
    told = str(caught.value)
    assert told.startswith(f"{path}: ")
    assert line in told
    assert "s3cret" not in told
    assert "\n" not in told


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"a = 1\nb = '\xff'\n", "not UTF-8 (at line 2)"),
        (b"#" * (MOST + 1), "is longer than 1000 bytes"),
        (None, "No such file"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(
    content: bytes | None, told: str, tmp_path: Path
) -> None:
    path = tmp_path / "x.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(BadConfig) as caught:
        read_toml(path, MOST)
    assert str(path) in str(caught.value)
    assert told in str(caught.value)


def test_a_number_that_nobody_reads_is_no_toml(tmp_path: Path) -> None:
    path = written(tmp_path, f"a = 1{'0' * 5000}")
    with pytest.raises(BadConfig, match=str(path)):
        read_toml(path, 10_000)


def test_a_file_of_the_largest_size_is_read(tmp_path: Path) -> None:
    path = written(tmp_path, "#" * MOST)
    assert read_toml(path, MOST) == {}


def test_a_directory_in_place_of_a_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadConfig, match=f"cannot read {tmp_path}: Is a directory"):
        read_toml(tmp_path, MOST)


def test_variables_say_keys_by_any_of_their_names(keys: Keys) -> None:
    found = environment_source(keys, {"NAME_OF_TOY": "x", "TOY_PLAYERS": "3", "PATH": "/bin"})
    assert (found.name, found.values) == ("environment", {"name": "x", "players": 3})
    assert found.where("name") == "the environment (NAME_OF_TOY)"


def test_variables_that_are_empty_or_of_others_say_nothing(keys: Keys) -> None:
    environ = {"TOY_NAME": " ", "TOY_NO_SUCH": "", "TOY_HOME_DIRECTORY": "/h", "SECRET_TOKEN": "x"}
    assert environment_source(keys, environ).values == {}


@pytest.mark.parametrize(
    ("environ", "line"),
    [
        ({"TOY_PLAYER": "s3cret"}, "TOY_PLAYER, which is not known; the nearest is TOY_PLAYERS"),
        ({"TOY_PLAYERS": "many"}, "players = 'many' in the environment (TOY_PLAYERS): has to be"),
        (
            {"TOY_NAME": "a", "NAME_OF_TOY": "s3cret"},
            "NAME_OF_TOY and TOY_NAME set name, each its own way",
        ),
    ],
)
def test_what_variables_may_not_say_is_named(
    keys: Keys, environ: dict[str, str], line: str
) -> None:
    with pytest.raises(BadConfig) as caught:
        environment_source(keys, environ)
    assert line in str(caught.value)
    assert "s3cret" not in str(caught.value)


def test_two_variables_may_say_the_same(keys: Keys) -> None:
    found = environment_source(keys, {"TOY_NAME": "a", "NAME_OF_TOY": "a"})
    assert found.values == {"name": "a"}


def test_flags_that_were_not_given_say_nothing_and_the_others_are_named(keys: Keys) -> None:
    found = flags_source(keys, {"name": None, "players": 9})
    assert (found.name, found.values) == ("flag", {"players": 9})
    with pytest.raises(BadConfig, match="players = 9 in --players: has to be"):
        read_value(keys.by_name["players"], found)
    assert found.where("name") == "--name or --called"
