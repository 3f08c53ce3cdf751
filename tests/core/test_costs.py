from __future__ import annotations

from dataclasses import replace

import pytest

from tessella.core.costs import (
    Kv,
    Weights,
    embedding_bytes,
    head_bytes,
    kv_bytes,
    layer_bytes,
    position_bytes,
    shard_bytes,
)
from tessella.core.formats import KvFormat, WeightFormat
from tessella.core.layers import LayerRange
from tessella.core.plan import terms_of
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


# Of one layer: matrices are 14,909,440 values in rows of 896 or 4,864, norms and biases 2,944.
@pytest.mark.parametrize(
    ("weights", "layer", "embedding", "norm"),
    [
        (WeightFormat.F32, 4 * (14_909_440 + 2_944), 4 * 151_936 * 896, 4 * 896),
        (WeightFormat.F16, 2 * (14_909_440 + 2_944), 2 * 151_936 * 896, 2 * 896),
        (WeightFormat.BF16, 2 * (14_909_440 + 2_944), 2 * 151_936 * 896, 2 * 896),
        (WeightFormat.Q8_0, 34 * 465_920 + 4 * 2_944, 34 * 151_936 * 28, 4 * 896),
        (WeightFormat.INT4, 18 * 465_920 + 4 * 2_944, 2 * 151_936 * 896, 4 * 896),
    ],
)
def test_weights_of_a_known_model_in_every_format(
    weights: WeightFormat, layer: int, embedding: int, norm: int
) -> None:
    assert layer_bytes(QWEN_05B, weights) == layer
    assert embedding_bytes(QWEN_05B, weights) == embedding
    assert head_bytes(QWEN_05B, weights) == embedding + norm
    # Tied: the whole model holds the table once.
    assert shard_bytes(QWEN_05B, LayerRange(0, 24), weights) == 24 * layer + embedding + norm
    assert shard_bytes(QWEN_05B, LayerRange(0, 3), weights) == 3 * layer + embedding
    assert shard_bytes(QWEN_05B, LayerRange(21, 24), weights) == 3 * layer + embedding + norm


@pytest.mark.parametrize("dtype", DType)
@pytest.mark.parametrize("bias", [False, True])
def test_a_serving_type_costs_its_elements(dtype: DType, bias: bool) -> None:
    shape = replace(QWEN_05B, qkv_bias=bias, out_bias=bias, mlp_bias=bias)
    assert layer_bytes(shape, dtype) == shape.layer_params * dtype.itemsize
    assert layer_bytes(shape, dtype) == layer_bytes(shape, WeightFormat.of(dtype))
    assert embedding_bytes(shape, dtype) == shape.embedding_params * dtype.itemsize


@pytest.mark.parametrize("kv", KvFormat)
def test_kv_of_a_known_model_in_every_format(kv: KvFormat) -> None:
    assert kv_bytes(QWEN_05B, 1, 32_768, kv) == 16 * MIB * kv.scale
    assert position_bytes(QWEN_05B, 24, kv) == 24 * 512 * kv.scale


def test_rows_that_are_no_whole_groups_are_padded() -> None:
    shape = replace(QWEN_05B, hidden=40, head_dim=20, kv_heads=2, heads=2, intermediate=48)
    # q, k, v, o and gate, up have 40 columns, down 48: two groups each.
    rows = 40 + 2 * 40 + 40 + 2 * 48 + 40
    assert layer_bytes(shape, WeightFormat.Q8_0) == rows * 2 * 34 + 4 * (3 * 40 + 2 * 40)
    # A group of keys never reaches into the next head.
    assert position_bytes(shape, 1, KvFormat.Q8_0) == 2 * 2 * 34


@pytest.mark.parametrize(
    ("weights", "kv", "expected"),
    [
        (DType.F16, None, (28.44, 16.0, 259.66)),
        (DType.F32, None, (56.89, 32.0, 519.31)),
        (WeightFormat.BF16, None, (28.44, 16.0, 259.66)),
        (DType.F16, KvFormat.Q8_0, (28.44, 8.5, 259.66)),
        (DType.F32, KvFormat.Q4_0, (56.89, 4.5, 519.31)),
        (WeightFormat.Q8_0, DType.F16, (15.12, 16.0, 137.94)),
        (WeightFormat.INT4, KvFormat.Q8_0, (8.01, 8.5, 259.66)),
    ],
)
def test_a_known_model_is_priced_in_every_format(
    weights: Weights, kv: Kv | None, expected: tuple[float, float, float]
) -> None:
    terms = terms_of(QWEN_05B, weights, context=32_768, slots=1, kv=kv)
    found = terms.weights_per_layer_mb, terms.kv_per_layer_mb, terms.embedding_mb
    assert tuple(round(size, 2) for size in found) == expected
    assert terms.mem_per_layer_mb == terms.weights_per_layer_mb + terms.kv_per_layer_mb
    assert terms.global_tensor_mb == terms.head_mb > terms.embedding_mb


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
