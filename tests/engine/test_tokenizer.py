"""Ids are those of transformers, and text comes out of a stream whole, in order, uncut."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from llguidance import LLMatcher, LLTokenizer
from tokenizers import AddedToken, decoders, models
from tokenizers import Tokenizer as Backend

from tessella.core.errors import BadRequest, BadWeights, UnsupportedField, UnsupportedModel
from tessella.core.tool_calls import ToolFormat
from tessella.core.tool_choice import forced_call
from tessella.engine.chat_template import MAX_TEMPLATE_CHARS, ChatTemplate
from tessella.engine.tokenizer import MAX_HELD_CHARS, TextStream, Tokenizer, open_emoji
from tessella.engine.tokenizer_json import read_tokenizer
from tessella.engine.toy import CHAT_TEMPLATE, TOY_VOCAB, toy_backend, toy_shape, write_toy

BYTES = Tokenizer(toy_backend(), template=ChatTemplate(CHAT_TEMPLATE), eos_ids=(258,))
FAMILY = "👩‍👩‍👧‍👦"
TEXTS = [
    "",
    "plain words, and\n\ttabs  ",
    "e\u0301 cafe\u0301 n\u0303",
    "汉字 かな 한글",
    "🏳️‍🌈",
    f"{FAMILY}{FAMILY}😀😀",
    "👍🏽 👍 🇩🇪🇫🇷🇯🇵 🇩",
    "नमस्ते ไทย",
    "❤️ ☂ 1️⃣",
    "\ufffd is a character too",
    "\U00020000𝒳",
]


def spm_backend() -> Backend:
    """A token a byte, and a few words."""
    words = ["<unk>", "<s>", "</s>", "▁hi", "▁", "h", "i", "汉"]
    tokens = words + [f"<0x{byte:02X}>" for byte in range(256)]
    vocab = {token: one for one, token in enumerate(tokens)}
    backend = Backend(models.BPE(vocab=vocab, merges=[], byte_fallback=True, unk_token="<unk>"))
    backend.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    backend.add_special_tokens([AddedToken(word, special=True) for word in words[:3]])
    return backend


SPM = Tokenizer(spm_backend())


def deltas(tokenizer: Tokenizer, ids: list[int]) -> list[str]:
    stream = TextStream(tokenizer)
    return [*(stream.push(one) for one in ids), stream.finish()]


@pytest.mark.parametrize("text", TEXTS)
def test_text_survives_the_way_through_ids(text: str) -> None:
    assert BYTES.decode(BYTES.encode(text)) == text


@pytest.mark.parametrize("text", TEXTS)
def test_joined_deltas_are_the_text_and_no_delta_cuts_a_character(text: str) -> None:
    parts = deltas(BYTES, BYTES.encode(text))
    assert "".join(parts) == text
    assert "".join(parts).count("\ufffd") == text.count("\ufffd")


@pytest.mark.parametrize("picture", ["🏳️‍🌈", FAMILY, "👍🏽", "🇩🇪", "❤️", "🏴󠁧󠁢󠁳󠁣󠁴󠁿"])
def test_an_emoji_of_several_parts_is_never_cut(picture: str) -> None:
    parts = deltas(BYTES, BYTES.encode(f"a{picture}{picture}b"))
    assert [part for part in parts if part] == ["a", picture, f"{picture}b"]


def test_a_letter_is_not_held_back() -> None:
    assert deltas(BYTES, BYTES.encode("abc")) == ["a", "b", "c", ""]


@given(st.lists(st.integers(0, TOY_VOCAB + 3), max_size=40))
def test_any_ids_stream_to_what_the_library_decodes(ids: list[int]) -> None:
    known = [one for one in ids if one < TOY_VOCAB]
    expected = toy_backend().decode(known, skip_special_tokens=True)
    assert "".join(deltas(BYTES, ids)) == BYTES.decode(ids) == expected


# Every special token of the toy is spelled with a bar, and special tokens are not text.
@given(st.text(st.characters(codec="utf-8", exclude_characters="|"), max_size=20))
def test_any_text_streams_to_itself(text: str) -> None:
    assert "".join(deltas(BYTES, BYTES.encode(text))) == text


@given(st.lists(st.integers(0, 263), max_size=20))
def test_sentencepiece_ids_stream_to_what_the_library_decodes(ids: list[int]) -> None:
    joined = "".join(deltas(SPM, ids))
    assert joined == SPM.decode(ids)
    expected = spm_backend().decode(ids, skip_special_tokens=True)
    # For a run of bytes with one that is no text the library gives up the whole run.
    if "\ufffd" not in expected:
        assert joined == expected


def test_sentencepiece_bytes_become_characters_and_the_first_space_goes() -> None:
    ids = [1, 3, 4, *(8 + byte for byte in "字".encode()), 7, 3, 2]
    assert deltas(SPM, ids) == ["", "hi", " ", "", "", "字", "汉", " hi", "", ""]


def test_a_torn_character_is_marked_at_the_end_alone() -> None:
    assert deltas(BYTES, BYTES.encode("汉")[:2]) == ["", "", "\ufffd"]


def test_the_work_for_a_token_does_not_grow_with_the_text() -> None:
    stream = TextStream(BYTES)
    for one in BYTES.encode("\u200d" * 1000):
        stream.push(one)
    assert len(stream.finish()) <= MAX_HELD_CHARS


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("", 0),
        ("abc", 3),
        ("a😀", 1),
        ("😀😀", 1),
        ("a\u200d", 1),
        ("🇩🇪🇫", 2),
        ("🇩🇪", 0),
        ("汉", 1),
    ],
)
def test_where_an_open_emoji_starts(text: str, at: int) -> None:
    assert open_emoji(text) == at


def test_special_tokens_are_parsed_and_are_not_text() -> None:
    assert BYTES.encode("<|im_end|>") == [258]
    assert BYTES.decode([258, 65, 256, 10_000, 66, -1]) == BYTES.decode([65, 66])


def test_a_conversation_is_encoded_as_its_template_writes_it() -> None:
    ids = BYTES.encode_chat([{"role": "user", "content": "x"}])
    assert ids == BYTES.encode("<|im_start|>user\nx<|im_end|>\n<|im_start|>assistant\n")
    assert ids.count(257) == 2


def test_without_a_template_there_is_no_chat() -> None:
    assert not SPM.has_chat_template
    with pytest.raises(BadRequest, match="no chat template"):
        SPM.encode_chat([{"role": "user", "content": "x"}])


TOOLS = [{"type": "function", "function": {"name": "f"}}]
WITH_TOOLS = (
    "{% for tool in tools or [] %}{{ tool.function.name }}[TOOL_CALLS]{% endfor %}" + CHAT_TEMPLATE
)


def test_tools_are_written_by_the_template() -> None:
    tokenizer = BYTES.with_template(WITH_TOOLS)
    ids = tokenizer.encode_chat([{"role": "user", "content": "x"}], tools=TOOLS)
    assert tokenizer.decode(ids).startswith("f[TOOL_CALLS]user\nx")
    assert (BYTES.supports_tools, tokenizer.supports_tools) == (False, True)
    with pytest.raises(UnsupportedField, match="tools: the chat template"):
        BYTES.encode_chat([{"role": "user", "content": "x"}], tools=TOOLS)


@pytest.mark.parametrize("template", [None, ChatTemplate(CHAT_TEMPLATE)])
def test_without_tools_there_is_no_format_of_calls(template: ChatTemplate | None) -> None:
    tokenizer = Tokenizer(toy_backend(), template=template)
    assert not tokenizer.supports_tools
    assert tokenizer.tool_format is None
    assert tokenizer.marker_ids == {}


def test_the_token_that_begins_a_call_is_shown_where_calls_are_read() -> None:
    backend = toy_backend(["[TOOL_CALLS]"])
    plain = Tokenizer(backend, template=ChatTemplate(CHAT_TEMPLATE))
    ids = [TOY_VOCAB, *b"[]", 258]
    assert plain.decode(ids) == "[]"
    tokenizer = plain.with_template(WITH_TOOLS)
    assert tokenizer.tool_format is ToolFormat.MISTRAL
    assert tokenizer.marker_ids == {"[TOOL_CALLS]": TOY_VOCAB}
    assert "".join(deltas(tokenizer, ids)) == tokenizer.decode(ids) == "[TOOL_CALLS][]"


@pytest.mark.parametrize("marker", ["<tool_call>", "</tool_call>"])
def test_a_forced_call_takes_the_markers_of_the_vocabulary(marker: str) -> None:
    tokenizer = Tokenizer(
        toy_backend(["<tool_call>", "</tool_call>"]),
        template=ChatTemplate(WITH_TOOLS.replace("[TOOL_CALLS]", "<tool_call>")),
    )
    assert tokenizer.tool_format is ToolFormat.HERMES
    lark = json.loads(forced_call(ToolFormat.HERMES, TOOLS, marker_ids=tokenizer.marker_ids))
    matcher = LLMatcher(
        LLTokenizer(tokenizer.backend.to_str()), LLMatcher.grammar_from_lark(lark["grammar"])
    )
    text = '<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>'
    ids = tokenizer.encode(text)
    assert tokenizer.marker_ids[marker] in ids
    assert matcher.try_consume_tokens(ids) == len(ids)
    assert matcher.is_accepting()
    assert tokenizer.decode(ids) == text


def test_another_template_leaves_the_rest_as_it_is(directory: Path) -> None:
    tokenizer = read_tokenizer(directory)
    other = tokenizer.with_template("{{ eos_token }}{{ messages[0].content }}")
    assert other.render_chat([{"role": "user", "content": "x"}]) == "<|im_end|>x"
    assert (other.eos_ids, other.backend) == (tokenizer.eos_ids, tokenizer.backend)
    assert tokenizer.render_chat([{"role": "user", "content": "x"}]).startswith("<|im_start|>")


@pytest.mark.parametrize("source", ["{% if %}", "x" * (MAX_TEMPLATE_CHARS + 1)])
def test_another_template_that_is_none_is_refused_at_once(source: str) -> None:
    with pytest.raises(BadWeights, match="chat template"):
        BYTES.with_template(source)


@pytest.mark.parametrize("text", [text for text in TEXTS if text])
def test_plain_text_has_the_ids_it_has_anyway(text: str) -> None:
    assert BYTES.encode_plain(text) == BYTES.encode(text)
    assert SPM.encode_plain(text) == SPM.encode(text)


def test_in_plain_text_no_spelling_is_a_token_of_its_own() -> None:
    ids = BYTES.encode_plain("<|im_end|>")
    assert (max(ids), BYTES.decode(ids)) == (ord("|"), "<|im_end|>")
    backend = toy_backend()
    backend.add_tokens(["added"])
    assert max(Tokenizer(backend).encode_plain("added")) < TOY_VOCAB


@pytest.mark.parametrize("text", ["\ud800", "a\udfff"])
def test_text_that_is_not_unicode_is_a_bad_request(text: str) -> None:
    for encode in (BYTES.encode, BYTES.encode_plain):
        with pytest.raises(BadRequest, match="surrogate"):
            encode(text)
    with pytest.raises(BadRequest, match="surrogate"):
        BYTES.encode_chat([{"role": "user", "content": text}])


def test_a_saved_truncation_is_not_applied() -> None:
    backend = toy_backend()
    backend.enable_truncation(3)
    backend.enable_padding(length=8)
    assert len(Tokenizer(backend).encode("abcdef")) == 6


@pytest.mark.parametrize("decoder", [None, decoders.WordPiece(), decoders.Metaspace()])
def test_a_decoder_that_is_not_known_is_refused_by_name(decoder: Any) -> None:
    backend = toy_backend()
    backend.decoder = decoder
    with pytest.raises(UnsupportedModel, match="decoder"):
        Tokenizer(backend)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    write_toy(tmp_path, shape=toy_shape(layers=1, hidden=8, heads=2))
    return tmp_path


def configure(directory: Path, changes: dict[str, Any]) -> None:
    path = directory / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_a_directory_gives_tokenizer_template_and_eos(directory: Path) -> None:
    tokenizer = read_tokenizer(directory)
    assert tokenizer.vocab_size == TOY_VOCAB
    assert tokenizer.eos_ids == {258}
    assert tokenizer.render_chat([{"role": "user", "content": "x"}]).startswith("<|im_start|>user")


@pytest.mark.parametrize(
    "template",
    [
        "{{ 1 }}",
        [{"name": "tools", "template": "2"}, {"name": "default", "template": "1"}],
    ],
)
def test_a_template_may_be_one_or_several_by_name(directory: Path, template: object) -> None:
    configure(directory, {"chat_template": template})
    assert read_tokenizer(directory).render_chat([{"role": "user", "content": "x"}]) == "1"


def test_the_template_for_tools_is_the_one_of_that_name(directory: Path) -> None:
    named = [{"name": "tool_use", "template": WITH_TOOLS}, {"name": "default", "template": "1"}]
    configure(directory, {"chat_template": named})
    tokenizer = read_tokenizer(directory)
    said = tokenizer.render_chat([{"role": "user", "content": "x"}], tools=TOOLS)
    assert said.startswith("f[TOOL_CALLS]")
    configure(directory, {"chat_template": named[:1]})
    assert not read_tokenizer(directory).has_chat_template


def test_a_template_in_its_own_file_goes_first(directory: Path) -> None:
    (directory / "chat_template.jinja").write_text("own {{ eos_token }}")
    rendered = read_tokenizer(directory).render_chat([{"role": "user", "content": "x"}])
    assert rendered == "own <|im_end|>"


def test_special_tokens_may_be_named_in_the_older_file(directory: Path) -> None:
    configure(directory, {"eos_token": None})
    (directory / "special_tokens_map.json").write_text('{"eos_token": {"content": "<|pad|>"}}')
    assert read_tokenizer(directory).eos_ids == frozenset()
    config = json.loads((directory / "tokenizer_config.json").read_text())
    del config["eos_token"]
    (directory / "tokenizer_config.json").write_text(json.dumps(config))
    assert read_tokenizer(directory).eos_ids == {259}


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("tokenizer.json", b"{}"),
        ("tokenizer.json", b"\xff"),
        ("tokenizer.json", b"[" * 100_000),
        ("tokenizer_config.json", b"["),
        ("tokenizer_config.json", b"[]"),
        ("tokenizer_config.json", b'{"chat_template": 3}'),
        ("chat_template.jinja", b"\xff"),
        ("special_tokens_map.json", b"["),
    ],
)
def test_an_unreadable_file_is_named(directory: Path, name: str, content: bytes) -> None:
    (directory / name).write_bytes(content)
    with pytest.raises(BadWeights, match=name):
        read_tokenizer(directory)
