"""The decoder: llama and qwen2, told apart by data. Read it top to bottom, as a token does.

Positions of one session are rows: `x` is `[n, hidden]`, without a batch dimension. Weights are
kept as `[inputs, outputs]`, so that a layer of the network is `x @ weight`; which of the two is
contiguous in memory is the choice of `new_weight`. Sums run into `x` in place, which spares a
tensor a projection; `Decoder.run` therefore starts from a copy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from tessella.core.shapes import ModelShape
from tessella.engine.cache import Cache
from tessella.engine.rope import Rotary, rotate


def new_weight(inputs: int, outputs: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """An unfilled `[inputs, outputs]` whose longer side is contiguous.

    Multiplying one row, all a decode step does, is a walk through the matrix. Fewer and longer
    runs make it up to 1.8 times as fast with the BLAS of torch's x86 builds; many rows do not care.
    """
    if outputs > inputs:
        return torch.empty(inputs, outputs, dtype=dtype, device=device)
    return torch.empty(outputs, inputs, dtype=dtype, device=device).t()


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """Weights of one layer. Projections that read the same input are fused side by side."""

    attention_norm: Tensor
    """[hidden]"""
    qkv: Tensor
    """[hidden, (heads + 2 kv_heads) head_dim]"""
    qkv_bias: Tensor | None
    out: Tensor
    """[heads head_dim, hidden]"""
    out_bias: Tensor | None
    mlp_norm: Tensor
    """[hidden]"""
    gate_up: Tensor
    """[hidden, 2 intermediate]"""
    gate_up_bias: Tensor | None
    down: Tensor
    """[intermediate, hidden]"""
    down_bias: Tensor | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoder:
    """The layers of a range with the ends that belong to it, and the arithmetic over them."""

    shape: ModelShape
    layers: Mapping[int, Layer]
    rotary: Rotary
    embedding: Tensor | None
    """[hidden, vocab], like the head that it may also be; held with layer 0."""
    norm: Tensor | None
    """[hidden]; held with the last layer, like the head."""
    head: Tensor | None
    """[hidden, vocab]"""

    @torch.inference_mode()
    def embed(self, ids: Tensor) -> Tensor:
        """`[n]` token ids to `[n, hidden]`."""
        assert self.embedding is not None
        return self.embedding.t().index_select(0, ids)

    @torch.inference_mode()
    def run(
        self, x: Tensor, cache: Cache, layers: Iterable[int], advance: Callable[[], None]
    ) -> Tensor:
        """`[n, hidden]` through these layers, behind what the cache holds; it holds n more after.

        `advance` is called after each layer; what it raises leaves the cache at its old length.
        """
        rows, start = x.shape[0], cache.length
        cache.check_room(rows)
        turn = (self.rotary.cos[start : start + rows], self.rotary.sin[start : start + rows])
        mask = _causal_mask(rows, start, x.device) if rows > 1 else None
        x = x.clone()
        for index in layers:
            layer = self.layers[index]
            self._attention(layer, x, turn, mask, cache, index)
            self._mlp(layer, x)
            advance()
        cache.extend(rows)
        return x

    def _attention(
        self,
        layer: Layer,
        x: Tensor,
        turn: tuple[Tensor, Tensor],
        mask: Tensor | None,
        cache: Cache,
        index: int,
    ) -> None:
        shape, rows = self.shape, x.shape[0]
        heads, turned = shape.heads, shape.heads + shape.kv_heads
        y = F.rms_norm(x, (shape.hidden,), layer.attention_norm, shape.norm_eps)
        # [n, heads + 2 kv_heads, head_dim]: queries, keys, values
        qkv = _project(y, layer.qkv, layer.qkv_bias).view(rows, -1, shape.head_dim)
        qk = rotate(qkv[:, :turned], *turn)
        keys, values = cache.append(index, qk[:, heads:], qkv[:, turned:])
        y = _attend(qk[:, :heads], keys, values, mask)
        _add_projection(x, y, layer.out, layer.out_bias)

    def _mlp(self, layer: Layer, x: Tensor) -> None:
        y = F.rms_norm(x, (self.shape.hidden,), layer.mlp_norm, self.shape.norm_eps)
        gate, up = _project(y, layer.gate_up, layer.gate_up_bias).chunk(2, dim=-1)
        _add_projection(x, F.silu(gate).mul_(up), layer.down, layer.down_bias)

    @torch.inference_mode()
    def logits(self, x: Tensor) -> Tensor:
        """`[hidden]` of one position to `[vocab]` in f32."""
        assert self.norm is not None
        assert self.head is not None
        y = F.rms_norm(x.unsqueeze(0), (self.shape.hidden,), self.norm, self.shape.norm_eps)
        return torch.mm(y, self.head).squeeze(0).float()


def _project(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return torch.mm(x, weight) if bias is None else torch.addmm(bias, x, weight)


def _add_projection(x: Tensor, y: Tensor, weight: Tensor, bias: Tensor | None) -> None:
    """`x += y @ weight + bias`"""
    x.addmm_(y, weight)
    if bias is not None:
        x.add_(bias)


def _causal_mask(rows: int, start: int, device: torch.device) -> Tensor:
    """`[rows, start + rows]`: a position sees itself and all before it."""
    seen = torch.ones(rows, start + rows, dtype=torch.bool, device=device)
    return seen.tril(diagonal=start)


def _attend(queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
    """`[n, heads, head_dim]` over `[kv_heads, length, head_dim]` to `[n, heads head_dim]`."""
    rows, heads, head_dim = queries.shape
    if mask is None:
        # A single position sees everything, so the heads of a group can stand in for positions
        # of their kv head: the same sums, without asking torch to repeat keys and values.
        grouped = queries.view(1, keys.shape[0], -1, head_dim)
        seen = F.scaled_dot_product_attention(grouped, keys[None], values[None])
        return seen.reshape(1, heads * head_dim)
    seen = F.scaled_dot_product_attention(
        queries.transpose(0, 1)[None], keys[None], values[None], mask, enable_gqa=True
    )
    return seen[0].transpose(0, 1).reshape(rows, heads * head_dim)
