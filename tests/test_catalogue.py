from __future__ import annotations

from pathlib import Path

import pytest

from tessella.catalogue import (
    CATALOGUE,
    DEFAULT_MODEL,
    find_model,
    home,
    is_hub_name,
    local_models,
    models_directory,
    place_of,
    require_model,
)
from tessella.core.errors import BadWeights, UnknownModel


@pytest.fixture(autouse=True)
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TESSELLA_HOME", str(tmp_path / "home"))
    directory = models_directory()
    directory.mkdir(parents=True)
    return directory


def test_an_empty_variable_means_the_default_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TESSELLA_HOME", "")
    monkeypatch.setenv("HOME", "/somewhere")
    assert home() == Path("/somewhere/.local/share/tessella")


@pytest.mark.parametrize(
    ("name", "hub"),
    [
        ("org/name", True),
        ("name", False),
        ("./name", False),
        ("~/name", False),
        ("../name", False),
        ("/name", False),
        ("org/", False),
        ("a/b/c", False),
        ("org/..", False),
    ],
)
def test_only_an_organisation_and_a_name_are_the_hub(name: str, hub: bool) -> None:
    assert is_hub_name(name) is hub


def test_a_pulled_model_is_found_by_its_name(models: Path) -> None:
    place_of(DEFAULT_MODEL).write_bytes(b"GGUF")
    found = find_model(DEFAULT_MODEL)
    assert found is not None
    assert found.path == models / f"{DEFAULT_MODEL}.gguf"


def test_a_directory_put_there_by_hand_is_found_by_its_name(models: Path) -> None:
    (models / "mine").mkdir()
    found = find_model("mine")
    assert found is not None
    assert found.path == models / "mine"


def test_a_path_is_served_under_the_name_of_its_file(tmp_path: Path) -> None:
    file = tmp_path / "Tiny.Q4_1.gguf"
    file.write_bytes(b"GGUF")
    found = find_model(str(file))
    assert found is not None
    assert (found.name, found.path) == ("Tiny.Q4_1", file)


def test_a_directory_named_with_a_dot_keeps_all_of_its_name(tmp_path: Path) -> None:
    (tmp_path / "tiny-v0.5").mkdir()
    found = find_model(f"{tmp_path}/tiny-v0.5/")
    assert found is not None
    assert found.name == "tiny-v0.5"


@pytest.mark.parametrize("path", ["/nowhere/model.gguf", "./nowhere", "~/nowhere.gguf", ""])
def test_a_path_at_which_nothing_lies_is_named(path: str) -> None:
    with pytest.raises(BadWeights, match="does not exist") as caught:
        find_model(path)
    assert path in str(caught.value)


def test_a_name_that_is_not_here_says_how_to_get_it() -> None:
    assert find_model(DEFAULT_MODEL) is None
    with pytest.raises(UnknownModel, match=f"tessella models pull {DEFAULT_MODEL}"):
        require_model(DEFAULT_MODEL)


def test_the_list_holds_files_and_checkpoints_but_no_drafts(models: Path) -> None:
    (models / "b.gguf").write_bytes(b"GGUF")
    (models / ".draft.gguf").write_bytes(b"GGUF")
    for directory in ("a", "org/c", "org/.c.part", "not-a-model"):
        (models / directory).mkdir(parents=True)
    for directory in ("a", "org/c", "org/.c.part"):
        (models / directory / "config.json").write_text("{}")
    assert [model.name for model in local_models()] == ["a", "b", "org/c"]


def test_every_model_of_the_catalogue_is_pinned() -> None:
    for name, model in CATALOGUE.items():
        assert not is_hub_name(name)
        assert "==" in model.requirement
        assert len(bytes.fromhex(model.sha256)) == 32
        assert model.size > 0


def test_a_file_that_is_no_model_is_not_said_to_be_missing(tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("no model")
    with pytest.raises(BadWeights, match=r"notes\.txt is neither a checkpoint directory nor"):
        find_model(str(file))
