"""The llama3 rope as a list of divisors, which is how GGUF files store it."""

from __future__ import annotations

import math

from tessella.core.errors import UnsupportedModel
from tessella.core.shapes import Rope, RopeKind


def llama3_rope_of_factors(factors: list[float], rope: Rope, head_dim: int) -> Rope:
    """The llama3 rope whose frequencies are divided by these factors, as GGUF files store it.

    The published models differ in `factor` alone: the rest is tried as they have it, and the
    outcome is compared with every factor. Raises UnsupportedModel if they come from elsewhere.
    """
    if len(factors) != head_dim // 2 or rope.kind is not RopeKind.NONE:
        raise UnsupportedModel(f"rope_freqs.weight of {len(factors)} factors is not supported")
    if all(factor == 1.0 for factor in factors):
        return rope
    tried = Rope(
        theta=rope.theta,
        kind=RopeKind.LLAMA3,
        factor=max(factors),
        low_freq_factor=1.0,
        high_freq_factor=4.0,
        original_context=8192,
    )
    expected = llama3_factors(tried, head_dim)
    if not all(math.isclose(a, b, rel_tol=1e-3) for a, b in zip(factors, expected, strict=True)):
        raise UnsupportedModel("rope_freqs.weight holds factors that are not those of llama3")
    return tried


def llama3_factors(rope: Rope, head_dim: int) -> list[float]:
    """What each of the `head_dim // 2` rotary frequencies is divided by under a llama3 rope."""
    found = []
    for pair in range(head_dim // 2):
        wavelength = 2 * math.pi * rope.theta ** (2 * pair / head_dim)
        turns = rope.original_context / wavelength
        share = (turns - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor)
        share = min(1.0, max(0.0, share))
        found.append(1.0 / ((1.0 - share) / rope.factor + share))
    return found
