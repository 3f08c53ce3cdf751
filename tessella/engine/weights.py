"""Open a model on disk, whatever its format, and hold it to what its own shape promises."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path

import torch

from tessella.core.errors import BadWeights
from tessella.core.parameters import EMBEDDING, HEAD, parameters_of
from tessella.core.shapes import ModelShape
from tessella.engine.checkpoint import Checkpoint, TensorInfo
from tessella.engine.gguf_file import open_gguf
from tessella.engine.hf_directory import open_hf_directory
from tessella.engine.tokenizer import Tokenizer


class TiedCheckpoint:
    """A checkpoint whose head is its embedding: one parameter, whatever the files hold.

    A redundant head beside the embedding is ignored. Files that kept only the head (some writers
    drop the second of two shared tensors by the alphabet) give it as the embedding.
    """

    def __init__(self, inner: Checkpoint) -> None:
        self._inner = inner
        self._embedding = EMBEDDING if EMBEDDING in inner.tensors else HEAD

    @property
    def shape(self) -> ModelShape:
        """See `Checkpoint.shape`."""
        return self._inner.shape

    @property
    def eos_ids(self) -> frozenset[int]:
        """See `Checkpoint.eos_ids`."""
        return self._inner.eos_ids

    @cached_property
    def tensors(self) -> Mapping[str, TensorInfo]:
        """All tensors of the files but the head."""
        found = dict(self._inner.tensors)
        head = found.pop(HEAD, None)
        if head is not None and self._embedding == HEAD:
            found[EMBEDDING] = TensorInfo(EMBEDDING, head.shape, head.stored)
        return found

    def read(self, name: str, into: torch.Tensor) -> None:
        """See `Checkpoint.read`."""
        if name == HEAD:
            raise BadWeights(f"{HEAD} is tied to {EMBEDDING}: read that one")
        self._inner.read(self._embedding if name == EMBEDDING else name, into)

    def tokenizer(self) -> Tokenizer:
        """See `Checkpoint.tokenizer`."""
        return self._inner.tokenizer()

    def close(self) -> None:
        """See `Checkpoint.close`."""
        self._inner.close()


def open_checkpoint(path: Path) -> Checkpoint:
    """Open a HuggingFace directory or a `.gguf` file. The caller closes it.

    Every tensor that the shape implies is there with exactly that shape. Raises BadWeights naming
    the file, key or tensor at fault, and UnsupportedModel for what the engine does not have.
    """
    opened: Checkpoint
    if path.is_dir():
        opened = open_hf_directory(path)
    elif path.suffix.lower() == ".gguf":
        opened = open_gguf(path)
    elif path.exists():
        raise BadWeights(f"{path} is neither a checkpoint directory nor a .gguf file")
    else:
        raise BadWeights(f"{path} does not exist")
    try:
        checked = TiedCheckpoint(opened) if opened.shape.tied else opened
        _check_parameters(path, checked)
    except BaseException:
        opened.close()
        raise
    return checked


def _check_parameters(path: Path, checkpoint: Checkpoint) -> None:
    tensors = checkpoint.tensors
    for name, shape in parameters_of(checkpoint.shape).items():
        found = tensors.get(name)
        if found is None:
            untied = " and the embedding is not tied" if name == HEAD else ""
            raise BadWeights(f"{path}: {name} is missing{untied}")
        if found.shape != shape:
            raise BadWeights(f"{path}: {name} has shape {list(found.shape)}, wanted {list(shape)}")
