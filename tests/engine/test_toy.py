"""A toy checkpoint is a real one: transformers loads it, and its config describes its shape."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tessella.core.configs import shape_of_config
from tessella.core.shapes import DType, ModelShape, Rope, RopeKind
from tessella.engine.toy import (
    TOY_VOCAB,
    ToyText,
    config_of_shape,
    random_tensors,
    toy_shape,
    write_toy,
)
from tessella.engine.weights import open_checkpoint

LLAMA3 = Rope(
    theta=500_000.0,
    kind=RopeKind.LLAMA3,
    factor=8.0,
    low_freq_factor=1.0,
    high_freq_factor=4.0,
    original_context=64,
)
SHAPES = [
    toy_shape(),
    toy_shape("qwen2", tied=True),
    replace(toy_shape(), rope=LLAMA3, qkv_bias=True, out_bias=True, mlp_bias=True),
    replace(toy_shape(), rope=Rope(kind=RopeKind.LINEAR, factor=2.0), head_dim=32),
    replace(toy_shape(), rope=Rope(kind=RopeKind.YARN, factor=4.0, original_context=128)),
    replace(
        toy_shape("qwen2"),
        rope=Rope(kind=RopeKind.YARN, factor=4.0, original_context=128, attention_factor=0.5),
    ),
]


@pytest.mark.parametrize("shape", SHAPES)
def test_the_config_describes_the_shape(shape: ModelShape) -> None:
    assert shape_of_config(config_of_shape(shape)) == shape


def test_the_same_seed_gives_the_same_weights_and_another_does_not() -> None:
    first, again, other = (random_tensors(toy_shape(), seed, DType.F32) for seed in (1, 1, 2))
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["model.embed_tokens.weight"], other["model.embed_tokens.weight"])


def test_weights_are_stored_in_the_dtype_asked_for(tmp_path: Path) -> None:
    write_toy(tmp_path, shape=toy_shape(layers=1), dtype=DType.BF16)
    checkpoint = open_checkpoint(tmp_path)
    assert {info.stored for info in checkpoint.tensors.values()} == {"BF16"}
    assert checkpoint.eos_ids == {256, 258}
    checkpoint.close()


def test_a_vocabulary_that_cannot_hold_the_bytes_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=str(TOY_VOCAB)):
        write_toy(tmp_path, shape=toy_shape(vocab=256))


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES)
def test_transformers_loads_it_and_agrees_on_everything(tmp_path: Path, shape: ModelShape) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    write_toy(tmp_path, shape=shape, files=2)
    loaded: Any = AutoModelForCausalLM.from_pretrained(tmp_path, output_loading_info=True)
    model, report = loaded
    assert not any(report[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    checkpoint = open_checkpoint(tmp_path)
    theirs = model.state_dict()
    for name, info in checkpoint.tensors.items():
        into = torch.empty(info.shape)
        checkpoint.read(name, into)
        assert torch.equal(into, theirs[name])
    tokenizer = checkpoint.tokenizer()
    other: Any = AutoTokenizer.from_pretrained(tmp_path)
    chat = [{"role": "user", "content": "汉字 🏳️‍🌈 <|im_end|>"}]
    ids = other.apply_chat_template(chat, add_generation_prompt=True)["input_ids"]
    assert tokenizer.encode_chat(chat) == ids
    assert tokenizer.decode(ids) == other.decode(ids, skip_special_tokens=True)
    logits = model(torch.tensor([ids])).logits[0, -1]
    assert 1.0 < logits.std() < 10.0
    checkpoint.close()


def test_a_toy_may_have_tokens_and_a_template_of_its_own(tmp_path: Path) -> None:
    text = ToyText(("<fim_prefix>", "<fim_suffix>"), "{{ messages[0].content }}!")
    with pytest.raises(ValueError, match=str(TOY_VOCAB + 2)):
        write_toy(tmp_path, shape=toy_shape(layers=1), text=text)
    write_toy(tmp_path, shape=toy_shape(layers=1, vocab=TOY_VOCAB + 2), text=text)
    checkpoint = open_checkpoint(tmp_path)
    tokenizer = checkpoint.tokenizer()
    assert tokenizer.encode("<fim_suffix>") == [TOY_VOCAB + 1]
    assert tokenizer.render_chat([{"role": "user", "content": "x"}]) == "x!"
    checkpoint.close()
