"""A tokenizer from a GGUF header: byte-level BPE (`gpt2`) or SentencePiece (`llama`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tokenizers import (
    AddedToken,
    Regex,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
)
from tokenizers import (
    Tokenizer as Backend,
)

from tessella.core.config_keys import shown
from tessella.core.errors import BadWeights, UnsupportedModel
from tessella.engine.chat_template import ChatTemplate
from tessella.engine.tokenizer import Tokenizer

# SentencePiece's own limit is 16. Every cut of a token is tried, so that there must be one.
MAX_MERGED_CHARS = 256

_PREFIX = "tokenizer.ggml."
# Values of `token_type`.
_UNKNOWN, _CONTROL, _USER_DEFINED = 2, 3, 4
_NORMAL = 1

_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_LLAMA3_SPLIT = _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}" + _REST
_QWEN2_SPLIT = _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}" + _REST
# Control tokens that end an answer in the families that use them. A header names one at most, and
# some templates end a turn with one and a text with another.
_END_MARKERS = frozenset(
    {"<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|eom_id|>", "<|end_of_text|>"}
)
_EOS_KEYS = ("eos_token_id", "eot_token_id", "eom_token_id")
_NAMES = {
    "bos_token": "bos_token_id",
    "eos_token": "eos_token_id",
    "unk_token": "unknown_token_id",
    "pad_token": "padding_token_id",
}


@dataclass(frozen=True, slots=True)
class _Vocabulary:
    """The `tokenizer.ggml` pairs, checked."""

    metadata: Mapping[str, object]
    tokens: list[str]
    types: list[int]

    def flag(self, key: str, default: bool) -> bool:
        value = self.metadata.get(_PREFIX + key, default)
        if not isinstance(value, bool):
            raise BadWeights(f"{_PREFIX}{key} must be true or false, not {shown(value)}")
        return value

    def token_id(self, key: str) -> int | None:
        value = self.metadata.get(_PREFIX + key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise BadWeights(f"{_PREFIX}{key} must be a token's id, not {shown(value)}")
        # llama.cpp too passes over an id that there is no token for.
        return value if value < len(self.tokens) else None

    def token(self, key: str) -> str | None:
        one = self.token_id(key)
        return None if one is None else self.tokens[one]

    def ids(self) -> dict[str, int]:
        found = {token: one for one, token in enumerate(self.tokens)}
        if len(found) != len(self.tokens):
            raise BadWeights(f"{_PREFIX}tokens holds the same token twice")
        return found


def tokenizer_of_gguf(metadata: Mapping[str, object]) -> Tokenizer:
    """The tokenizer that a header describes; `tokenizer.*` arrays are lists.

    Raises BadWeights for pairs that are missing or malformed and UnsupportedModel for a kind of
    tokenizer that we do not have, naming the key.
    """
    vocabulary = _vocabulary(metadata)
    kind = metadata.get(f"{_PREFIX}model")
    if kind == "gpt2":
        backend = _byte_level(vocabulary)
    elif kind == "llama":
        backend = _sentencepiece(vocabulary)
    else:
        raise UnsupportedModel(f"{_PREFIX}model {shown(kind)} is not supported")
    _add_special_tokens(backend, vocabulary)
    _add_marks(backend, vocabulary, sentencepiece=kind == "llama")
    special = {name: text for name, key in _NAMES.items() if (text := vocabulary.token(key))}
    return Tokenizer(
        backend,
        template=_template(metadata),
        special_tokens=special,
        eos_ids=_eos_ids(vocabulary),
    )


def _template(metadata: Mapping[str, object]) -> ChatTemplate | None:
    source = metadata.get("tokenizer.chat_template")
    if not isinstance(source, str):
        return None
    with_tools = metadata.get("tokenizer.chat_template.tool_use")
    return ChatTemplate(source, tool_source=with_tools if isinstance(with_tools, str) else None)


def _vocabulary(metadata: Mapping[str, object]) -> _Vocabulary:
    tokens = _strings(metadata, "tokens")
    types = metadata.get(f"{_PREFIX}token_type", [_NORMAL] * len(tokens))
    if not isinstance(types, list) or len(types) != len(tokens):
        raise BadWeights(f"{_PREFIX}token_type must have a type for each token")
    return _Vocabulary(metadata, tokens, types)


def _strings(metadata: Mapping[str, object], key: str) -> list[str]:
    values = metadata.get(_PREFIX + key)
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise BadWeights(f"{_PREFIX}{key} must be an array of strings")
    return values


def _byte_level(vocabulary: _Vocabulary) -> Backend:
    pre = vocabulary.metadata.get(f"{_PREFIX}pre", "default")
    merges = [_pair(merge) for merge in _strings(vocabulary.metadata, "merges")]
    backend = Backend(_bpe(vocabulary, merges, ignore_merges=pre == "llama-bpe"))
    match pre:
        case "smollm":
            steps = [pre_tokenizers.Digits(individual_digits=True), _bytes(use_regex=True)]
        case "gpt-2" | "default":
            steps = [_bytes(use_regex=True)]
        case "llama-bpe":
            steps = [_split(_LLAMA3_SPLIT), _bytes(use_regex=False)]
        case "qwen2":
            backend.normalizer = normalizers.NFC()
            steps = [_split(_QWEN2_SPLIT), _bytes(use_regex=False)]
        case _:
            raise UnsupportedModel(f"{_PREFIX}pre {shown(pre)} is not supported")
    backend.pre_tokenizer = pre_tokenizers.Sequence(steps)
    backend.decoder = decoders.ByteLevel()
    return backend


def _bpe(
    vocabulary: _Vocabulary, merges: list[tuple[str, str]], **options: bool | str | None
) -> models.BPE:
    try:
        return models.BPE(vocab=vocabulary.ids(), merges=merges, **options)
    except BadWeights:
        raise
    except Exception as exc:  # the library raises nothing narrower
        raise BadWeights(f"{_PREFIX}merges does not fit the tokens: {exc}") from exc


def _pair(merge: str) -> tuple[str, str]:
    left, _, right = merge.partition(" ")
    return left, right


def _bytes(*, use_regex: bool) -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=use_regex)


def _split(pattern: str) -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Split(Regex(pattern), behavior="isolated")


def _sentencepiece(vocabulary: _Vocabulary) -> Backend:
    backend = Backend(
        _bpe(
            vocabulary,
            _merges_of_scores(vocabulary),
            unk_token=vocabulary.token("unknown_token_id"),
            fuse_unk=True,
            byte_fallback=True,
        )
    )
    prefix = vocabulary.flag("add_space_prefix", True)
    backend.pre_tokenizer = pre_tokenizers.Metaspace(
        replacement="▁", prepend_scheme="first" if prefix else "never", split=False
    )
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    backend.decoder = decoders.Sequence(
        [*steps, decoders.Strip(content=" ", left=1, right=0)] if prefix else steps
    )
    return backend


def _merges_of_scores(vocabulary: _Vocabulary) -> list[tuple[str, str]]:
    """Every cut of every token, the best score first: SentencePiece scores as the order of BPE."""
    if f"{_PREFIX}merges" in vocabulary.metadata:
        return [_pair(merge) for merge in _strings(vocabulary.metadata, "merges")]
    scores = vocabulary.metadata.get(f"{_PREFIX}scores")
    if not isinstance(scores, list) or len(scores) != len(vocabulary.tokens):
        raise BadWeights(f"{_PREFIX}scores must have a score for each token")
    ids = vocabulary.ids()
    found: list[tuple[float, int, int, str, str]] = []
    for token, score, kind in zip(vocabulary.tokens, scores, vocabulary.types, strict=True):
        if kind != _NORMAL or len(token) > MAX_MERGED_CHARS:
            continue
        cuts = [(token[:at], token[at:]) for at in range(1, len(token))]
        known = [(left, right) for left, right in cuts if left in ids and right in ids]
        known.sort(key=lambda pair: (ids[pair[0]], ids[pair[1]]))
        found.extend((score, len(left), len(right), left, right) for left, right in known)
    found.sort(key=lambda entry: entry[:3], reverse=True)
    return [(left, right) for *_, left, right in found]


def _add_special_tokens(backend: Backend, vocabulary: _Vocabulary) -> None:
    typed = list(zip(vocabulary.tokens, vocabulary.types, strict=True))
    special = [token for token, kind in typed if kind in (_UNKNOWN, _CONTROL) and token]
    plain = [token for token, kind in typed if kind == _USER_DEFINED and token]
    backend.add_special_tokens(
        [AddedToken(token, special=True, normalized=False) for token in special]
    )
    backend.add_tokens([AddedToken(token, special=False, normalized=False) for token in plain])
    if backend.get_vocab_size() != len(vocabulary.tokens):
        raise BadWeights(f"{_PREFIX}tokens and {_PREFIX}token_type are at odds")


def _add_marks(backend: Backend, vocabulary: _Vocabulary, *, sentencepiece: bool) -> None:
    """The marks around an encoded text, where the header asks for them or its kind implies them."""
    begins = sentencepiece or vocabulary.metadata.get(f"{_PREFIX}pre") == "llama-bpe"
    first = vocabulary.token("bos_token_id") if vocabulary.flag("add_bos_token", begins) else None
    last = vocabulary.token("eos_token_id") if vocabulary.flag("add_eos_token", False) else None
    if first is None and last is None:
        return
    marks = [token for token in (first, last) if token is not None]
    backend.post_processor = processors.TemplateProcessing(
        single=[*([first] if first else []), "$A", *([last] if last else [])],
        special_tokens=[(token, backend.token_to_id(token)) for token in dict.fromkeys(marks)],
    )


def _eos_ids(vocabulary: _Vocabulary) -> set[int]:
    named = {vocabulary.token_id(key) for key in _EOS_KEYS} - {None}
    marked = {
        one
        for one, (token, kind) in enumerate(zip(vocabulary.tokens, vocabulary.types, strict=True))
        if kind == _CONTROL and token in _END_MARKERS
    }
    return {one for one in named if one is not None} | marked
