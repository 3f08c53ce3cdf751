"""The llama3 rope is recognised in the divisors that a GGUF file stores, or refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tessella.core.errors import UnsupportedModel
from tessella.core.rope_factors import llama3_factors, llama3_rope_of_factors
from tessella.core.shapes import Rope, RopeKind

PLAIN = Rope(theta=500_000.0)
LLAMA3 = Rope(
    theta=500_000.0,
    kind=RopeKind.LLAMA3,
    factor=32.0,
    low_freq_factor=1.0,
    high_freq_factor=4.0,
    original_context=8192,
)


@pytest.mark.parametrize("factor", [8.0, 32.0])
def test_the_published_factors_are_recognised(factor: float) -> None:
    rope = replace(LLAMA3, factor=factor)
    found = llama3_rope_of_factors(llama3_factors(rope, 128), PLAIN, 128)
    assert found.factor == pytest.approx(factor)
    assert replace(found, factor=factor) == rope


def test_fast_frequencies_stay_and_slow_ones_are_divided_by_the_factor() -> None:
    factors = llama3_factors(LLAMA3, 128)
    assert factors[0] == 1.0
    assert factors[-1] == pytest.approx(32.0)
    assert factors == sorted(factors)


def test_factors_of_one_change_nothing() -> None:
    assert llama3_rope_of_factors([1.0] * 64, PLAIN, 128) == PLAIN


@pytest.mark.parametrize("at", [0, 40, 63])
def test_other_factors_are_refused_by_name(at: int) -> None:
    factors = llama3_factors(LLAMA3, 128)
    factors[at] *= 1.5
    with pytest.raises(UnsupportedModel, match=r"rope_freqs\.weight"):
        llama3_rope_of_factors(factors, PLAIN, 128)


def test_factors_beside_another_scaling_or_of_another_width_are_refused() -> None:
    factors = llama3_factors(LLAMA3, 128)
    with pytest.raises(UnsupportedModel, match="64 factors"):
        llama3_rope_of_factors(factors, replace(PLAIN, kind=RopeKind.LINEAR, factor=2.0), 128)
    with pytest.raises(UnsupportedModel, match="64 factors"):
        llama3_rope_of_factors(factors, PLAIN, 64)
