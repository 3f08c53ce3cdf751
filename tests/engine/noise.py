"""Vocabularies of every kind, and a model of noise that answers in them under a grammar."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import torch

from tessella.core.sampling import Sampling
from tessella.engine.grammar import Grammar
from tessella.engine.pieces import byte_alphabet
from tessella.engine.sampler import choose
from tessella.engine.tokenizer import TextStream, Tokenizer
from tessella.engine.tokenizer_gguf import tokenizer_of_gguf
from tessella.engine.toy import toy_backend

P = "tokenizer.ggml."
MERGES = ["h e", "l l", "he ll", "hell o", "n a", "na m", "nam e", "Ġ {", '{ "', "Ã ©", "å ħ"]
WORDS = [merge.replace(" ", "") for merge in MERGES]
WORDY_TOKENS = [*byte_alphabet().values(), *WORDS, "<|end|>", "<think>", "<|endoftext|>"]
SPM_WORDS = ["▁", "h", "i", "{", '"', "▁h", "hi", "▁hi", "▁{", "日"]
SPM_TOKENS = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *SPM_WORDS]
SPM_HEADER: dict[str, Any] = {
    P + "model": "llama",
    P + "tokens": SPM_TOKENS,
    P + "scores": [0.0] * 259 + [-float(at) for at in range(len(SPM_WORDS))],
    P + "token_type": [2, 3, 3] + [6] * 256 + [1] * len(SPM_WORDS),
    P + "bos_token_id": 1,
    P + "eos_token_id": 2,
    P + "unknown_token_id": 0,
}

BYTES = Tokenizer(toy_backend(), eos_ids=(256, 258))
WORDY = tokenizer_of_gguf(
    {
        P + "model": "gpt2",
        P + "tokens": WORDY_TOKENS,
        P + "token_type": [1] * (256 + len(WORDS)) + [3, 4, 3],
        P + "merges": MERGES,
        P + "eos_token_id": 256 + len(WORDS),
    }
)
SPM = tokenizer_of_gguf(SPM_HEADER)
BARE_SPM = tokenizer_of_gguf(SPM_HEADER | {P + "add_space_prefix": False})
TOKENIZERS = {"bytes": BYTES, "wordy": WORDY, "spm": SPM, "bare spm": BARE_SPM}

JSON_OBJECT = '{"type": "json_object"}'


def schema(one: Any) -> str:
    return json.dumps({"type": "json_schema", "schema": one})


def lark(text: str) -> str:
    return json.dumps({"type": "lark", "grammar": text})


def closers(tokenizer: Tokenizer) -> list[int]:
    pieces = ((one, tokenizer.piece(one)) for one in range(tokenizer.vocab_size))
    return [one for one, piece in pieces if piece in {b'"', b"}", b"]"}]


def answer(tokenizer: Tokenizer, grammar: Grammar, seed: int, most: int = 600) -> list[int]:
    """What a model of noise says, which closes what is open the more often the longer it talks."""
    generator = torch.Generator().manual_seed(seed)
    vocab, ends = tokenizer.vocab_size + 5, tokenizer.eos_ids
    closing = torch.zeros(vocab)
    closing[[*closers(tokenizer), *ends]] = 1.0
    ids: list[int] = []
    while not grammar.complete:
        assert len(ids) < most, shown(tokenizer, ids)
        chosen = choose(
            torch.randn(vocab, generator=generator) + closing * len(ids) / 16,
            prompt=(),
            answer=ids,
            sampling=Sampling(temperature=1.0, seed=seed),
            eos_ids=ends,
            position=len(ids),
            allowed=grammar.allowed(vocab, ends),
        ).id
        if chosen in ends:
            break
        grammar.advance(chosen)
        ids.append(chosen)
    assert grammar.may_end
    return ids


def shown(tokenizer: Tokenizer, ids: Sequence[int]) -> str:
    stream = TextStream(tokenizer)
    return "".join([stream.push(one) for one in ids]) + stream.finish()


def may_come(grammar: Grammar, tokenizer: Tokenizer) -> set[int]:
    mask = grammar.allowed(tokenizer.vocab_size, tokenizer.eos_ids)
    return set(mask.nonzero().flatten().tolist())
