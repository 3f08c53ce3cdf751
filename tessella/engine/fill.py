"""Fill-in-the-middle: the ids that ask a model of code for what stands between two texts."""

from __future__ import annotations

from dataclasses import dataclass

from tessella.core.errors import BadRequest
from tessella.core.sampling import MAX_STOP_IDS
from tessella.engine.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class _Marks:
    """The tokens of one family, around the prefix and the suffix, in the order they are written."""

    prefix: str
    suffix: str
    middle: str
    stops: tuple[str, ...]


_FAMILIES = (
    _Marks(
        "<|fim_prefix|>",
        "<|fim_suffix|>",
        "<|fim_middle|>",
        ("<|fim_pad|>", "<|repo_name|>", "<|file_sep|>", "<|endoftext|>"),
    ),  # Qwen2.5-Coder
    _Marks(
        "<fim_prefix>",
        "<fim_suffix>",
        "<fim_middle>",
        ("<fim_pad>", "<file_sep>", "<|endoftext|>"),
    ),  # StarCoder, Granite
    _Marks("▁<PRE>", "▁<SUF>", "▁<MID>", ("▁<EOT>",)),  # CodeLlama
    _Marks(
        "<｜fim▁begin｜>",
        "<｜fim▁hole｜>",
        "<｜fim▁end｜>",
        ("<|EOT|>", "<｜end▁of▁sentence｜>"),
    ),  # DeepSeek-Coder
)


def encode_fill(tokenizer: Tokenizer, prefix: str, suffix: str) -> list[int]:
    """The prompt after which the model writes what goes between the two texts.

    Special tokens spelled out in the texts are only text. Raises BadRequest if the model's
    vocabulary has no tokens for it.
    """
    _, (begin, hole, end) = _marks(tokenizer)
    start = [one for one in tokenizer.encode("") if one not in tokenizer.eos_ids]
    before = tokenizer.encode_plain(prefix)
    after = tokenizer.encode_plain(suffix, begins=False)
    return [*start, begin, *before, hole, *after, end]


def fill_stop_ids(tokenizer: Tokenizer) -> tuple[int, ...]:
    """The ids that end a filling, beside the model's own; MAX_STOP_IDS at most.

    Raises BadRequest if the model's vocabulary has no tokens for it.
    """
    marks, _ = _marks(tokenizer)
    found = (tokenizer.backend.token_to_id(stop) for stop in marks.stops)
    return tuple(one for one in found if one is not None)[:MAX_STOP_IDS]


def _marks(tokenizer: Tokenizer) -> tuple[_Marks, list[int]]:
    for marks in _FAMILIES:
        texts = (marks.prefix, marks.suffix, marks.middle)
        found = (tokenizer.backend.token_to_id(text) for text in texts)
        ids = [one for one in found if one is not None]
        if len(ids) == len(texts):
            return marks, ids
    raise BadRequest("prefix and suffix: this model has no fill-in-the-middle tokens")
