from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tessella.catalogue import DEFAULT_MODEL
from tessella.cli import model_cache
from tessella.cli.model_cache import (
    CacheEntry,
    cache_entries,
    clean,
    is_used,
    plan_deletion,
    prune,
    renew,
    used,
)
from tessella.cli.pull import STALE_SECONDS

FETCHED = f"{DEFAULT_MODEL}.gguf"
NEEDED = Path("/models/org/needed")
OLD = STALE_SECONDS + 1.0


def an_entry(name: str, age: float = 0.0) -> CacheEntry:
    return CacheEntry(name, Path("/models") / name, 1000, age)


@pytest.mark.parametrize(
    ("name", "age", "needed", "goes"),
    [
        pytest.param("org/other", 0.0, NEEDED, True, id="another model"),
        pytest.param("org/needed", 0.0, NEEDED, False, id="the model"),
        pytest.param("org/needed", 0.0, NEEDED / "model.gguf", False, id="a file of the model"),
        pytest.param("org/needed-too", 0.0, NEEDED, True, id="a name that begins like it"),
        pytest.param("org/needed", 0.0, Path("/elsewhere/org/needed"), True, id="the same name"),
        pytest.param("org/.needed.part", 0.0, NEEDED, False, id="a fetch under way"),
        pytest.param("org/.needed.part", OLD, NEEDED, True, id="a fetch that broke off"),
        pytest.param(".pull-abc", OLD, NEEDED, True, id="another that broke off"),
    ],
)
def test_what_is_not_needed_goes(name: str, age: float, needed: Path, goes: bool) -> None:
    entry = an_entry(name, age)
    assert plan_deletion([entry], [needed]) == ([entry] if goes else [])


def test_a_plan_is_by_name_whatever_the_order() -> None:
    entries = [an_entry(name) for name in ("b/x", "a/y", "a/x")]
    assert [one.name for one in plan_deletion(entries, [])] == ["a/x", "a/y", "b/x"]


def write(path: Path, size: int = 1000) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"w" * size)
    return path


def a_model(directory: Path, size: int = 1_000_000) -> Path:
    write(directory / "config.json", 10)
    write(directory / "model.safetensors", size)
    return directory


@pytest.fixture
def models(tmp_path: Path) -> Path:
    """A models directory with all that may lie in one."""
    root = tmp_path / "models"
    write(root / FETCHED)
    write(root / "mine.gguf")
    write(root / "notes.txt")
    a_model(root / "org" / "one")
    a_model(root / "org" / "two", 5_000_000)
    a_model(root / "by-hand")
    write(root / "org" / "no-model" / "readme.md")
    write(root / "org" / ".three.part" / "model.safetensors")
    write(root / ".pull-abc" / "wheel.whl")
    for draft in (root / "org" / ".three.part", root / ".pull-abc"):
        os.utime(draft, (time.time() - OLD,) * 2)
    return root


def names(entries: list[CacheEntry]) -> list[str]:
    return [entry.name for entry in entries]


def everything(root: Path) -> set[str]:
    return {path.relative_to(root).as_posix() for path in root.rglob("*")}


def test_only_what_can_be_fetched_again_is_a_cache(models: Path) -> None:
    found = {entry.name: entry.nbytes for entry in cache_entries(models)}
    assert found == {
        FETCHED: 1000,
        "org/one": 1_000_010,
        "org/two": 5_000_010,
        "org/.three.part": 1000,
        ".pull-abc": 1000,
    }


def test_a_directory_that_is_not_there_is_empty(tmp_path: Path) -> None:
    assert cache_entries(tmp_path / "none") == []


Said = list[str]


def test_a_dry_run_tells_names_and_bytes_and_deletes_nothing(models: Path) -> None:
    said: Said = []
    before = everything(models)
    gone = prune(models, models / "org" / "one", "dry-run", said.append)
    assert names(gone) == [".pull-abc", "org/.three.part", "org/two", FETCHED]
    assert said[2] == "would delete org/two (5 MB)"
    assert everything(models) == before


def test_off_is_not_even_told(models: Path) -> None:
    said: Said = []
    assert prune(models, models / "org" / "one", "off", said.append) == []
    assert said == []


def test_on_deletes_what_a_dry_run_told(models: Path) -> None:
    told = prune(models, models / "org" / "one", "dry-run", lambda _: None)
    assert names(prune(models, models / "org" / "one", "on", lambda _: None)) == names(told)
    assert everything(models) == {
        "mine.gguf",
        "notes.txt",
        "org",
        "org/one",
        "org/one/config.json",
        "org/one/model.safetensors",
        "org/no-model",
        "org/no-model/readme.md",
        "by-hand",
        "by-hand/config.json",
        "by-hand/model.safetensors",
    }
    assert prune(models, models / "org" / "one", "on", lambda _: None) == []


def test_a_file_that_is_needed_by_its_own_path_is_kept(models: Path) -> None:
    gone = prune(models, models / FETCHED, "on", lambda _: None)
    assert FETCHED not in names(gone)
    assert (models / FETCHED).exists()


Link = Callable[[Path, Path], None]


@pytest.mark.parametrize("where", ["org/linked", "linked.gguf", f"{DEFAULT_MODEL}.gguf"])
def test_a_link_is_not_followed_and_not_deleted(tmp_path: Path, where: str) -> None:
    outside, root = a_model(tmp_path / "outside"), tmp_path / "models"
    link = root / where
    link.parent.mkdir(parents=True)
    link.symlink_to(outside)
    assert clean(root, None, lambda _: None) == []
    assert link.is_symlink()
    assert (outside / "model.safetensors").exists()


def test_a_linked_organisation_is_not_entered(tmp_path: Path) -> None:
    a_model(tmp_path / "outside" / "one")
    root = tmp_path / "models"
    root.mkdir()
    (root / "org").symlink_to(tmp_path / "outside")
    assert clean(root, None, lambda _: None) == []
    assert (tmp_path / "outside" / "one" / "model.safetensors").exists()


def test_what_links_inside_a_model_lead_to_is_kept(tmp_path: Path) -> None:
    root, blob = tmp_path / "models", write(tmp_path / "blob")
    model = a_model(root / "org" / "one")
    (model / "shard.safetensors").symlink_to(blob)
    (model / "more").symlink_to(tmp_path)
    assert names(clean(root, None, lambda _: None)) == ["org/one"]
    assert not model.exists()
    assert blob.exists()


def test_a_models_directory_may_itself_be_a_link(tmp_path: Path) -> None:
    a_model(tmp_path / "disk" / "org" / "one")
    (tmp_path / "models").symlink_to(tmp_path / "disk")
    needed = tmp_path / "models" / "org" / "one"
    assert prune(tmp_path / "models", needed, "on", lambda _: None) == []
    assert names(clean(tmp_path / "models", None, lambda _: None)) == ["org/one"]


def test_cleaning_takes_all_of_the_cache_and_nothing_else(models: Path) -> None:
    assert len(clean(models, None, lambda _: None)) == 5
    assert (models / "mine.gguf").exists()
    assert (models / "by-hand" / "model.safetensors").exists()


def test_weights_named_by_their_path_are_never_deleted(models: Path) -> None:
    weights = models / "org" / "one"
    assert "org/one" not in names(clean(models, weights, lambda _: None))
    assert (weights / "model.safetensors").exists()


def test_what_another_program_uses_is_kept(models: Path) -> None:
    said: Said = []
    with used(models / "org" / "two"):
        assert is_used(models / "org" / "two")
        assert "org/two" not in names(clean(models, None, said.append))
    assert "kept org/two (5 MB): another program uses it" in said
    assert not is_used(models / "org" / "two")
    assert names(clean(models, None, lambda _: None)) == ["org/two"]


def test_several_programs_may_use_a_model_and_one_that_is_gone_is_used_by_none(
    models: Path,
) -> None:
    model = models / "org" / "one"
    with used(model), used(model):
        assert is_used(model)
    assert not is_used(models / "org" / "nowhere")
    with used(models / "org" / "nowhere"):
        pass


@pytest.mark.parametrize(
    ("model", "weights", "fetched"),
    [
        ("org/one", None, ["org/one"]),
        ("a-name", "org/one", ["org/one"]),
        ("a-name", "{models}/org/one", []),
        (None, None, []),
    ],
)
async def test_what_was_cleaned_is_fetched_anew_unless_it_was_named_by_its_path(
    models: Path,
    monkeypatch: pytest.MonkeyPatch,
    model: str | None,
    weights: str | None,
    fetched: list[str],
) -> None:
    asked: list[str] = []

    async def obtain(name: str, _: object) -> None:
        asked.append(name)

    monkeypatch.setattr(model_cache, "obtain", obtain)
    given = weights.format(models=models) if weights else None
    await renew(models, model, given, lambda _: None)
    assert asked == fetched
    assert not (models / "org" / "two").exists()
    assert (models / "org" / "one").exists() is (given == str(models / "org" / "one"))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may delete everything")
def test_what_cannot_be_deleted_is_told_and_stays(models: Path) -> None:
    said: Said = []
    (models / "org").chmod(0o500)
    try:
        gone = prune(models, models / FETCHED, "on", said.append)
    finally:
        (models / "org").chmod(0o700)
    assert "org/one" not in names(gone)
    assert any("cannot delete org/one" in line for line in said)
