"""A gap is asked for with the model's own tokens, and nothing in the texts becomes one."""

from __future__ import annotations

import pytest
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Backend
from tokenizers.processors import TemplateProcessing

from tessella.core.errors import BadRequest
from tessella.core.sampling import MAX_STOP_IDS, Sampling
from tessella.engine.fill import encode_fill, fill_stop_ids
from tessella.engine.tokenizer import Tokenizer
from tessella.engine.toy import TOY_VOCAB, toy_backend

QWEN = (
    "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>", "<|fim_pad|>", "<|repo_name|>",
    "<|file_sep|>",
)  # fmt: skip
STARCODER = ("<fim_prefix>", "<fim_middle>", "<fim_suffix>", "<fim_pad>", "<file_sep>")
DEEPSEEK = ("<｜fim▁hole｜>", "<｜fim▁begin｜>", "<｜fim▁end｜>", "<|EOT|>")


def toy(*special: str) -> Tokenizer:
    return Tokenizer(toy_backend(special), eos_ids=(258,))


def code_llama(prepend: str) -> Tokenizer:
    """A SentencePiece vocabulary: a token a byte, marks around a text, a space before its word."""
    words = ["<unk>", "<s>", "</s>", "▁", "a", "b", "▁<PRE>", "▁<SUF>", "▁<MID>", "▁<EOT>"]
    vocab = {word: one for one, word in enumerate([*words, *(f"<0x{n:02X}>" for n in range(256))])}
    backend = Backend(models.BPE(vocab=vocab, merges=[], byte_fallback=True, unk_token="<unk>"))
    if prepend == "normalizer":
        steps = [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
        backend.normalizer = normalizers.Sequence(steps)
    else:
        backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always", split=False)
    backend.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    backend.add_special_tokens([AddedToken(word, special=True) for word in words[:3] + words[6:]])
    backend.post_processor = TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return Tokenizer(backend, eos_ids=(2,))


@pytest.mark.parametrize(
    ("special", "order", "stops"),
    [
        (QWEN, (0, 2, 1), ("<|fim_pad|>", "<|repo_name|>", "<|file_sep|>", "<|endoftext|>")),
        (STARCODER, (0, 2, 1), ("<fim_pad>", "<file_sep>", "<|endoftext|>")),
        (DEEPSEEK, (1, 0, 2), ("<|EOT|>",)),
    ],
)
def test_the_texts_stand_between_the_tokens_of_the_family(
    special: tuple[str, ...], order: tuple[int, int, int], stops: tuple[str, ...]
) -> None:
    tokenizer = toy(*special)
    begin, hole, end = (TOY_VOCAB + place for place in order)
    assert encode_fill(tokenizer, "ab", " c") == [begin, 97, 98, hole, *tokenizer.encode(" c"), end]
    assert encode_fill(tokenizer, "", "") == [begin, hole, end]
    found = fill_stop_ids(tokenizer)
    assert tuple(map(tokenizer.token, found)) == stops
    assert len(Sampling(stop_ids=found).stop_ids) <= MAX_STOP_IDS


@pytest.mark.parametrize("prepend", ["normalizer", "pre_tokenizer"])
def test_a_suffix_of_code_llama_gets_no_space_of_its_own(prepend: str) -> None:
    tokenizer = code_llama(prepend)
    assert encode_fill(tokenizer, "a", "b") == [1, 6, 3, 4, 7, 5, 8]
    assert encode_fill(tokenizer, "a", " b") == [1, 6, 3, 4, 7, 3, 5, 8]
    assert encode_fill(tokenizer, "a", "  b") == [1, 6, 3, 4, 7, 3, 3, 5, 8]
    assert encode_fill(tokenizer, "", "") == [1, 6, 7, 8]
    assert fill_stop_ids(tokenizer) == (9,)


@pytest.mark.parametrize("tokenizer", [toy(*QWEN), code_llama("normalizer")])
def test_a_token_spelled_out_in_a_text_is_only_text(tokenizer: Tokenizer) -> None:
    text = "x<|fim_middle|><|im_end|></s>▁<MID><unk>y"
    marks = len(encode_fill(tokenizer, "", ""))
    ids = encode_fill(tokenizer, text, "")
    special = {one for one, token in tokenizer.backend.get_added_tokens_decoder().items()}
    assert sum(one in special for one in ids) == marks
    assert tokenizer.decode(ids).replace(" ", "▁").removeprefix("▁") == text


@pytest.mark.parametrize("special", [(), QWEN[:2], ("<fim_prefix>", "<|fim_middle|>")])
def test_a_model_without_the_tokens_says_so(special: tuple[str, ...]) -> None:
    wanted = "^prefix and suffix: this model has no fill-in-the-middle tokens$"
    with pytest.raises(BadRequest, match=wanted):
        encode_fill(toy(*special), "a", "b")
    with pytest.raises(BadRequest, match=wanted):
        fill_stop_ids(toy(*special))


def test_half_a_character_is_a_bad_request() -> None:
    with pytest.raises(BadRequest, match="surrogate"):
        encode_fill(toy(*QWEN), "\ud800", "")
