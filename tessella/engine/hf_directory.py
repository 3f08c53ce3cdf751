"""A HuggingFace checkpoint directory: `config.json`, safetensors (one file or shards), a tokenizer.

Nothing is downloaded: what is not in the directory is missing, and said to be.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path

import torch

from tessella.core.config_keys import shown
from tessella.core.configs import eos_of, shape_of_config
from tessella.core.errors import BadWeights, InputError
from tessella.core.shapes import ModelShape
from tessella.core.tensors import MIB
from tessella.engine.checkpoint import TensorInfo
from tessella.engine.safetensors_file import SafetensorsFile
from tessella.engine.tokenizer import Tokenizer
from tessella.engine.tokenizer_json import read_tokenizer
from tessella.engine.weights_file import read_small

# A config is some kilobytes; an index has a line a tensor.
MAX_JSON_BYTES = 8 * MIB
# A shard is a few GB: more of them than this is no model, and each one holds a file descriptor.
MAX_SHARDS = 500

_SINGLE = "model.safetensors"
_INDEX = "model.safetensors.index.json"
_SHARD = re.compile(r"model-(\d{5})-of-(\d{5})\.safetensors")


class HfDirectory:
    """A `Checkpoint` in a directory. See `open_hf_directory`."""

    def __init__(self, path: Path, config: Mapping[str, object], shape: ModelShape) -> None:
        self.path = path
        self.shape = shape
        self._config = config
        self._files: list[SafetensorsFile] = []
        self._holder: dict[str, SafetensorsFile] = {}

    def open_files(self) -> None:
        """Open every weights file. Raises BadWeights naming the file that is missing or torn."""
        listed = _listed_by_index(self.path)
        for name in _weight_files(self.path, listed):
            file = SafetensorsFile(self.path / name)
            self._files.append(file)
            for tensor in file.tensors:
                if tensor in self._holder:
                    first = self._holder[tensor].path.name
                    raise BadWeights(f"{file.path}: {tensor} is in {first} too")
                self._holder[tensor] = file
        for tensor, name in (listed or {}).items():
            holder = self._holder.get(tensor)
            if holder is None or holder.path.name != name:
                raise BadWeights(f"{self.path / name} holds no {shown(tensor)}; {_INDEX} says so")

    @cached_property
    def tensors(self) -> Mapping[str, TensorInfo]:
        """All tensors of the files, by name."""
        return {name: info for file in self._files for name, info in file.tensors.items()}

    @cached_property
    def eos_ids(self) -> frozenset[int]:
        """The union over config.json, generation_config.json and the tokenizer.

        The tokenizer is read for it: ask only where answers end.
        """
        generation = self.path / "generation_config.json"
        said = read_json(generation) if generation.exists() else {}
        more = self.tokenizer().eos_ids
        return eos_of(self._config, said, more=more, vocab=self.shape.vocab)

    def read(self, name: str, into: torch.Tensor) -> None:
        """See `Checkpoint.read`."""
        holder = self._holder.get(name)
        if holder is None:
            raise BadWeights(f"{self.path} holds no tensor {name}")
        holder.read(name, into)

    def tokenizer(self) -> Tokenizer:
        """The tokenizer, read once. Raises BadWeights if its files are missing or unreadable."""
        return self._tokenizer

    @cached_property
    def _tokenizer(self) -> Tokenizer:
        return read_tokenizer(self.path)

    def close(self) -> None:
        """Close the files. Closing twice is no error."""
        for file in self._files:
            file.close()


def open_hf_directory(path: Path) -> HfDirectory:
    """Open a checkpoint directory: `model.safetensors`, or shards with or without their index.

    The caller closes it. Raises BadWeights naming the file that is missing or wrong, and
    UnsupportedModel for what the engine does not have.
    """
    if not path.is_dir():
        raise BadWeights(f"{path} is not a directory")
    config = read_json(path / "config.json")
    try:
        shape = shape_of_config(config)
    except InputError as exc:
        raise type(exc)(f"{path / 'config.json'}: {exc}") from exc
    directory = HfDirectory(path, config, shape)
    try:
        directory.open_files()
    except BaseException:
        directory.close()
        raise
    return directory


def read_json(path: Path) -> dict[str, object]:
    """A file that holds one JSON object. Raises BadWeights naming it."""
    try:
        loaded = json.loads(read_small(path, MAX_JSON_BYTES))
    except (ValueError, RecursionError) as exc:
        raise BadWeights(f"{path} is not valid JSON: {exc}") from exc
    if not isinstance(loaded, dict):
        raise BadWeights(f"{path} is not a JSON object")
    return loaded


def _listed_by_index(path: Path) -> dict[str, str] | None:
    """Tensor to file name, or None without an index, or where one file holds everything."""
    index = path / _INDEX
    if (path / _SINGLE).exists() or not index.exists():
        return None
    listed = read_json(index).get("weight_map")
    if not isinstance(listed, dict) or not listed:
        raise BadWeights(f"{index}: weight_map is missing")
    for name in listed.values():
        # The index is a stranger's file: it may not point outside its directory.
        if not isinstance(name, str) or name in ("", ".", "..") or Path(name).name != name:
            raise BadWeights(f"{index}: {shown(name)} is not a file name")
    return listed


def _weight_files(path: Path, listed: Mapping[str, str] | None) -> list[str]:
    if listed is not None:
        names = sorted(set(listed.values()))
    elif (path / _SINGLE).exists():
        names = [_SINGLE]
    else:
        names = _shards_without_index(path)
    if len(names) > MAX_SHARDS:
        raise BadWeights(f"{path} has {len(names)} weights files, at most {MAX_SHARDS}")
    return names


def _shards_without_index(path: Path) -> list[str]:
    found = sorted(entry.name for entry in path.iterdir() if _SHARD.fullmatch(entry.name))
    if not found:
        raise BadWeights(f"{path / _SINGLE} is missing, and there are no shards of it")
    for name in _all_shards(found):
        if name not in found:
            raise BadWeights(f"{path / name} is missing")
    return found


def _all_shards(found: Iterable[str]) -> Iterable[str]:
    totals = {match[2] for name in found if (match := _SHARD.fullmatch(name))}
    for total in sorted(totals):
        for number in range(1, min(int(total), MAX_SHARDS) + 1):
            yield f"model-{number:05d}-of-{total}.safetensors"
