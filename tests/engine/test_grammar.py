"""What may come next is what fits the grammar, told by the ids alone."""

from __future__ import annotations

import gc
import json
import weakref
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, decoders, models
from tokenizers import Tokenizer as Backend

from tessella.core.errors import BadRequest
from tessella.engine.grammar import (
    MAX_FORCED_CHARS,
    MAX_REMEMBERED,
    Grammar,
    open_grammar,
)
from tessella.engine.tokenizer import Tokenizer
from tessella.engine.toy import TOY_VOCAB, toy_backend
from tests.engine.noise import (
    BARE_SPM,
    BYTES,
    JSON_OBJECT,
    TOKENIZERS,
    WORDY,
    WORDY_TOKENS,
    answer,
    lark,
    may_come,
    schema,
    shown,
)


@pytest.fixture
def untried(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Grammars that are known to be harmless compile at once. What would have been tried."""
    tried: list[str] = []

    def trust(definition: str, tokens: int) -> str:
        tried.append(definition)
        return ""

    monkeypatch.setattr("tessella.engine.grammar.try_grammar", trust)
    return tried


@pytest.mark.usefixtures("untried")
def test_an_end_may_come_exactly_where_the_text_is_whole() -> None:
    grammar = open_grammar(BYTES, schema({"type": "integer"}))
    for text, whole in ((b"", False), (b"-", False), (b"-1", True), (b"-12", True)):
        grammar.rebuild(text)
        assert grammar.may_end is whole
        assert not grammar.complete
        assert (may_come(grammar, BYTES) >= BYTES.eos_ids) is whole
        assert whole or not may_come(grammar, BYTES) & BYTES.eos_ids


@pytest.mark.usefixtures("untried")
def test_a_text_that_nothing_can_follow_is_complete() -> None:
    grammar = open_grammar(BYTES, JSON_OBJECT)
    grammar.rebuild(b"{}")
    assert grammar.complete
    assert may_come(grammar, BYTES) == BYTES.eos_ids
    with pytest.raises(BadRequest, match="does not fit"):
        grammar.advance(ord(" "))
    with pytest.raises(BadRequest, match="no token"):
        grammar.allowed(TOY_VOCAB, ())


@pytest.mark.usefixtures("untried")
def test_rows_and_special_tokens_without_text_never_come() -> None:
    grammar = open_grammar(WORDY, lark("start: /(.|\\n)*/"))
    mask = grammar.allowed(len(WORDY_TOKENS) + 40, ())
    barred = (~mask).nonzero().flatten().tolist()
    ends = [len(WORDY_TOKENS) - 3, len(WORDY_TOKENS) - 1]
    textless = [*ends, *range(len(WORDY_TOKENS), len(mask))]
    # A byte that begins no character cannot come either.
    assert [one for one in barred if one >= 256] == textless
    assert mask[len(WORDY_TOKENS) - 2], "<think> is text"
    assert grammar.allowed(100, ends).shape == (100,)


@pytest.mark.usefixtures("untried")
def test_a_character_of_several_bytes_is_not_left_open() -> None:
    grammar = open_grammar(BYTES, lark('start: "é日" | "é"'))
    for at, byte in enumerate("é日".encode()):
        assert byte in may_come(grammar, BYTES)
        assert grammar.may_end == (at == 2)
        grammar.advance(byte)
    assert grammar.complete


@pytest.mark.usefixtures("untried")
def test_tokens_of_the_same_text_may_both_come() -> None:
    grammar = open_grammar(BARE_SPM, lark("start: /[a-z]+/"))
    same = {one for one in range(BARE_SPM.vocab_size) if BARE_SPM.piece(one) == b"h"}
    assert len(same) == 2
    assert may_come(grammar, BARE_SPM) >= same


@pytest.mark.usefixtures("untried")
@pytest.mark.parametrize("tokenizer", TOKENIZERS.values(), ids=TOKENIZERS)
def test_the_text_that_is_shown_fits_to_its_first_space(tokenizer: Tokenizer) -> None:
    wanted = [" hi", "hi", "  hi"]
    for at, text in enumerate(wanted):
        grammar = open_grammar(tokenizer, lark(f"start: {json.dumps(text)}"))
        assert shown(tokenizer, answer(tokenizer, grammar, at)) == text
    both = open_grammar(tokenizer, lark('start: " "? "hi"'))
    for seed in range(6):
        both.rebuild([])
        assert shown(tokenizer, answer(tokenizer, both, seed)) in wanted


@pytest.mark.usefixtures("untried")
def test_a_text_that_is_forced_has_the_tokens_of_the_vocabulary() -> None:
    grammar = open_grammar(WORDY, lark('start: "hello<|end|>name"'))
    ids = answer(WORDY, grammar, 0)
    assert shown(WORDY, ids) == "hello<|end|>name"
    assert WORDY.token(ids[0]) == "hello"
    assert WORDY.token(ids[-1]) == "name"


@pytest.mark.usefixtures("untried")
def test_of_a_long_constant_only_the_beginning_is_read_for_a_token(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = []
    encode = Tokenizer.encode_plain

    def noted(self: Tokenizer, text: str, *, begins: bool = True) -> list[int]:
        asked.append(len(text))
        return encode(self, text, begins=begins)

    monkeypatch.setattr(Tokenizer, "encode_plain", noted)
    text = "hello <|end|> \u00e9 " * 12
    grammar = open_grammar(WORDY, schema({"const": text}))
    assert json.loads(shown(WORDY, answer(WORDY, grammar, 0))) == text
    assert 0 < max(asked) <= MAX_FORCED_CHARS < len(text)


steps = st.lists(st.integers(0, 2**16), max_size=40)


def walk(grammar: Grammar, tokenizer: Tokenizer, choices: list[int]) -> list[int]:
    """Ids that were allowed one after the other, by their number among those that are."""
    ids: list[int] = []
    for choice in choices:
        fits = sorted(may_come(grammar, tokenizer) - tokenizer.eos_ids)
        if not fits:
            break
        ids.append(fits[choice % len(fits)])
        grammar.advance(ids[-1])
    return ids


_TREE = {"properties": {"é": {"type": "integer"}, "children": {"items": {"$ref": "#"}}}}
GRAMMARS = {
    "object": JSON_OBJECT,
    "enum": schema({"enum": ["red", "grün", "青", "青空", 5, None, ["x"]]}),
    "tree": schema({"type": "object", "additionalProperties": False, **_TREE}),
    "text": lark("start: /[a-zé]{2,5}( 日)?/"),
}


@pytest.fixture(scope="module")
def opened() -> Callable[[str, str], Grammar]:
    held: dict[tuple[str, str], Grammar] = {}

    def one(where: str, name: str) -> Grammar:
        if (where, name) not in held:
            held[where, name] = open_grammar(TOKENIZERS[where], GRAMMARS[name])
        held[where, name].rebuild([])
        return held[where, name]

    return one


@settings(deadline=None, max_examples=60)
@given(
    where=st.sampled_from(sorted(TOKENIZERS)),
    name=st.sampled_from(sorted(GRAMMARS)),
    choices=steps,
)
def test_what_a_mask_allows_the_grammar_takes(
    opened: Callable[[str, str], Grammar], where: str, name: str, choices: list[int]
) -> None:
    tokenizer, grammar = TOKENIZERS[where], opened(where, name)
    ids = walk(grammar, tokenizer, choices)
    for one in sorted(may_come(grammar, tokenizer) - tokenizer.eos_ids)[:: max(1, len(choices))]:
        grammar.rebuild([*ids, one])


@settings(deadline=None, max_examples=40)
@given(where=st.sampled_from(sorted(TOKENIZERS)), choices=steps, kept=st.integers(0, 40))
def test_a_grammar_is_a_function_of_its_ids(
    opened: Callable[[str, str], Grammar], where: str, choices: list[int], kept: int
) -> None:
    tokenizer, grammar = TOKENIZERS[where], opened(where, "tree")
    seen = []
    ids: list[int] = []
    for choice in choices:
        seen.append(may_come(grammar, tokenizer))
        if not (taken := walk(grammar, tokenizer, [choice])):
            break
        ids += taken
    at = min(kept, len(ids))
    grammar.rebuild(ids[:at])
    if at < len(seen):
        assert may_come(grammar, tokenizer) == seen[at]


def test_a_grammar_is_tried_once_for_a_tokenizer(untried: list[str]) -> None:
    mine = Tokenizer(toy_backend())
    for _ in range(3):
        open_grammar(mine, JSON_OBJECT)
    assert len(untried) == 1
    for at in range(MAX_REMEMBERED):
        open_grammar(mine, schema({"const": at}))
    open_grammar(mine, schema({"const": MAX_REMEMBERED - 1}))
    assert len(untried) == MAX_REMEMBERED + 1
    open_grammar(mine, JSON_OBJECT)
    assert len(untried) == MAX_REMEMBERED + 2


def test_a_grammar_that_failed_its_trial_is_never_compiled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tessella.engine.grammar.try_grammar", lambda *_: "too\nmuch")
    monkeypatch.setattr("tessella.engine.grammar.LLMatcher", None)
    for _ in range(2):
        with pytest.raises(BadRequest, match=r"^response_format: too much$"):
            open_grammar(Tokenizer(toy_backend()), JSON_OBJECT)


@pytest.mark.usefixtures("untried")
def test_a_vocabulary_that_cannot_spell_the_text_is_told() -> None:
    backend = Backend(models.BPE(vocab={"a": 0, "b": 1, "<e>": 2}, merges=[]))
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken("<e>", special=True)])
    few = Tokenizer(backend, eos_ids=(2,))
    grammar = open_grammar(few, lark("start: /a[x-z]/"))
    grammar.advance(0)
    with pytest.raises(BadRequest, match="no text fits the grammar"):
        grammar.allowed(3, few.eos_ids)


@pytest.mark.usefixtures("untried")
def test_what_is_kept_for_a_tokenizer_goes_with_it() -> None:
    mine = Tokenizer(toy_backend())
    grammar = open_grammar(mine, lark('start: "ab"'))
    gone = weakref.ref(mine)
    del mine
    gc.collect()
    assert gone() is None
    assert grammar.allowed(TOY_VOCAB, ()).nonzero().flatten().tolist() == [ord("a")]
