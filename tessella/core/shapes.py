"""What a model is made of, as numbers: enough to build it, split it and price its memory.

A `ModelShape` is read from a `config.json` or a GGUF header by `core.configs`, and it is all
that a decoder, a planner or a tracker knows about an architecture: families differ by data.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from tessella.core.layers import LayerRange


class DType(Enum):
    """Element types that are served and sent. The value is the word used in config and wire."""

    F32 = "f32"
    F16 = "f16"
    BF16 = "bf16"

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return 4 if self is DType.F32 else 2


class RopeKind(Enum):
    """How rotary frequencies are stretched beyond the trained context."""

    NONE = "none"
    LINEAR = "linear"
    LLAMA3 = "llama3"
    YARN = "yarn"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rope:
    """Rotary embedding: base `theta`, and the scaling of its frequencies.

    `factor` stretches; `low_freq_factor`, `high_freq_factor` and `original_context` belong to
    llama3; `beta_fast`, `beta_slow`, `attention_factor` and `original_context` to yarn.
    """

    theta: float = 10_000.0
    kind: RopeKind = RopeKind.NONE
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_context: int = 0
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    attention_factor: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """One decoder-only transformer with RMSNorm, rotary attention and a gated MLP (SiLU)."""

    family: str
    """`llama` or `qwen2`: the checkpoint's word, for messages; code branches on the rest."""
    layers: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    context: int
    """Positions the model was made for."""
    norm_eps: float = 1e-5
    rope: Rope = Rope()
    tied: bool = False
    """Whether the head is the embedding, transposed."""
    qkv_bias: bool = False
    out_bias: bool = False
    mlp_bias: bool = False

    @property
    def whole(self) -> LayerRange:
        """Every layer."""
        return LayerRange(0, self.layers)

    @property
    def layer_params(self) -> int:
        """Elements of one layer: attention, MLP and two norms."""
        q, kv = self.heads * self.head_dim, self.kv_heads * self.head_dim
        attention = self.hidden * (2 * q + 2 * kv)
        mlp = 3 * self.hidden * self.intermediate
        biases = (
            (q + 2 * kv) * self.qkv_bias
            + self.hidden * self.out_bias
            + (2 * self.intermediate + self.hidden) * self.mlp_bias
        )
        return attention + mlp + biases + 2 * self.hidden

    @property
    def embedding_params(self) -> int:
        """Elements of the token embedding; an untied head has as many."""
        return self.vocab * self.hidden

    def kv_values(self, layers: int) -> int:
        """Elements of keys and values that one position costs over this many layers."""
        return 2 * layers * self.kv_heads * self.head_dim
