"""A checkpoint directory opens in every layout that the hub has, and names the file it lacks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from tessella.core.errors import BadWeights, UnsupportedModel
from tessella.engine.hf_directory import HfDirectory, open_hf_directory
from tessella.engine.toy import toy_shape, write_toy

SHAPE = toy_shape(layers=2, hidden=16, heads=2, kv_heads=1)
INDEX = "model.safetensors.index.json"


def weights_of(directory: HfDirectory) -> dict[str, torch.Tensor]:
    found = {}
    for name, info in directory.tensors.items():
        found[name] = torch.empty(info.shape)
        directory.read(name, found[name])
    directory.close()
    return found


def edit(path: Path, changes: dict[str, Any]) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.mark.parametrize(("files", "index"), [(3, True), (3, False)])
def test_shards_with_and_without_an_index_hold_what_a_single_file_holds(
    tmp_path: Path, files: int, index: bool
) -> None:
    write_toy(tmp_path / "one", shape=SHAPE)
    write_toy(tmp_path / "many", shape=SHAPE, files=files, index=index)
    assert (tmp_path / "many" / INDEX).exists() == index
    one = weights_of(open_hf_directory(tmp_path / "one"))
    many = weights_of(open_hf_directory(tmp_path / "many"))
    assert one.keys() == many.keys()
    assert all(torch.equal(one[name], many[name]) for name in one)


def test_a_single_file_is_preferred_to_an_index_beside_it(tmp_path: Path) -> None:
    write_toy(tmp_path, shape=SHAPE)
    (tmp_path / INDEX).write_text('{"weight_map": {"a": "gone.safetensors"}}')
    open_hf_directory(tmp_path).close()


@pytest.mark.parametrize(
    ("config", "generation", "tokenizer", "ids"),
    [
        (258, {"eos_token_id": [256, 258]}, "<|im_end|>", {256, 258}),
        ([256, 257], {}, "<|im_end|>", {256, 257, 258}),
        (None, {"eos_token_id": 256}, None, {256}),
        (None, None, "<|im_end|>", {258}),
        (256, None, {"content": "<|im_end|>", "lstrip": False}, {256, 258}),
    ],
)
def test_eos_ids_are_the_union_over_all_three_files(
    tmp_path: Path, config: object, generation: object, tokenizer: object, ids: set[int]
) -> None:
    write_toy(tmp_path, shape=SHAPE)
    edit(tmp_path / "config.json", {"eos_token_id": config})
    edit(tmp_path / "tokenizer_config.json", {"eos_token": tokenizer})
    (tmp_path / "generation_config.json").unlink()
    if generation is not None:
        (tmp_path / "generation_config.json").write_text(json.dumps(generation))
    directory = open_hf_directory(tmp_path)
    assert directory.eos_ids == ids
    directory.close()


@pytest.mark.parametrize("lost", ["config.json", "model.safetensors"])
def test_a_missing_file_is_named(tmp_path: Path, lost: str) -> None:
    write_toy(tmp_path, shape=SHAPE)
    (tmp_path / lost).unlink()
    with pytest.raises(BadWeights, match=f"{lost} is missing"):
        open_hf_directory(tmp_path)


def test_a_missing_tokenizer_is_named_when_it_is_asked_for(tmp_path: Path) -> None:
    write_toy(tmp_path, shape=SHAPE)
    (tmp_path / "tokenizer.json").unlink()
    directory = open_hf_directory(tmp_path)
    with pytest.raises(BadWeights, match=r"tokenizer\.json is missing"):
        directory.tokenizer()
    directory.close()


@pytest.mark.parametrize("index", [True, False])
def test_a_missing_shard_is_named(tmp_path: Path, index: bool) -> None:
    write_toy(tmp_path, shape=SHAPE, files=3, index=index)
    (tmp_path / "model-00002-of-00003.safetensors").unlink()
    with pytest.raises(BadWeights, match=r"model-00002-of-00003\.safetensors is missing"):
        open_hf_directory(tmp_path)


@pytest.mark.parametrize("name", ["../model.safetensors", "/etc/passwd", "..", "", 3])
def test_an_index_may_not_point_outside_its_directory(tmp_path: Path, name: object) -> None:
    write_toy(tmp_path, shape=SHAPE, files=2)
    edit(tmp_path / INDEX, {"weight_map": {"model.norm.weight": name}})
    with pytest.raises(BadWeights, match="is not a file name"):
        open_hf_directory(tmp_path)


def test_an_index_at_odds_with_its_shards_is_refused(tmp_path: Path) -> None:
    write_toy(tmp_path, shape=SHAPE, files=2)
    edit(tmp_path / INDEX, {"weight_map": {"more": "model-00001-of-00002.safetensors"}})
    with pytest.raises(BadWeights, match=r"model-00001-of-00002\.safetensors holds no 'more'"):
        open_hf_directory(tmp_path)


def test_a_tensor_in_two_shards_is_refused(tmp_path: Path) -> None:
    write_toy(tmp_path, shape=SHAPE, files=2, index=False)
    first, second = sorted(tmp_path.glob("model-*"))
    second.write_bytes(first.read_bytes())
    with pytest.raises(BadWeights, match=r"is in model-00001-of-00002\.safetensors too"):
        open_hf_directory(tmp_path)


@pytest.mark.parametrize("text", ["{", "[]", "\udcff"])
def test_a_config_that_is_no_object_is_named(tmp_path: Path, text: str) -> None:
    write_toy(tmp_path, shape=SHAPE)
    (tmp_path / "config.json").write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(BadWeights, match=r"config\.json is not"):
        open_hf_directory(tmp_path)


def test_a_config_the_engine_cannot_serve_names_the_file_and_the_key(tmp_path: Path) -> None:
    write_toy(tmp_path, shape=SHAPE)
    edit(tmp_path / "config.json", {"hidden_act": "relu"})
    with pytest.raises(UnsupportedModel, match=r"config\.json: hidden_act 'relu'"):
        open_hf_directory(tmp_path)


def test_what_is_no_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadWeights, match="nowhere is not a directory"):
        open_hf_directory(tmp_path / "nowhere")
