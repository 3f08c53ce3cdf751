"""Whatever opens holds exactly the parameters that its shape implies."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from tessella.core.contracts import contract_of
from tessella.core.errors import BadWeights
from tessella.core.parameters import EMBEDDING, HEAD, parameters_of
from tessella.core.shapes import DType
from tessella.engine.toy import random_tensors, toy_shape, write_toy
from tessella.engine.weights import open_checkpoint

UNTIED = toy_shape(layers=2, hidden=16, heads=2, kv_heads=1)
TIED = replace(UNTIED, tied=True)


def rewrite(path: Path, change: dict[str, torch.Tensor | None]) -> None:
    file = path / "model.safetensors"
    tensors = load_file(file)
    for name, tensor in change.items():
        tensors.pop(name, None)
        if tensor is not None:
            tensors[name] = tensor
    save_file(tensors, file)


def read_all(path: Path) -> dict[str, torch.Tensor]:
    checkpoint = open_checkpoint(path)
    found = {}
    for name, info in checkpoint.tensors.items():
        found[name] = torch.empty(info.shape)
        checkpoint.read(name, found[name])
    checkpoint.close()
    return found


@pytest.mark.parametrize("family", ["llama", "qwen2"])
@pytest.mark.parametrize("tied", [False, True])
def test_a_checkpoint_gives_every_parameter_as_it_was_written(
    tmp_path: Path, family: str, tied: bool
) -> None:
    shape = toy_shape(family, layers=2, hidden=16, heads=2, kv_heads=1, tied=tied)
    write_toy(tmp_path, shape=shape, seed=3)
    found = read_all(tmp_path)
    assert {name: tuple(tensor.shape) for name, tensor in found.items()} == parameters_of(shape)
    for name, tensor in random_tensors(shape, 3, DType.F32).items():
        assert torch.equal(found[name], tensor)


def test_a_redundant_head_of_a_tied_checkpoint_is_ignored(tmp_path: Path) -> None:
    write_toy(tmp_path, shape=TIED)
    rewrite(tmp_path, {HEAD: torch.full((TIED.vocab, TIED.hidden), 7.0)})
    found = read_all(tmp_path)
    assert HEAD not in found
    assert torch.equal(found[EMBEDDING], random_tensors(TIED, 0, DType.F32)[EMBEDDING])


def test_a_tied_checkpoint_that_kept_only_the_head_gives_it_as_the_embedding(
    tmp_path: Path,
) -> None:
    write_toy(tmp_path, shape=TIED)
    embedding = random_tensors(TIED, 0, DType.F32)[EMBEDDING]
    rewrite(tmp_path, {EMBEDDING: None, HEAD: embedding})
    found = read_all(tmp_path)
    assert found.keys() == parameters_of(TIED).keys()
    assert torch.equal(found[EMBEDDING], embedding)


def test_the_head_of_a_tied_checkpoint_cannot_be_read(tmp_path: Path) -> None:
    write_toy(tmp_path, shape=TIED)
    checkpoint = open_checkpoint(tmp_path)
    with pytest.raises(BadWeights, match=r"lm_head\.weight is tied"):
        checkpoint.read(HEAD, torch.empty(TIED.vocab, TIED.hidden))
    checkpoint.close()


def test_an_untied_checkpoint_without_a_head_is_refused(tmp_path: Path) -> None:
    write_toy(tmp_path, shape=UNTIED)
    rewrite(tmp_path, {HEAD: None})
    with pytest.raises(BadWeights, match=r"lm_head\.weight is missing and the embedding is not"):
        open_checkpoint(tmp_path)


def test_a_missing_or_misshapen_tensor_is_named(tmp_path: Path) -> None:
    name = "model.layers.1.mlp.up_proj.weight"
    write_toy(tmp_path, shape=UNTIED)
    rewrite(tmp_path, {name: torch.zeros(16, 16)})
    with pytest.raises(BadWeights) as caught:
        open_checkpoint(tmp_path)
    assert f"{name} has shape [16, 16], wanted [32, 16]" in str(caught.value)
    rewrite(tmp_path, {name: None})
    with pytest.raises(BadWeights, match=f"{name} is missing"):
        open_checkpoint(tmp_path)


def test_tensors_that_the_shape_does_not_imply_are_let_be(tmp_path: Path) -> None:
    write_toy(tmp_path, shape=UNTIED)
    rewrite(tmp_path, {"model.layers.0.self_attn.rotary_emb.inv_freq": torch.zeros(4)})
    open_checkpoint(tmp_path).close()


@pytest.mark.parametrize(
    ("name", "said"), [("absent", "does not exist"), ("model.bin", "neither a checkpoint")]
)
def test_what_is_no_checkpoint_is_refused_by_its_path(tmp_path: Path, name: str, said: str) -> None:
    (tmp_path / "model.bin").write_bytes(b"")
    with pytest.raises(BadWeights) as caught:
        open_checkpoint(tmp_path / name)
    assert str(tmp_path / name) in str(caught.value)
    assert said in str(caught.value)


def hash_of(path: Path) -> str:
    checkpoint = open_checkpoint(path)
    found = contract_of(checkpoint.shape)
    checkpoint.close()
    return found


def test_the_contract_is_the_shape_and_not_the_files_values_or_types(tmp_path: Path) -> None:
    write_toy(tmp_path / "a", shape=TIED)
    write_toy(tmp_path / "b", shape=TIED, seed=9, files=2, dtype=DType.BF16)
    write_toy(tmp_path / "c", shape=TIED)
    rewrite(tmp_path / "c", {HEAD: torch.zeros(TIED.vocab, TIED.hidden)})
    assert len({hash_of(tmp_path / name) for name in "abc"}) == 1


def test_another_shape_is_another_contract(tmp_path: Path) -> None:
    shapes = [
        TIED,
        UNTIED,
        replace(TIED, layers=3),
        replace(TIED, norm_eps=1e-6),
        replace(TIED, rope=replace(TIED.rope, theta=20_000.0)),
        toy_shape("qwen2", layers=2, hidden=16, heads=2, kv_heads=1, tied=True),
    ]
    for number, shape in enumerate(shapes):
        write_toy(tmp_path / str(number), shape=shape)
    assert len({hash_of(tmp_path / str(number)) for number in range(len(shapes))}) == len(shapes)


def test_the_files_are_closed_when_a_checkpoint_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[Path] = []
    monkeypatch.setattr(
        "tessella.engine.hf_directory.HfDirectory.close", lambda self: closed.append(self.path)
    )
    write_toy(tmp_path, shape=TIED)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 5}))
    with pytest.raises(BadWeights, match=r"model\.layers\.2"):
        open_checkpoint(tmp_path)
    assert closed == [tmp_path]
