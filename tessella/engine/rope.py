"""Rotary position embedding: frequencies, and tables of their cosines and sines.

Computed in f32 on the CPU and cast last, step by step as transformers does, so that every device
and every node of a chain turns by the same angles.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from tessella.core.shapes import ModelShape, Rope, RopeKind


class Rotary:
    """Cosines and sines by position, `[positions, 1, head_dim]`, grown on demand by `reach`.

    The sines carry the sign of the half they multiply, so that turning a head is
    `x * cos + swapped_halves(x) * sin`.
    """

    def __init__(self, shape: ModelShape, dtype: torch.dtype, device: torch.device) -> None:
        self._inverse, self._scale = frequencies(shape)
        self._dtype, self._device = dtype, device
        self.cos = self.sin = torch.empty(0, 1, shape.head_dim, dtype=dtype, device=device)

    def reach(self, positions: int) -> None:
        """Make the tables hold at least this many positions."""
        if positions <= self.cos.shape[0]:
            return
        # Doubling keeps many small growths from costing a table each.
        wanted = torch.arange(max(positions, 2 * self.cos.shape[0]), dtype=torch.float32)
        angles = wanted[:, None] * self._inverse
        cos, sin = angles.cos() * self._scale, angles.sin() * self._scale
        self.cos, self.sin = (
            torch.cat(halves, dim=-1).unsqueeze(1).to(self._device, self._dtype)
            for halves in ((cos, cos), (-sin, sin))
        )


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """`[n, heads, head_dim]` turned by tables of `[n, 1, head_dim]`."""
    return (x * cos).addcmul_(x.roll(x.shape[-1] // 2, -1), sin)


def frequencies(shape: ModelShape) -> tuple[Tensor, float]:
    """Radians a position turns each pair by, `[head_dim / 2]`, and a factor on cos and sin."""
    rope, dim = shape.rope, shape.head_dim
    powers = rope.theta ** (torch.arange(0, dim, 2, dtype=torch.float32) / dim)
    original = rope.original_context or shape.context
    match rope.kind:
        case RopeKind.NONE:
            return 1.0 / powers, 1.0
        case RopeKind.LINEAR:
            return (1.0 / powers) / rope.factor, 1.0
        case RopeKind.LLAMA3:
            return _llama3(rope, 1.0 / powers, original), 1.0
        case RopeKind.YARN:
            return _yarn(rope, powers, original), _yarn_scale(rope)


def _llama3(rope: Rope, inverse: Tensor, original: int) -> Tensor:
    """Long waves are stretched by `factor`, short ones are kept, those between are blended."""
    low, high = rope.low_freq_factor, rope.high_freq_factor
    wave = 2 * math.pi / inverse
    stretched = torch.where(wave > original / low, inverse / rope.factor, inverse)
    smooth = (original / wave - low) / (high - low)
    blended = (1 - smooth) * stretched / rope.factor + smooth * stretched
    between = (wave >= original / high) & (wave <= original / low)
    return torch.where(between, blended, stretched)


def _yarn(rope: Rope, powers: Tensor, original: int) -> Tensor:
    """A ramp over the pairs, from kept (fast ones) to stretched by `factor` (slow ones)."""
    pairs = powers.shape[0]

    def pair_of(turns: float) -> float:
        # The pair, times two, that makes so many turns over the original context.
        return pairs * math.log(original / (turns * 2 * math.pi)) / math.log(rope.theta)

    low = max(math.floor(pair_of(rope.beta_fast)), 0)
    high = min(math.ceil(pair_of(rope.beta_slow)), 2 * pairs - 1)
    width = high - low if high != low else 0.001
    ramp = ((torch.arange(pairs, dtype=torch.float32) - low) / width).clamp(0, 1)
    kept = 1 - ramp
    return 1.0 / (rope.factor * powers) * (1 - kept) + 1.0 / powers * kept


def _yarn_scale(rope: Rope) -> float:
    """What cos and sin are multiplied by: given, or by the rule of the YaRN paper."""
    if rope.attention_factor is not None:
        return rope.attention_factor
    return 1.0 if rope.factor <= 1 else 0.1 * math.log(rope.factor) + 1.0
