"""What the engine needs from a model on disk, whatever its format.

Tensors go by the names of the HuggingFace checkpoints (`model.layers.0.self_attn.q_proj.weight`):
a format that names or lays them out otherwise translates at its own edge.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import torch

from tessella.core.shapes import ModelShape

if TYPE_CHECKING:
    from tessella.engine.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One tensor as it is stored: `stored` is the format's own word for its element type."""

    name: str
    shape: tuple[int, ...]
    stored: str


class Checkpoint(Protocol):
    """A model on disk, opened: headers are read and checked, tensors are not."""

    @property
    def shape(self) -> ModelShape:
        """What the config or header says, checked against the tensors that are there."""

    @property
    def eos_ids(self) -> frozenset[int]:
        """Every id that ends an answer: the union over config, generation config and tokenizer."""

    @property
    def tensors(self) -> Mapping[str, TensorInfo]:
        """All tensors of the files, by name."""

    def read(self, name: str, into: torch.Tensor) -> None:
        """Fill `into` (contiguous, on the CPU, a float dtype) with a tensor, cast to its dtype.

        Reads only that tensor's bytes, with at most one tensor's worth of memory beside `into`.
        Raises BadWeights if the tensor is missing, torn, or not of the shape of `into`.
        """

    def tokenizer(self) -> Tokenizer:
        """The tokenizer and chat template that come with the weights."""

    def close(self) -> None:
        """Close the files. Closing twice is no error."""
