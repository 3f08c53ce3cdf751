"""A GGUF file gives the tensors of the HuggingFace checkpoint it was made from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from gguf import GGMLQuantizationType, GGUFReader, GGUFValueType, GGUFWriter
from gguf.gguf_writer import GGUFValue
from gguf.quants import dequantize, quantize

from tessella.core.errors import BadWeights, UnsupportedModel
from tessella.core.rope_factors import llama3_factors
from tessella.core.shapes import DType, ModelShape, Rope, RopeKind
from tessella.engine import gguf_file
from tessella.engine.gguf_file import hf_name, open_gguf
from tessella.engine.pieces import byte_alphabet
from tessella.engine.toy import SPECIAL_TOKENS, random_tensors, toy_shape
from tessella.engine.weights import open_checkpoint

Array = npt.NDArray[Any]
Type = GGMLQuantizationType

LLAMA = toy_shape("llama", layers=1, hidden=256, heads=4, kv_heads=2)
QWEN2 = toy_shape("qwen2", layers=1, hidden=32, heads=4, kv_heads=2, tied=True)
SMALL = toy_shape("llama", layers=1, hidden=32, heads=4, kv_heads=2, tied=True)
NAMES = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "model.layers": "blk",
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
}


def gguf_name(name: str) -> str:
    for ours, theirs in NAMES.items():
        name = name.replace(ours, theirs)
    return name


def interleaved(weight: Array, heads: int) -> Array:
    """What llama.cpp's converter does to queries and keys of the llama architecture."""
    halves = weight.reshape(heads, 2, weight.shape[0] // heads // 2, *weight.shape[1:])
    return halves.swapaxes(1, 2).reshape(weight.shape)


def as_stored(shape: ModelShape, name: str, tensor: torch.Tensor) -> Array:
    values: Array = tensor.numpy()
    if shape.family == "llama" and ("q_proj" in name or "k_proj" in name):
        return interleaved(values, shape.heads if "q_proj" in name else shape.kv_heads)
    return values


def pack(values: Array, kind: Type) -> Array:
    """Rows in a type; noise with sane scales where the library can only read it."""
    if kind not in (Type.Q4_K, Type.Q6_K):
        return quantize(values, kind)
    group = {Type.Q4_K: 144, Type.Q6_K: 210}[kind]
    rng = np.random.default_rng(0)
    packed = rng.integers(0, 256, (len(values), values.shape[1] // 256, group), dtype=np.uint8)
    scales = np.array([0.5, 0.25], dtype=np.float16).view(np.uint8)
    packed[:, :, slice(0, 4) if kind is Type.Q4_K else slice(208, 210)] = (
        scales if kind is Type.Q4_K else scales[:2]
    )
    return packed.reshape(len(values), -1)


def write(
    path: Path,
    shape: ModelShape,
    kind: Type = Type.F32,
    change: Callable[[GGUFWriter], None] = lambda _: None,
) -> Path:
    writer = GGUFWriter(path, shape.family)
    writer.add_block_count(shape.layers)
    writer.add_context_length(shape.context)
    writer.add_embedding_length(shape.hidden)
    writer.add_feed_forward_length(shape.intermediate)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_layer_norm_rms_eps(shape.norm_eps)
    writer.add_rope_freq_base(shape.rope.theta)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    alphabet = byte_alphabet()
    writer.add_token_list([alphabet[byte] for byte in range(255)] + ["he", *SPECIAL_TOKENS])
    writer.add_token_types([1] * 256 + [3] * len(SPECIAL_TOKENS))
    writer.add_token_merges(["h e"])
    writer.add_eos_token_id(258)
    for name, tensor in random_tensors(shape, 0, DType.F32).items():
        values = as_stored(shape, name, tensor)
        if values.ndim == 1:
            writer.add_tensor(gguf_name(name), values)
        else:
            writer.add_tensor(gguf_name(name), pack(values, kind), raw_dtype=kind)
    change(writer)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.mark.parametrize("shape", [LLAMA, SMALL, QWEN2], ids=["llama", "tied", "qwen2"])
def test_f32_gives_back_the_checkpoint_it_was_made_from(tmp_path: Path, shape: ModelShape) -> None:
    checkpoint = open_checkpoint(write(tmp_path / "x.gguf", shape))
    assert checkpoint.shape.norm_eps == pytest.approx(shape.norm_eps)
    assert replace(checkpoint.shape, norm_eps=shape.norm_eps) == shape
    for name, tensor in random_tensors(shape, 0, DType.F32).items():
        into = torch.full(tensor.shape, float("nan"))
        checkpoint.read(name, into)
        assert torch.equal(into, tensor), name
    checkpoint.close()


@pytest.mark.parametrize("slice_bytes", [4096, 4 * 2**20])
@pytest.mark.parametrize("kind", sorted(gguf_file.READABLE), ids=lambda kind: kind.name)
def test_every_type_is_dequantised_as_the_reference_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: Type, slice_bytes: int
) -> None:
    monkeypatch.setattr(gguf_file, "DEQUANTISED_BYTES", slice_bytes)
    file = open_gguf(write(tmp_path / "x.gguf", LLAMA, kind))
    for name, tensor in random_tensors(LLAMA, 0, DType.F32).items():
        if tensor.ndim == 1:
            continue
        into = torch.full(tensor.shape, float("nan"))
        file.read(name, into)
        expected = dequantize(pack(as_stored(LLAMA, name, tensor), kind), kind)
        assert file.tensors[name].stored == kind.name
        assert np.array_equal(as_stored(LLAMA, name, into), expected), name
    file.close()


def test_tensors_are_cast_to_the_dtype_asked_for(tmp_path: Path) -> None:
    file = open_gguf(write(tmp_path / "x.gguf", SMALL))
    name = "model.layers.0.self_attn.q_proj.weight"
    into = torch.empty(32, 32, dtype=torch.bfloat16)
    file.read(name, into)
    assert torch.equal(into, random_tensors(SMALL, 0, DType.F32)[name].bfloat16())
    with pytest.raises(BadWeights, match=r"q_proj\.weight has shape \[32, 32\], not \[32, 31\]"):
        file.read(name, torch.empty(32, 31))
    with pytest.raises(BadWeights, match="holds no tensor nothing"):
        file.read("nothing", into)
    file.close()


def test_eos_ids_are_the_headers_and_the_end_markers(tmp_path: Path) -> None:
    file = open_gguf(write(tmp_path / "x.gguf", SMALL))
    assert file.eos_ids == {256, 258}
    assert file.tokenizer() is file.tokenizer()
    file.close()


def test_llama3_rope_factors_become_the_rope_they_came_from(tmp_path: Path) -> None:
    rope = Rope(
        theta=500_000.0,
        kind=RopeKind.LLAMA3,
        factor=8.0,
        low_freq_factor=1.0,
        high_freq_factor=4.0,
        original_context=8192,
    )
    shape = replace(LLAMA, rope=rope)
    factors = np.array(llama3_factors(rope, shape.head_dim), dtype=np.float32)
    path = write(
        tmp_path / "x.gguf", shape, change=lambda w: w.add_tensor("rope_freqs.weight", factors)
    )
    checkpoint = open_checkpoint(path)
    assert checkpoint.shape.rope == rope
    assert "rope_freqs.weight" not in checkpoint.tensors
    checkpoint.close()


@pytest.mark.parametrize(
    ("name", "values", "named"),
    [
        ("blk.0.attn_q_norm.weight", np.ones(8, dtype=np.float32), "'blk.0.attn_q_norm.weight'"),
        ("blk.0.attn_q.bias", np.ones(32, dtype=np.float32), "'blk.0.attn_q.bias' has no place"),
        ("blk.1.attn_q.weight", np.ones((32, 32), dtype=np.float32), "'blk.1.attn_q.weight'"),
        ("rope_freqs.weight", np.full(4, 3.0, dtype=np.float32), "rope_freqs.weight"),
    ],
)
def test_a_tensor_that_would_be_passed_over_is_refused(
    tmp_path: Path, name: str, values: Array, named: str
) -> None:
    path = write(tmp_path / "x.gguf", SMALL, change=lambda w: w.add_tensor(name, values))
    with pytest.raises(UnsupportedModel) as caught:
        open_gguf(path)
    assert named in str(caught.value)
    assert str(path) in str(caught.value)


def test_an_unread_type_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModel, match=r"'token_embd\.weight' is of type Q5_0"):
        open_gguf(write(tmp_path / "x.gguf", SMALL, Type.Q5_0))


def test_a_model_in_several_files_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "x.gguf", SMALL, change=lambda w: w.add_uint16("split.count", 2))
    with pytest.raises(UnsupportedModel, match=r"split\.count = 2"):
        open_gguf(path)


def test_a_missing_tensor_is_named_as_huggingface_names_it(tmp_path: Path) -> None:
    shape = replace(SMALL, layers=2)
    path = write(tmp_path / "x.gguf", SMALL, change=lambda w: w.kv_data[0].update(_layers(shape)))
    with pytest.raises(BadWeights, match=r"model\.layers\.1\.input_layernorm\.weight is missing"):
        open_checkpoint(path)


def _layers(shape: ModelShape) -> dict[str, Any]:
    return {"llama.block_count": GGUFValue(value=shape.layers, type=GGUFValueType.UINT32)}


@pytest.mark.parametrize(
    ("name", "translated"),
    [
        ("token_embd.weight", "model.embed_tokens.weight"),
        ("blk.12.ffn_down.weight", "model.layers.12.mlp.down_proj.weight"),
        ("blk.0.attn_k.bias", "model.layers.0.self_attn.k_proj.bias"),
        ("blk.0.attn_qkv.weight", None),
        ("blk.0.attn_q", None),
        ("blk.99999.attn_q.weight", None),
        ("mm.0.weight", None),
    ],
)
def test_names_are_translated_or_unknown(name: str, translated: str | None) -> None:
    assert hf_name(name) == translated


@pytest.mark.slow
def test_the_real_model_is_read_as_the_library_reads_it(smollm2_gguf: Path) -> None:
    reader = {tensor.name: tensor for tensor in GGUFReader(smollm2_gguf).tensors}
    checkpoint = open_checkpoint(smollm2_gguf)
    shape = checkpoint.shape
    assert (shape.layers, shape.hidden, shape.vocab, shape.tied) == (30, 576, 49152, True)
    for name in (
        "model.embed_tokens.weight",
        "model.layers.7.self_attn.q_proj.weight",
        "model.layers.29.self_attn.k_proj.weight",
        "model.layers.0.mlp.down_proj.weight",
        "model.norm.weight",
    ):
        into = torch.empty(checkpoint.tensors[name].shape)
        checkpoint.read(name, into)
        stored = reader[gguf_name(name)]
        expected = dequantize(stored.data, stored.tensor_type)
        assert np.array_equal(as_stored(shape, name, into), expected), name
    checkpoint.close()
