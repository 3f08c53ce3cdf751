"""Weights, key and ports: what is at a path, and what is taken."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tessella.catalogue import DEFAULT_MODEL, models_directory
from tessella.cli.wizard.places import (
    Weights,
    ask_key,
    ask_ports,
    ask_weights,
    find_in,
    read_key,
    read_weights,
)
from tessella.core.errors import BadConfig, BadKey
from tessella.keys import create_key

Made = Callable[..., Any]

pytestmark = pytest.mark.usefixtures("home")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with some models in it."""
    directory = tmp_path / "here"
    (directory / "hf").mkdir(parents=True)
    (directory / "hf" / "config.json").write_text("{}")
    (directory / "models" / "org" / "large").mkdir(parents=True)
    (directory / "models" / "org" / "large" / "config.json").write_text("{}")
    (directory / "models" / "small.gguf").write_text("")
    (directory / "readme.txt").write_text("")
    monkeypatch.chdir(directory)
    return directory


@pytest.mark.parametrize(
    ("text", "weights"),
    [
        ("./models", Weights(models_dir="./models")),
        ("models", Weights(models_dir="./models")),
        ("later", Weights(models_dir="./later")),
        ("/nowhere/yet", Weights(models_dir="/nowhere/yet")),
        ("hf", Weights(weights="./hf")),
        ("models/small.gguf", Weights(weights="./models/small.gguf")),
    ],
)
@pytest.mark.usefixtures("here")
def test_a_path_is_a_directory_of_models_or_a_model(text: str, weights: Weights) -> None:
    assert read_weights(text) == weights


def test_a_home_is_written_out(home: Path) -> None:
    assert read_weights("~/models") == Weights(models_dir=f"{home}/models")


@pytest.mark.parametrize("text", ["", "readme.txt", "no.gguf", "./models/no.GGUF"])
@pytest.mark.usefixtures("here")
def test_where_no_weights_can_be_is_refused(text: str) -> None:
    with pytest.raises(BadConfig):
        read_weights(text)


def test_a_model_is_found_by_its_name(here: Path) -> None:
    models = here / "models"
    assert find_in(models, "small") == models / "small.gguf"
    assert find_in(models, "org/large") == models / "org" / "large"
    assert find_in(models, "org") is None


@pytest.mark.usefixtures("here")
def test_it_says_whether_the_model_is_there(script: Made) -> None:
    talk = script("")
    assert ask_weights(talk, "small") == Weights(models_dir="./models")
    assert "It is there: models/small.gguf." in talk.said


@pytest.mark.usefixtures("here")
def test_a_pulled_model_is_found_as_well(script: Made) -> None:
    pulled = models_directory() / f"{DEFAULT_MODEL}.gguf"
    pulled.parent.mkdir(parents=True)
    pulled.write_text("")
    talk = script("")
    ask_weights(talk, DEFAULT_MODEL)
    assert f"It is there: {pulled}." in talk.said


@pytest.mark.parametrize(
    ("model", "told"),
    [
        (DEFAULT_MODEL, f"`tessella models pull {DEFAULT_MODEL}` fetches it (98 MB) into "),
        ("org/other", "`tessella models pull org/other` fetches it into "),
        ("mine", "mine is not there yet; it has to be when the node starts."),
    ],
)
@pytest.mark.usefixtures("here")
def test_it_says_how_a_model_comes_here(script: Made, model: str, told: str) -> None:
    talk = script("")
    ask_weights(talk, model)
    assert told in talk.said[-1]


def test_a_key_that_is_there_tells_whose_it_is(script: Made, home: Path) -> None:
    path = home / ".config" / "tessella" / "node.key"
    identity = create_key(path)
    talk = script("")
    assert ask_key(talk) == path
    assert f"It is there: peer id {identity.peer_id}." in talk.said


def test_a_key_that_is_not_there_is_made_later(script: Made, here: Path) -> None:
    talk = script("node.key")
    assert ask_key(talk) == here / "node.key"
    assert not (here / "node.key").exists()
    assert "made with the configuration" in talk.said[-1]


def test_a_key_that_cannot_be_one_is_asked_for_again(script: Made, here: Path) -> None:
    talk = script("readme.txt", "hf", "other.key")
    assert ask_key(talk) == here / "other.key"
    assert "readme.txt" in talk.text
    with pytest.raises(BadKey):
        read_key("readme.txt")
    with pytest.raises(BadConfig):
        read_key("")


@pytest.mark.parametrize(
    ("answers", "taken", "ports"),
    [
        (("", ""), (), (8080, 9080)),
        (("", "", ""), (8080,), (8081, 9080)),
        (("", "", "", ""), (8080, 8081), (8082, 9080)),
        (("1", "8080", "8080", ""), (), (8080, 9080)),
        (("9080", "", ""), (), (9080, 9081)),
        (("5000", "6000", "", "7000"), (6000, 9080), (5000, 7000)),
    ],
)
def test_ports_are_free_and_two(
    script: Made,
    fake_machine: Made,
    answers: tuple[str, ...],
    taken: tuple[int, ...],
    ports: tuple[int, int],
) -> None:
    talk = script(*answers)
    assert ask_ports(talk, fake_machine(taken=taken)) == ports
    assert talk.left == 0
