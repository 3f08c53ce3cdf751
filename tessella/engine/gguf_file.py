"""A model in one GGUF file: its tensors by their HuggingFace names, in their HuggingFace layout.

The llama architecture is stored with the rows of every query and key head interleaved; they are
put back as they are read. Qwen2 is stored as it is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from gguf.constants import GGMLQuantizationType
from gguf.quants import dequantize

from tessella.core.config_keys import shown
from tessella.core.configs import eos_of, shape_of_gguf
from tessella.core.errors import BadWeights, InputError, UnsupportedModel
from tessella.core.parameters import EMBEDDING, FINAL_NORM, HEAD, parameters_of
from tessella.core.rope_factors import llama3_rope_of_factors
from tessella.core.shapes import ModelShape
from tessella.core.tensors import MIB
from tessella.engine.checkpoint import TensorInfo
from tessella.engine.gguf_header import GgufTensor, read_header
from tessella.engine.tokenizer import Tokenizer
from tessella.engine.tokenizer_gguf import tokenizer_of_gguf
from tessella.engine.weights_file import WeightsFile

READABLE = frozenset(
    GGMLQuantizationType[name]
    for name in ("F32", "F16", "BF16", "Q4_0", "Q4_1", "Q8_0", "Q4_K", "Q6_K")
)
ROPE_FACTORS = "rope_freqs.weight"
# Rows are dequantised so much f32 at a time: its temporaries stay in the cache of a core, and leave
# no holes to speak of in the heap.
DEQUANTISED_BYTES = MIB

_OUTER = {"token_embd.weight": EMBEDDING, "output_norm.weight": FINAL_NORM, "output.weight": HEAD}
_INNER = {
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_LAYER = re.compile(r"blk\.(\d{1,4})\.(\w+)\.(weight|bias)")
_INTERLEAVED = re.compile(r"\.self_attn\.[qk]_proj\.")


class GgufFile:
    """A `Checkpoint` in a file. See `open_gguf`."""

    def __init__(self, file: WeightsFile) -> None:
        self.path = file.path
        self._file = file
        header = read_header(file, keep=lambda _: False)
        _refuse_parts(header.metadata)
        shape = shape_of_gguf(header.metadata, tied="output.weight" not in header.tensors)
        if factors := header.tensors.pop(ROPE_FACTORS, None):
            rope = llama3_rope_of_factors(self._vector(factors), shape.rope, shape.head_dim)
            shape = replace(shape, rope=rope)
        self.shape = shape
        self._metadata = header.metadata
        self._tensors = _renamed(header.tensors, shape)

    @cached_property
    def tensors(self) -> Mapping[str, TensorInfo]:
        """All tensors of the file, by their HuggingFace names."""
        return {
            name: TensorInfo(name, tensor.shape, tensor.stored.name)
            for name, tensor in self._tensors.items()
        }

    @cached_property
    def eos_ids(self) -> frozenset[int]:
        """The union over the header's ids and the end markers of the vocabulary.

        The vocabulary is read for it: ask only where answers end.
        """
        return eos_of(more=self.tokenizer().eos_ids, vocab=self.shape.vocab)

    def read(self, name: str, into: torch.Tensor) -> None:
        """See `Checkpoint.read`. Dequantises a few rows at a time."""
        tensor = self._tensors.get(name)
        if tensor is None:
            raise BadWeights(f"{self.path} holds no tensor {name}")
        if tuple(into.shape) != tensor.shape:
            raise BadWeights(
                f"{self.path}: {name} has shape {list(tensor.shape)}, not {list(into.shape)}"
            )
        target, together = self._layout(name, tensor, into)
        units = len(target)
        step = max(1, DEQUANTISED_BYTES // 4 // (together * tensor.shape[-1]))
        for first in range(0, units, step):
            count = min(step, units - first)
            rows = self._rows(tensor, first * together, count * together)
            target[first : first + count].copy_(rows.view(target[first : first + count].shape))

    def _layout(
        self, name: str, tensor: GgufTensor, into: torch.Tensor
    ) -> tuple[torch.Tensor, int]:
        """`into` as the file orders it, and how many rows of the file one entry of that takes."""
        flat = into.view(tensor.rows, tensor.shape[-1])
        if self.shape.family != "llama" or not _INTERLEAVED.search(name):
            return flat, 1
        dim = self.shape.head_dim
        # HuggingFace rotates halves, llama.cpp pairs: a head is [2, dim / 2] against [dim / 2, 2].
        return flat.view(-1, 2, dim // 2, tensor.shape[-1]).transpose(1, 2), dim

    def _rows(self, tensor: GgufTensor, first: int, count: int) -> torch.Tensor:
        """Rows of the file as f32, [count, columns]."""
        row_bytes = tensor.size // tensor.rows
        data = self._file.take(tensor.offset + first * row_bytes, count * row_bytes)
        packed = np.frombuffer(data, dtype=np.uint8).reshape(count, row_bytes)
        values = dequantize(packed, tensor.stored)
        return torch.from_numpy(np.ascontiguousarray(values, dtype=np.float32))

    def _vector(self, tensor: GgufTensor) -> list[float]:
        if tensor.stored is not GGMLQuantizationType.F32 or len(tensor.shape) != 1:
            raise BadWeights(f"{tensor.name} is not a vector of F32")
        return [float(value) for value in self._rows(tensor, 0, 1).view(-1)]

    def tokenizer(self) -> Tokenizer:
        """The tokenizer, read once. Raises BadWeights or UnsupportedModel naming the key."""
        return self._tokenizer

    @cached_property
    def _tokenizer(self) -> Tokenizer:
        metadata = read_header(self._file, keep=lambda key: key.startswith("tokenizer.")).metadata
        try:
            return tokenizer_of_gguf(metadata)
        except InputError as exc:
            raise type(exc)(f"{self.path}: {exc}") from exc

    def close(self) -> None:
        """Close the file. Closing twice is no error."""
        self._file.close()


def open_gguf(path: Path) -> GgufFile:
    """Open a GGUF file; its header is read and checked. The caller closes it.

    Raises BadWeights or UnsupportedModel naming the file, and the key or tensor at fault.
    """
    file = WeightsFile(path)
    try:
        return GgufFile(file)
    except InputError as exc:
        file.close()
        if str(path) in str(exc):
            raise
        raise type(exc)(f"{path}: {exc}") from exc
    except BaseException:
        file.close()
        raise


def _refuse_parts(metadata: Mapping[str, object]) -> None:
    parts = metadata.get("split.count", 0)
    if parts not in (0, 1):
        raise UnsupportedModel(f"split.count = {shown(parts)}: a model in several files")


def _renamed(tensors: Mapping[str, GgufTensor], shape: ModelShape) -> dict[str, GgufTensor]:
    """Raises UnsupportedModel for a tensor that this architecture has no use for.

    To ignore one would be to compute something else than the file's model.
    """
    wanted = parameters_of(shape)
    renamed: dict[str, GgufTensor] = {}
    for tensor in tensors.values():
        name = hf_name(tensor.name)
        if name not in wanted:
            raise UnsupportedModel(
                f"the tensor {shown(tensor.name)} has no place in {shape.family}"
            )
        if tensor.stored not in READABLE:
            raise UnsupportedModel(f"{shown(tensor.name)} is of type {tensor.stored.name}")
        renamed[name] = tensor
    return renamed


def hf_name(name: str) -> str | None:
    """The HuggingFace name of a GGUF tensor, or None for one that we do not know."""
    if name in _OUTER:
        return _OUTER[name]
    match = _LAYER.fullmatch(name)
    if match is None or match[2] not in _INNER:
        return None
    return f"model.layers.{int(match[1])}.{_INNER[match[2]]}.{match[3]}"
