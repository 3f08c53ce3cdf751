from __future__ import annotations

import pytest

from tessella.core.costs import (
    embedding_bytes,
    head_bytes,
    kv_bytes,
    layer_bytes,
    position_bytes,
    shard_bytes,
)
from tessella.core.layers import LayerRange
from tessella.core.shapes import DType, ModelShape

MIB = 1024 * 1024

QWEN_05B = ModelShape(
    family="qwen2",
    layers=24,
    hidden=896,
    intermediate=4864,
    heads=14,
    kv_heads=2,
    head_dim=64,
    vocab=151_936,
    context=32_768,
    tied=True,
    qkv_bias=True,
)


@pytest.mark.parametrize(("dtype", "mib"), [(DType.F16, 28.44), (DType.BF16, 28.44)])
def test_a_layer_of_a_known_model_costs_what_is_published(dtype: DType, mib: float) -> None:
    assert layer_bytes(QWEN_05B, dtype) == 29_824_768
    assert round(layer_bytes(QWEN_05B, dtype) / MIB, 2) == mib


def test_f32_costs_twice_as_much() -> None:
    assert round(layer_bytes(QWEN_05B, DType.F32) / MIB, 2) == 56.89


def test_the_embedding_and_kv_of_a_known_model() -> None:
    assert round(embedding_bytes(QWEN_05B, DType.F16) / MIB, 2) == 259.66
    assert kv_bytes(QWEN_05B, 1, 32_768, DType.F16) == 16 * MIB
    assert position_bytes(QWEN_05B, 24, DType.F16) == 24 * 512


def test_the_head_is_its_table_and_the_final_norm() -> None:
    norm = 896 * 2
    assert head_bytes(QWEN_05B, DType.F16) == embedding_bytes(QWEN_05B, DType.F16) + norm


@pytest.mark.parametrize("tied", [True, False])
def test_the_ends_belong_to_the_first_and_the_last_layer(tied: bool) -> None:
    shape = ModelShape(
        family="llama",
        layers=4,
        hidden=8,
        intermediate=16,
        heads=2,
        kv_heads=1,
        head_dim=4,
        vocab=32,
        context=64,
        tied=tied,
    )
    layer, table, norm = layer_bytes(shape, DType.F32), 32 * 8 * 4, 8 * 4
    cost = {cut: shard_bytes(shape, LayerRange.parse(cut), DType.F32) for cut in CUTS}
    assert cost == {
        "0:1": layer + table,
        "1:3": 2 * layer,
        "3:4": layer + table + norm,
        "0:4": 4 * layer + (1 if tied else 2) * table + norm,
    }


CUTS = ("0:1", "1:3", "3:4", "0:4")


def test_layers_beyond_the_model_have_no_price() -> None:
    with pytest.raises(ValueError, match="20:25 of a model of 24"):
        shard_bytes(QWEN_05B, LayerRange(20, 25), DType.F32)
