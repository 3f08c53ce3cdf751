"""A GGUF header gives the tokenizer of the model it was made from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tessella.core.errors import BadWeights, InputError, UnsupportedModel
from tessella.engine.pieces import byte_alphabet
from tessella.engine.tokenizer_gguf import tokenizer_of_gguf
from tessella.engine.weights import open_checkpoint

P = "tokenizer.ggml."
ALPHABET = byte_alphabet()
MERGES = ["h e", "l l", "he ll", "hell o", "1 2", "12 3"]
WORDS = [merge.replace(" ", "") for merge in MERGES]
BYTE_LEVEL: dict[str, Any] = {
    P + "model": "gpt2",
    P + "tokens": [*ALPHABET.values(), *WORDS, "<|end|>", "<think>", "<|endoftext|>"],
    P + "token_type": [1] * (256 + len(WORDS)) + [3, 4, 3],
    P + "merges": MERGES,
    P + "eos_token_id": 256 + len(WORDS),
    P + "bos_token_id": 256 + len(WORDS),
    "tokenizer.chat_template": "{{ bos_token }}{{ messages[0].content }}{{ eos_token }}",
}
SPM_TOKENS = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
SPM_WORDS = {"▁": -9.0, "h": -8.0, "i": -7.0, "▁h": -3.0, "hi": -1.0, "▁hi": -2.0}
SPM: dict[str, Any] = {
    P + "model": "llama",
    P + "tokens": [*SPM_TOKENS, *SPM_WORDS],
    P + "scores": [0.0] * len(SPM_TOKENS) + list(SPM_WORDS.values()),
    P + "token_type": [2, 3, 3] + [6] * 256 + [1] * len(SPM_WORDS),
    P + "bos_token_id": 1,
    P + "eos_token_id": 2,
    P + "unknown_token_id": 0,
}


def spelled(metadata: dict[str, Any], text: str) -> list[str | None]:
    tokenizer = tokenizer_of_gguf(metadata)
    return [tokenizer.token(one) for one in tokenizer.encode(text)]


@pytest.mark.parametrize(
    ("pre", "text", "tokens"),
    [
        ("gpt-2", "hello", ["hello"]),
        ("gpt-2", "123", ["123"]),
        ("default", "123", ["123"]),
        ("smollm", "123", ["1", "2", "3"]),
        ("qwen2", "123", ["1", "2", "3"]),
        ("llama-bpe", "1231", ["<|end|>", "123", "1"]),
        ("gpt-2", "e\u0301", ["e", "Ì", "ģ"]),
        ("qwen2", "e\u0301", ["Ã", "©"]),
        ("gpt-2", "hello<|end|>hello", ["hello", "<|end|>", "hello"]),
        ("gpt-2", "<think>", ["<think>"]),
        ("gpt-2", " a", ["Ġ", "a"]),
    ],
)
def test_text_is_split_as_the_vocabulary_was_learned(
    pre: str, text: str, tokens: list[str]
) -> None:
    assert spelled(BYTE_LEVEL | {P + "pre": pre}, text) == tokens


def test_control_tokens_are_no_text_and_user_defined_ones_are() -> None:
    tokenizer = tokenizer_of_gguf(BYTE_LEVEL)
    assert tokenizer.decode(tokenizer.encode("a<|end|><think>b")) == "a<think>b"


def test_eos_ids_are_those_named_and_the_known_end_markers() -> None:
    tokenizer = tokenizer_of_gguf(BYTE_LEVEL | {P + "eot_token_id": 5, P + "eom_token_id": 9999})
    assert {tokenizer.token(one) for one in tokenizer.eos_ids} == {
        "<|end|>",
        "<|endoftext|>",
        BYTE_LEVEL[P + "tokens"][5],
    }


def test_a_header_may_have_a_template_for_tools() -> None:
    extra = {"tokenizer.chat_template.tool_use": "{{ tools | length }}"}
    tokenizer = tokenizer_of_gguf(BYTE_LEVEL | extra)
    assert tokenizer.supports_tools
    assert tokenizer.render_chat([{"role": "user", "content": "x"}], tools=[{}]) == "1"
    assert not tokenizer_of_gguf(BYTE_LEVEL).supports_tools


def test_the_template_and_the_names_it_uses_come_from_the_header() -> None:
    tokenizer = tokenizer_of_gguf(BYTE_LEVEL)
    assert tokenizer.render_chat([{"role": "user", "content": "x"}]) == "<|end|>x<|end|>"


def test_marks_are_added_where_the_header_says_so() -> None:
    marked = BYTE_LEVEL | {P + "add_bos_token": True, P + "add_eos_token": True}
    assert spelled(marked, "a") == ["<|end|>", "a", "<|end|>"]
    llama3 = BYTE_LEVEL | {P + "pre": "llama-bpe", P + "add_bos_token": False}
    assert spelled(llama3, "a") == ["a"]


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("hi", ["<s>", "▁hi"]),
        ("hihi", ["<s>", "▁hi", "hi"]),
        ("hi hi", ["<s>", "▁hi", "▁hi"]),
        ("hé", ["<s>", "▁h", "<0xC3>", "<0xA9>"]),
        ("hi</s>hi", ["<s>", "▁hi", "</s>", "hi"]),
    ],
)
def test_sentencepiece_merges_by_score_and_falls_back_to_bytes(
    text: str, tokens: list[str]
) -> None:
    assert spelled(SPM, text) == tokens
    tokenizer = tokenizer_of_gguf(SPM)
    assert tokenizer.decode(tokenizer.encode(text)) == text.replace("</s>", "")


def test_sentencepiece_without_a_prefix_space_or_marks() -> None:
    bare = SPM | {P + "add_space_prefix": False, P + "add_bos_token": False}
    assert spelled(bare, "hi") == ["hi"]
    assert tokenizer_of_gguf(bare).decode([tokenizer_of_gguf(bare).encode(" hi")[0]]) == " hi"


@pytest.mark.parametrize(
    ("changes", "error", "named"),
    [
        ({P + "model": "bert"}, UnsupportedModel, "tokenizer.ggml.model 'bert'"),
        ({P + "model": None}, UnsupportedModel, "tokenizer.ggml.model None"),
        ({P + "pre": "chameleon"}, UnsupportedModel, "tokenizer.ggml.pre 'chameleon'"),
        ({P + "tokens": None}, BadWeights, "tokenizer.ggml.tokens must be"),
        ({P + "tokens": [1, 2]}, BadWeights, "tokenizer.ggml.tokens must be"),
        ({P + "token_type": [1]}, BadWeights, "tokenizer.ggml.token_type"),
        ({P + "merges": None}, BadWeights, "tokenizer.ggml.merges must be"),
        ({P + "merges": ["q q"]}, BadWeights, "tokenizer.ggml.merges does not fit"),
        ({P + "add_bos_token": 1}, BadWeights, "tokenizer.ggml.add_bos_token"),
        ({P + "eos_token_id": -1}, BadWeights, "tokenizer.ggml.eos_token_id"),
        ({P + "eos_token_id": "x"}, BadWeights, "tokenizer.ggml.eos_token_id"),
    ],
)
def test_a_header_out_of_its_rules_is_refused_by_its_key(
    changes: dict[str, Any], error: type[InputError], named: str
) -> None:
    with pytest.raises(error) as caught:
        tokenizer_of_gguf(BYTE_LEVEL | changes)
    assert named in str(caught.value)


@pytest.mark.parametrize("scores", [None, [1.0]])
def test_sentencepiece_needs_a_score_for_each_token(scores: object) -> None:
    with pytest.raises(BadWeights, match=r"tokenizer\.ggml\.scores"):
        tokenizer_of_gguf(SPM | {P + "scores": scores})


def test_a_token_that_comes_twice_is_refused() -> None:
    tokens = [*ALPHABET.values(), "a"]
    header = {P + "model": "gpt2", P + "tokens": tokens, P + "merges": []}
    with pytest.raises(BadWeights, match="the same token twice"):
        tokenizer_of_gguf(header)


TEXTS = [
    "Hello world",
    "  two  spaces\n\n\ttabs ",
    "def f(x):\n    return x**2  # 汉字\n",
    "🏳️‍🌈👩‍👩‍👧‍👦 😀",
    "e\u0301 cafe\u0301",
    "1234 + 5678 = 6912",
    "don't we'll I'M",
    "<|im_start|>user<|im_end|>",
    "日本語テキスト नमस्ते \u200b\u00a0x\x00\x01",
]


@pytest.mark.slow
def test_the_real_models_ids_are_those_of_transformers(smollm2_gguf: Path) -> None:
    from transformers import AutoTokenizer

    theirs: Any = AutoTokenizer.from_pretrained(smollm2_gguf.parent, gguf_file=smollm2_gguf.name)
    checkpoint = open_checkpoint(smollm2_gguf)
    ours = checkpoint.tokenizer()
    assert {ours.token(one) for one in checkpoint.eos_ids} == {"<|im_end|>", "<|endoftext|>"}
    for text in TEXTS:
        ids = ours.encode(text)
        assert ids == theirs(text)["input_ids"]
        if "<|" not in text:
            assert ours.encode_plain(text) == ids
        assert ours.decode(ids) == theirs.decode(ids, skip_special_tokens=True)
    chat = [{"role": "user", "content": text} for text in TEXTS]
    for ask in (True, False):
        expected = theirs.apply_chat_template(chat, add_generation_prompt=ask)["input_ids"]
        assert ours.encode_chat(chat, add_generation_prompt=ask) == expected
    checkpoint.close()
