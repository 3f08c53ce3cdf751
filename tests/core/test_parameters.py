"""The parameters of a shape are those that its sizes count."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import pytest

from tessella.core.parameters import HEAD, layer_parameters, parameters_of
from tessella.core.shapes import ModelShape

SHAPE = ModelShape(
    family="llama",
    layers=3,
    hidden=8,
    intermediate=20,
    heads=4,
    kv_heads=2,
    head_dim=4,
    vocab=11,
    context=32,
)


@pytest.mark.parametrize("qkv_bias", [False, True])
@pytest.mark.parametrize("out_bias", [False, True])
@pytest.mark.parametrize("mlp_bias", [False, True])
def test_a_layer_has_as_many_elements_as_the_shape_prices(
    qkv_bias: bool, out_bias: bool, mlp_bias: bool
) -> None:
    shape = replace(SHAPE, qkv_bias=qkv_bias, out_bias=out_bias, mlp_bias=mlp_bias)
    assert sum(prod(size) for _, size in layer_parameters(shape, 1)) == shape.layer_params


def test_the_whole_model_adds_embedding_final_norm_and_an_untied_head() -> None:
    elements = sum(prod(size) for size in parameters_of(SHAPE).values())
    assert elements == 3 * SHAPE.layer_params + 2 * SHAPE.embedding_params + SHAPE.hidden
    assert HEAD not in parameters_of(replace(SHAPE, tied=True))
