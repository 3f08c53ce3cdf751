"""The decoder says what transformers says, however the layers and the positions are cut."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import torch
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from tessella.core.layers import LayerRange
from tessella.core.shapes import DType, Rope, RopeKind
from tessella.engine.device import Device
from tessella.engine.model import new_weight
from tessella.engine.rope import Rotary, frequencies
from tessella.engine.shard import Shard, load_shard
from tessella.engine.toy import toy_shape

if TYPE_CHECKING:
    from tests.engine.conftest import Tiny

IDS = [3, 14, 15, 9, 2, 6, 53, 58, 9, 7, 9, 32, 38, 46, 26, 43, 38, 32, 7, 50]
CLOSE = 1e-5


def load(tiny: Tiny, layers: LayerRange, dtype: DType = DType.F32) -> Shard:
    return load_shard(tiny.checkpoint(), layers, device=Device.CPU, dtype=dtype)


class Chain:
    """Shards in a row that hand hidden states on: what a mesh does, without the mesh."""

    def __init__(self, shards: list[Shard], capacity: int = 64) -> None:
        self.shards = shards
        self.caches = [shard.open_cache(capacity, shard.layers) for shard in shards]

    def feed(self, ids: list[int], position: int) -> torch.Tensor:
        """Logits after each of these, `[n, vocab]`."""
        x = self.shards[0].embed(ids)
        for shard, cache in zip(self.shards, self.caches, strict=True):
            x = shard.forward(x, cache, position, shard.layers, lambda: None)
        return torch.stack([self.shards[-1].logits(row) for row in x])

    def feed_in(self, chunks: list[int]) -> torch.Tensor:
        """All of IDS, in chunks of these sizes."""
        edges = [0, *itertools.accumulate(chunks)]
        assert edges[-1] == len(IDS)
        return torch.cat(
            [self.feed(IDS[a:b], a) for a, b in itertools.pairwise(edges)],
        )


def pieces(size: int) -> list[int]:
    whole, rest = divmod(len(IDS), size)
    return [size] * whole + [rest] * (rest > 0)


def test_the_whole_model_says_what_transformers_says(tiny: Tiny) -> None:
    logits = Chain([load(tiny, tiny.shape.whole)]).feed_in([len(IDS)])
    torch.testing.assert_close(logits, tiny.logits(IDS), atol=CLOSE, rtol=0)


@pytest.mark.parametrize("chunk", [1, 3, 4, 5])
def test_prefill_in_chunks_says_the_same(tiny: Tiny, chunk: int) -> None:
    logits = Chain([load(tiny, tiny.shape.whole)]).feed_in(pieces(chunk))
    torch.testing.assert_close(logits, tiny.logits(IDS), atol=CLOSE, rtol=0)


def test_a_context_is_right_to_its_last_position(tiny: Tiny) -> None:
    ids = [(7 * at * at + 3) % 61 for at in range(64)]
    chain = Chain([load(tiny, tiny.shape.whole)])
    logits = torch.cat([chain.feed(ids[at : at + 16], at) for at in range(0, 64, 16)])
    torch.testing.assert_close(logits, tiny.logits(ids), atol=CLOSE, rtol=0)


@pytest.mark.parametrize("cut", [1, 2, 3])
@pytest.mark.parametrize("name", ["llama tied", "llama untied", "qwen2 tied", "llama llama3"])
def test_every_cut_of_the_layers_says_the_same(
    tiny_named: Callable[[str], Tiny], name: str, cut: int
) -> None:
    tiny = tiny_named(name)
    chain = Chain([load(tiny, LayerRange(0, cut)), load(tiny, LayerRange(cut, 4))])
    logits = chain.feed_in([16, 1, 1, 2])
    torch.testing.assert_close(logits, tiny.logits(IDS), atol=CLOSE, rtol=0)
    whole = Chain([load(tiny, tiny.shape.whole)]).feed_in([16, 1, 1, 2])
    assert torch.equal(logits, whole)


def test_one_layer_a_node_says_the_same(tiny_named: Callable[[str], Tiny]) -> None:
    tiny = tiny_named("qwen2 tied")
    chain = Chain([load(tiny, LayerRange(layer, layer + 1)) for layer in range(4)])
    torch.testing.assert_close(chain.feed_in([7, 13]), tiny.logits(IDS), atol=CLOSE, rtol=0)


@pytest.mark.parametrize("dtype", [DType.BF16, DType.F16])
def test_sixteen_bits_stay_near(tiny_named: Callable[[str], Tiny], dtype: DType) -> None:
    tiny = tiny_named("qwen2 tied")
    logits = Chain([load(tiny, tiny.shape.whole, dtype)]).feed_in([16, 1, 3])
    wanted = tiny.logits(IDS)
    assert logits.dtype == torch.float32
    assert (logits - wanted).abs().max() < 0.1 * wanted.abs().max()


def test_a_rolled_back_stretch_redone_is_bit_for_bit_the_same(
    tiny_named: Callable[[str], Tiny],
) -> None:
    tiny = tiny_named("llama tied")
    chain = Chain([load(tiny, LayerRange(0, 2)), load(tiny, LayerRange(2, 4))])
    chain.feed(IDS[:12], 0)
    first = [chain.feed([token], 12 + at) for at, token in enumerate(IDS[12:])]
    chain.feed([1, 2, 3], 13)
    again = [chain.feed([token], 12 + at) for at, token in enumerate(IDS[12:])]
    assert all(map(torch.equal, first, again))


SCALINGS: list[dict[str, Any]] = [
    {"rope_type": "linear", "factor": 4.0},
    {"rope_type": "llama3", "factor": 32.0, "original_max_position_embeddings": 8192}
    | {"low_freq_factor": 1.0, "high_freq_factor": 4.0},
    {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32_768},
    {"rope_type": "yarn", "factor": 16.0, "original_max_position_embeddings": 4096}
    | {"beta_fast": 16.0, "beta_slow": 2.0, "attention_factor": 0.9},
]


@pytest.mark.parametrize("scaling", SCALINGS, ids=lambda scaling: scaling["rope_type"])
@pytest.mark.parametrize("theta", [10_000.0, 1_000_000.0])
def test_frequencies_of_real_models_are_those_of_transformers(
    scaling: dict[str, Any], theta: float
) -> None:
    config = LlamaConfig(
        hidden_size=256,
        num_attention_heads=4,
        max_position_embeddings=131_072,
        rope_parameters=scaling | {"rope_theta": theta},
    )
    wanted, wanted_scale = ROPE_INIT_FUNCTIONS[scaling["rope_type"]](config)
    given = {key: value for key, value in scaling.items() if not key.startswith(("rope", "orig"))}
    rope = Rope(
        theta=theta,
        kind=RopeKind(scaling["rope_type"]),
        original_context=scaling.get("original_max_position_embeddings", 0),
        **given,
    )
    got, scale = frequencies(replace(toy_shape(), head_dim=64, context=131_072, rope=rope))
    assert scale == wanted_scale
    torch.testing.assert_close(got, wanted, rtol=1e-6, atol=0)


@pytest.mark.parametrize("kind", ["linear", "llama3", "yarn"])
def test_scaled_rope_is_another_model(tiny_named: Callable[[str], Tiny], kind: str) -> None:
    scaled = tiny_named(f"llama {kind}").shape
    plain = tiny_named("llama untied").shape
    assert not torch.allclose(frequencies(scaled)[0], frequencies(plain)[0])


def test_rope_tables_grow_and_keep_what_they_held() -> None:
    rope = Rope(theta=100.0, kind=RopeKind.LINEAR, factor=2.0)
    shape = replace(toy_shape(), head_dim=4, rope=rope)
    rotary = Rotary(shape, torch.float32, torch.device("cpu"))
    rotary.reach(3)
    before = rotary.cos
    rotary.reach(50)
    assert torch.equal(rotary.cos[:3], before)
    rotary.reach(10)
    assert rotary.sin.shape == (50, 1, 4)
    # Position 3, second pair: 3 / 2 x 100 ** (-1 / 2).
    assert rotary.sin[3, 0].tolist() == pytest.approx([-0.997495, -0.149438, 0.997495, 0.149438])


@pytest.mark.parametrize(("inputs", "outputs"), [(3, 7), (7, 3), (5, 5)])
def test_a_weight_is_contiguous_along_its_longer_side(inputs: int, outputs: int) -> None:
    weight = new_weight(inputs, outputs, torch.float32, torch.device("cpu"))
    assert weight.shape == (inputs, outputs)
    assert weight.stride(1 if outputs > inputs else 0) == 1
