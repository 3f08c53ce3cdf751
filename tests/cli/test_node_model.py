"""A node fetches its model if it is not here, and nothing else is taken for one."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tessella.catalogue import DEFAULT_MODEL, LocalModel, place_of
from tessella.cli.node_model import Say, fetch_model
from tessella.core.ids import ModelId
from tessella.worker.settings import NodeSettings, read_node_settings

MESH = {"kademlia_enabled": True, "layer_range": "0:1", "vram_mb": 64}


@pytest.fixture(autouse=True)
def at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TESSELLA_HOME", str(tmp_path / "home"))
    # Set and unset, so that what is set meanwhile does not stay.
    monkeypatch.setenv("HF_ENDPOINT", "")


def a_node(**flags: Any) -> NodeSettings:
    return read_node_settings(None, {}, {**MESH, **flags})


async def fetched(settings: NodeSettings) -> list[str]:
    names: list[str] = []

    async def obtain(name: str, say: Say) -> LocalModel:
        names.append(name)
        return LocalModel(ModelId(name), Path(name))

    await fetch_model(settings, lambda _: None, obtain)
    return names


@pytest.mark.parametrize("name", [DEFAULT_MODEL, "org/name"])
@pytest.mark.parametrize("key", ["default_model", "weights"])
async def test_a_model_that_is_not_here_is_fetched_once(name: str, key: str) -> None:
    settings = a_node(**{key: name})
    assert await fetched(settings) == [name]
    place = place_of(name)
    if place.suffix == ".gguf":
        place.parent.mkdir(parents=True)
        place.touch()
    else:
        place.mkdir(parents=True)
        (place / "config.json").touch()
    assert await fetched(settings) == []


@pytest.mark.parametrize("flags", [{"default_model": "toy"}, {"weights": "./a/file.gguf"}, {}])
async def test_what_is_known_nowhere_is_left_for_whoever_opens_it(flags: dict[str, str]) -> None:
    assert await fetched(a_node(**flags)) == []


async def test_nothing_is_fetched_for_a_node_that_cannot_begin() -> None:
    settings = read_node_settings(None, {}, {"default_model": DEFAULT_MODEL})
    assert await fetched(settings) == []


async def test_the_hub_that_was_set_is_asked() -> None:
    await fetched(a_node(default_model="org/name", hub="https://hub.example"))
    assert os.environ["HF_ENDPOINT"] == "https://hub.example"
