"""Tiny models of transformers with random weights, and their tensors behind `Checkpoint`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
)

from tessella.core.errors import BadWeights
from tessella.core.shapes import ModelShape, Rope, RopeKind
from tessella.engine.checkpoint import TensorInfo
from tessella.engine.tokenizer import Tokenizer


class MemoryCheckpoint:
    """A dict of tensors as a model on disk. `reads` keeps the names that were asked for."""

    def __init__(self, shape: ModelShape, held: Mapping[str, torch.Tensor]) -> None:
        self.shape = shape
        self.eos_ids: frozenset[int] = frozenset({2})
        self.tensors = {
            name: TensorInfo(name, tuple(tensor.shape), "F32") for name, tensor in held.items()
        }
        self.reads: list[str] = []
        self._held = held

    def read(self, name: str, into: torch.Tensor) -> None:
        self.reads.append(name)
        if name not in self._held or self._held[name].shape != into.shape:
            raise BadWeights(f"no tensor {name} of shape {list(into.shape)}")
        assert into.is_contiguous()
        assert into.device.type == "cpu"
        into.copy_(self._held[name])

    def tokenizer(self) -> Tokenizer:
        raise NotImplementedError

    def close(self) -> None: ...


class Tiny:
    """A model of transformers, what we call its shape, and its weights."""

    def __init__(self, reference: PreTrainedModel, shape: ModelShape) -> None:
        self.reference = reference
        self.shape = shape

    def checkpoint(self) -> MemoryCheckpoint:
        """A checkpoint of its own; the tensors are shared."""
        held = self.reference.state_dict()
        if self.shape.tied:
            held = {name: tensor for name, tensor in held.items() if name != "lm_head.weight"}
        return MemoryCheckpoint(self.shape, held)

    @torch.inference_mode()
    def logits(self, ids: list[int]) -> torch.Tensor:
        """What transformers says after each position, `[n, vocab]`."""
        logits: torch.Tensor = self.reference(torch.tensor([ids])).logits[0]
        return logits


BASE: dict[str, Any] = {
    "vocab_size": 61,
    "hidden_size": 32,
    "intermediate_size": 80,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    # Weights large enough that attention is far from uniform, and mistakes in it are seen.
    "initializer_range": 0.2,
}
LLAMA3 = {
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}
YARN = {
    "factor": 4.0,
    "beta_fast": 4.0,
    "beta_slow": 1.0,
    "original_max_position_embeddings": 16,
}
# Name: family, config beside BASE, rope parameters beside theta.
TINIES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "llama tied": ("llama", {"tie_word_embeddings": True}, {}),
    "llama untied": ("llama", {}, {}),
    "llama biased": ("llama", {"attention_bias": True, "mlp_bias": True}, {}),
    "llama one kv head": ("llama", {"num_key_value_heads": 1}, {}),
    "llama all kv heads": ("llama", {"num_key_value_heads": 4}, {}),
    "llama wide heads": ("llama", {"head_dim": 20, "rms_norm_eps": 1e-3}, {}),
    "llama linear": ("llama", {}, {"rope_type": "linear", "factor": 4.0}),
    "llama llama3": ("llama", {}, {"rope_type": "llama3", **LLAMA3}),
    "llama yarn": ("llama", {}, {"rope_type": "yarn", **YARN}),
    "qwen2 tied": ("qwen2", {"tie_word_embeddings": True}, {}),
    "qwen2 untied": ("qwen2", {"num_key_value_heads": 1}, {}),
    "qwen2 yarn": ("qwen2", {}, {"rope_type": "yarn", "attention_factor": 1.3, **YARN}),
}


def rope_of(parameters: dict[str, Any]) -> Rope:
    kind = parameters.get("rope_type", "none")
    given = {key: value for key, value in parameters.items() if key != "rope_type"}
    original = given.pop("original_max_position_embeddings", 0)
    return Rope(theta=500.0, kind=RopeKind(kind), original_context=original, **given)


def new_reference(family: str, settings: dict[str, Any]) -> PreTrainedModel:
    reference: PreTrainedModel
    if family == "llama":
        reference = LlamaForCausalLM(LlamaConfig(**settings))
    else:
        reference = Qwen2ForCausalLM(Qwen2Config(**settings))
    reference.train(False)
    return reference


@functools.cache
def make_tiny(name: str) -> Tiny:
    family, extra, rope = TINIES[name]
    settings = BASE | extra
    settings["rope_parameters"] = {"rope_type": "default"} | rope | {"rope_theta": 500.0}
    torch.manual_seed(sum(name.encode()))
    reference = new_reference(family, settings)
    config: Any = reference.config
    with torch.no_grad():
        # transformers begins norms at 1 and biases at 0, where swapping two would show nothing.
        for key, parameter in reference.named_parameters():
            if "norm" in key or key.endswith("bias"):
                parameter.add_(torch.randn_like(parameter) * 0.3)
    biased = bool(getattr(config, "attention_bias", False))
    return Tiny(
        reference,
        ModelShape(
            family=family,
            layers=config.num_hidden_layers,
            hidden=config.hidden_size,
            intermediate=config.intermediate_size,
            heads=config.num_attention_heads,
            kv_heads=config.num_key_value_heads,
            head_dim=extra.get("head_dim", 8),
            vocab=config.vocab_size,
            context=config.max_position_embeddings,
            norm_eps=config.rms_norm_eps,
            rope=rope_of(rope),
            tied=config.tie_word_embeddings,
            qkv_bias=family == "qwen2" or biased,
            out_bias=biased,
            mlp_bias=bool(getattr(config, "mlp_bias", False)),
        ),
    )


@pytest.fixture(params=list(TINIES))
def tiny(request: pytest.FixtureRequest) -> Tiny:
    """Each of the tiny models in turn."""
    return make_tiny(request.param)


@pytest.fixture
def tiny_named() -> Callable[[str], Tiny]:
    """One of them by its name."""
    return make_tiny
