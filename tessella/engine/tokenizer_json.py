"""The tokenizer of a HuggingFace directory: `tokenizer.json`, its config and its chat template."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import tokenizers

from tessella.core.config_keys import shown
from tessella.core.errors import BadWeights
from tessella.core.tensors import MIB
from tessella.engine.chat_template import ChatTemplate
from tessella.engine.tokenizer import Tokenizer
from tessella.engine.weights_file import read_small

# 256 Ki tokens and their merges, indented, are about 35 MiB.
MAX_TOKENIZER_BYTES = 128 * MIB
MAX_CONFIG_BYTES = 8 * MIB

SPECIAL_TOKENS = (
    "bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token",
)  # fmt: skip


def read_tokenizer(directory: Path) -> Tokenizer:
    """The tokenizer that lies beside the weights.

    `tokenizer.json` has to be there; without `tokenizer_config.json` there are no named special
    tokens, and without a template there is no chat. Raises BadWeights naming the file.
    """
    path = directory / "tokenizer.json"
    backend = _backend(path, read_small(path, MAX_TOKENIZER_BYTES))
    config = _optional_object(directory / "tokenizer_config.json")
    older = _optional_object(directory / "special_tokens_map.json")
    special = _special_tokens({**older, **config})
    eos = backend.token_to_id(special["eos_token"]) if "eos_token" in special else None
    return Tokenizer(
        backend,
        template=_template(directory, config),
        special_tokens=special,
        eos_ids=() if eos is None else (eos,),
    )


def _backend(path: Path, data: bytes) -> tokenizers.Tokenizer:
    try:
        return tokenizers.Tokenizer.from_str(data.decode())
    except UnicodeDecodeError as exc:
        raise BadWeights(f"{path} is not UTF-8") from exc
    except Exception as exc:  # the library raises nothing narrower
        raise BadWeights(f"{path} is not a tokenizer: {exc}") from exc


def _optional_object(path: Path) -> dict[str, object]:
    if not path.exists():
        return {}
    try:
        loaded = json.loads(read_small(path, MAX_CONFIG_BYTES))
    except (ValueError, RecursionError) as exc:
        raise BadWeights(f"{path} is not valid JSON: {exc}") from exc
    if not isinstance(loaded, dict):
        raise BadWeights(f"{path} is not a JSON object")
    return loaded


def _special_tokens(config: Mapping[str, object]) -> dict[str, str]:
    found: dict[str, str] = {}
    for name in SPECIAL_TOKENS:
        match config.get(name):
            case str(text) | {"content": str(text)}:
                found[name] = text
    return found


def _template(directory: Path, config: Mapping[str, object]) -> ChatTemplate | None:
    own_file = directory / "chat_template.jinja"
    if own_file.exists():
        try:
            return ChatTemplate(read_small(own_file, MAX_CONFIG_BYTES).decode())
        except UnicodeDecodeError as exc:
            raise BadWeights(f"{own_file} is not UTF-8") from exc
    match config.get("chat_template"):
        case None:
            return None
        case str(source):
            return ChatTemplate(source)
        case list(entries):
            return _named_template(entries)
        case other:
            where = directory / "tokenizer_config.json"
            raise BadWeights(f"{where}: chat_template must be a string, not {shown(other)}")


def _named_template(entries: list[object]) -> ChatTemplate | None:
    """Of several templates by name: `default` is for plain chat, `tool_use` for tools."""
    named: dict[str, str] = {}
    for entry in entries:
        match entry:
            case {"name": str(name), "template": str(source)}:
                named.setdefault(name, source)
    if "default" not in named:
        return None
    return ChatTemplate(named["default"], tool_source=named.get("tool_use"))
