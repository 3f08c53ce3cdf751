"""From the tensors of a checkpoint to the fused weights of a decoder, one tensor at a time.

A tensor is read straight into its place where that place is laid out as the checkpoint is;
otherwise it passes through a staging buffer. All layers share one: a buffer for each tensor would
leave a hole in the heap beside each, a quarter of the weights in all. The tables at the ends, the
largest tensors by far, come first: their staging is gone before the layers fill the memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from tessella.core.layers import LayerRange
from tessella.core.parameters import EMBEDDING, FINAL_NORM, HEAD
from tessella.engine.checkpoint import Checkpoint
from tessella.engine.model import Decoder, Layer, new_weight
from tessella.engine.rope import Rotary


class DecoderReader:
    """Reads one decoder. `note` is called with the HF name and the place of each tensor held."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        dtype: torch.dtype,
        device: torch.device,
        note: Callable[[str, Tensor], None],
    ) -> None:
        self._checkpoint = checkpoint
        self._dtype = dtype
        self._device = device
        self._note = note
        self._staging = torch.empty(0, dtype=dtype)

    @torch.inference_mode()
    def read(self, layers: LayerRange) -> Decoder:
        """The layers of the range, and the ends that belong to it."""
        shape = self._checkpoint.shape
        first, last = layers.start == 0, layers.stop == shape.layers
        embedding = self._table(EMBEDDING) if first else None
        if not last:
            head = None
        elif shape.tied:
            head = embedding if embedding is not None else self._table(EMBEDDING)
        else:
            head = self._table(HEAD)
        return Decoder(
            shape=shape,
            norm=self._vector([FINAL_NORM], [shape.hidden]) if last else None,
            layers={index: self.layer(index) for index in layers},
            rotary=Rotary(shape, self._dtype, self._device),
            embedding=embedding,
            head=head,
        )

    def layer(self, index: int) -> Layer:
        """One layer alone; the staging buffer stays for the next."""
        return Layer(**dict(self.layer_parts(index)))

    @torch.inference_mode()
    def layer_parts(self, index: int) -> Iterator[tuple[str, Any]]:
        """The fields of a `Layer`, each of them read as it is asked for."""
        prefix, shape = f"model.layers.{index}.", self._checkpoint.shape
        q, kv = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
        hidden, inner = shape.hidden, shape.intermediate
        qkv = [f"{prefix}self_attn.{each}_proj" for each in "qkv"]
        out = [f"{prefix}self_attn.o_proj"]
        gate_up = [f"{prefix}mlp.{each}_proj" for each in ("gate", "up")]
        down = [f"{prefix}mlp.down_proj"]
        yield "attention_norm", self._vector([f"{prefix}input_layernorm.weight"], [hidden])
        yield "qkv", self._weight(qkv, hidden, [q, kv, kv])
        yield "qkv_bias", self._bias(qkv, [q, kv, kv]) if shape.qkv_bias else None
        yield "out", self._weight(out, q, [hidden])
        yield "out_bias", self._bias(out, [hidden]) if shape.out_bias else None
        yield "mlp_norm", self._vector([f"{prefix}post_attention_layernorm.weight"], [hidden])
        yield "gate_up", self._weight(gate_up, hidden, [inner, inner])
        yield "gate_up_bias", self._bias(gate_up, [inner, inner]) if shape.mlp_bias else None
        yield "down", self._weight(down, inner, [hidden])
        yield "down_bias", self._bias(down, [hidden]) if shape.mlp_bias else None

    def _table(self, name: str) -> Tensor:
        """The embedding or the head, `[hidden, vocab]`."""
        shape = self._checkpoint.shape
        table = new_weight(shape.hidden, shape.vocab, self._dtype, self._device)
        self._fill(name, table.t())
        self._staging = torch.empty(0, dtype=self._dtype)
        return table

    def _weight(self, names: Sequence[str], inputs: int, outputs: Sequence[int]) -> Tensor:
        """Projections side by side, `[inputs, sum of outputs]`."""
        weight = new_weight(inputs, sum(outputs), self._dtype, self._device)
        for name, place in zip(names, weight.t().split_with_sizes(list(outputs)), strict=True):
            self._fill(f"{name}.weight", place)
        return weight

    def _bias(self, names: Sequence[str], sizes: Sequence[int]) -> Tensor:
        return self._vector([f"{name}.bias" for name in names], sizes)

    def _vector(self, names: Sequence[str], sizes: Sequence[int]) -> Tensor:
        vector = torch.empty(sum(sizes), dtype=self._dtype, device=self._device)
        for name, place in zip(names, vector.split_with_sizes(list(sizes)), strict=True):
            self._fill(name, place)
        return vector

    def _fill(self, name: str, place: Tensor) -> None:
        """Read a tensor into a view of the shape that the checkpoint has it in."""
        if place.is_contiguous() and place.device.type == "cpu":
            self._checkpoint.read(name, place)
        else:
            if self._staging.numel() < place.numel():
                self._staging = torch.empty(place.numel(), dtype=self._dtype)
            staging = self._staging[: place.numel()].view(place.shape)
            self._checkpoint.read(name, staging)
            place.copy_(staging)
        self._note(name, place)
