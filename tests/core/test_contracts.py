"""The contract is a function of the shape alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tessella.core.contracts import contract_of
from tessella.core.shapes import ModelShape, Rope, RopeKind

SHAPE = ModelShape(
    family="llama",
    layers=2,
    hidden=8,
    intermediate=16,
    heads=2,
    kv_heads=1,
    head_dim=4,
    vocab=32,
    context=64,
    tied=True,
)


def test_the_contract_of_a_shape_is_this() -> None:
    assert contract_of(SHAPE) == "1086bf7f398579a957a1c7b319ed305697b05978194ae435868848dd358fe048"


@pytest.mark.parametrize(
    "other",
    [
        replace(SHAPE, layers=3),
        replace(SHAPE, tied=False),
        replace(SHAPE, qkv_bias=True),
        replace(SHAPE, norm_eps=1e-6),
        replace(SHAPE, rope=Rope(theta=10_001.0)),
        replace(SHAPE, rope=Rope(kind=RopeKind.LINEAR, factor=2.0)),
    ],
)
def test_another_shape_is_another_contract(other: ModelShape) -> None:
    assert contract_of(other) != contract_of(SHAPE)


def test_floats_count_as_f32() -> None:
    # 1e-6 as a GGUF header gives it back.
    assert contract_of(replace(SHAPE, norm_eps=9.999999974752427e-07)) == contract_of(
        replace(SHAPE, norm_eps=1e-6)
    )
