from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import pytest
import torch
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import MockClock

from tessella.core.addresses import PeerAddress
from tessella.core.errors import BadRequest, Busy, StoreUnavailable
from tessella.core.identity import Identity
from tessella.core.messages import Open, Token
from tessella.core.sampling import Sampling
from tessella.core.session import Lease
from tessella.core.shapes import DType
from tessella.engine.sampler import Choice
from tessella.engine.shard import Shard
from tessella.engine.tokenizer import Tokenizer
from tessella.engine.toy import TOY_VOCAB
from tessella.engine.weights import open_checkpoint
from tessella.worker.counters import Counters
from tessella.worker.tail import COMPILE_TIMEOUT, Tail, compile_grammar
from tessella.worker.terms import Terms

PROMPT = [1, 2, 3]
EOS = 258
PEERS = [PeerAddress(Identity(bytes([at]) * 32).peer_id, ("/ip4/10.0.0.1/tcp/1",)) for at in (1, 2)]


class Head:
    """A shard whose hidden states are the logits, so that a test chooses the next token."""

    def logits(self, row: torch.Tensor) -> torch.Tensor:
        return row


def wanting(*ids: int) -> torch.Tensor:
    rows = torch.zeros(len(ids), TOY_VOCAB)
    for row, token_id in zip(rows, ids, strict=True):
        row[token_id] = 9.0
    return rows


@pytest.fixture(scope="session")
def tokenizer(toy_weights: Path) -> Tokenizer:
    return open_checkpoint(toy_weights).tokenizer()


class Told:
    """A tail, and what it told."""

    def __init__(self, tokenizer: Tokenizer, opened: Open, **sampling: Any) -> None:
        self.tokens: list[Token] = []
        self.counters = Counters()
        chosen = Sampling(**sampling)
        lease = Lease(opened.session_id, opened.epoch, opened.capacity)
        terms = Terms(opened, lease, DType.F32, PROMPT, chosen)
        self.bill_error: Exception | None = None
        self.billed: list[int] = []
        """How many tokens had been told each time that the work was billed."""
        self.tail = Tail(terms, tokenizer, frozenset({EOS}), self.counters, self._say, self._bill)

    async def _bill(self) -> None:
        if self.bill_error is not None:
            raise self.bill_error
        self.billed.append(len(self.tokens))

    async def _say(self, token: Token) -> None:
        self.tokens.append(token)

    async def say_what_fits(self, count: int) -> None:
        """So many tokens of a model that likes every token as much, or until the answer ends."""
        for at in range(count):
            if self.tokens and self.tokens[-1].reason:
                break
            rows = torch.zeros(1, TOY_VOCAB)
            outcome = self.tail.finish(cast("Shard", Head()), rows, len(PROMPT) + at, True)
            await self.tail.send(outcome, 0, len(PROMPT) + at, True)

    async def step(self, wanted: Sequence[int], upto: int, sample: bool = True) -> None:
        outcome = self.tail.finish(cast("Shard", Head()), wanting(*wanted), upto, sample)
        assert isinstance(outcome, Choice) == sample
        await self.tail.send(outcome, upto - len(wanted), upto, sample)

    async def answer(self, ids: Sequence[int]) -> None:
        """The tokens of an answer, one after the other."""
        for at, token_id in enumerate(ids):
            await self.step([token_id], len(PROMPT) + at)

    @property
    def text(self) -> str:
        return "".join(token.text for token in self.tokens)


@pytest.fixture
def told(tokenizer: Tokenizer, an_open: Callable[..., Open]) -> Callable[..., Told]:
    return lambda **sampling: Told(tokenizer, an_open(PEERS, 1), **sampling)


async def test_a_chunk_within_a_prefill_gives_no_token(told: Callable[..., Told]) -> None:
    one = told(max_tokens=4)
    await one.step([7, 7], 2, sample=False)
    assert one.tokens == []
    assert one.counters.tokens_sampled == 0


async def test_the_work_is_billed_before_the_token_that_ends_the_answer(
    told: Callable[..., Told],
) -> None:
    one = told(max_tokens=3)
    await one.answer(b"abc")
    assert one.billed == [2]
    full = told(max_tokens=3)
    full.bill_error = StoreUnavailable("full")
    with pytest.raises(StoreUnavailable):
        await full.answer(b"abc")
    assert [token.reason for token in full.tokens] == ["", ""]


async def test_each_token_has_the_position_that_it_takes(told: Callable[..., Told]) -> None:
    one = told(max_tokens=3)
    await one.answer(b"abc")
    assert [token.position for token in one.tokens] == [3, 4, 5]
    assert [token.token_id for token in one.tokens] == list(b"abc")
    assert [token.reason for token in one.tokens] == ["", "", "length"]
    assert one.counters.tokens_sampled == 3


@pytest.mark.parametrize(("ignore", "reasons"), [(False, ["", "stop"]), (True, ["", ""])])
async def test_an_end_of_sequence_id_ends_the_answer_unless_it_is_ignored(
    told: Callable[..., Told], ignore: bool, reasons: list[str]
) -> None:
    one = told(max_tokens=9, ignore_eos=ignore)
    await one.answer([ord("a"), EOS])
    assert [token.reason for token in one.tokens] == reasons
    assert one.text.startswith("a")
    assert ignore or one.text == "a"


async def test_a_stop_string_over_two_tokens_ends_the_answer_and_is_not_shown(
    told: Callable[..., Told],
) -> None:
    one = told(max_tokens=9, stop=("cd",))
    await one.answer(b"abcd")
    assert one.text == "ab"
    assert one.tokens[-1].reason == "stop"


async def test_what_was_withheld_for_a_stop_string_is_shown_at_the_end(
    told: Callable[..., Told],
) -> None:
    one = told(max_tokens=3, stop=("cd",))
    await one.answer(b"abc")
    assert (one.text, one.tokens[-1].reason) == ("abc", "length")


@settings(max_examples=20)
@given(text=st.text(max_size=12).filter(lambda text: bool(text.encode())))
async def test_the_deltas_together_are_the_text(
    tokenizer: Tokenizer, an_open: Callable[..., Open], text: str
) -> None:
    data = text.encode()
    one = Told(tokenizer, an_open(PEERS, 1), max_tokens=len(data), ignore_eos=True)
    await one.answer(data)
    assert one.text == text


async def test_a_step_from_further_back_forgets_what_followed(
    told: Callable[..., Told],
) -> None:
    straight, back = told(max_tokens=4), told(max_tokens=4)
    await straight.answer(b"axyz")
    await back.answer(b"abc")
    for at, token_id in enumerate(b"xyz", start=1):
        await back.step([token_id], len(PROMPT) + at)
    assert back.tokens[3:] == straight.tokens[1:]


async def test_penalties_know_the_answer_so_far(told: Callable[..., Told]) -> None:
    one = told(max_tokens=4, presence_penalty=2.0)
    rows = torch.zeros(1, TOY_VOCAB)
    rows[0, 65], rows[0, 66] = 5.0, 4.0
    for at in range(2):
        outcome = one.tail.finish(cast("Shard", Head()), rows, len(PROMPT) + at, True)
        await one.tail.send(outcome, 0, len(PROMPT) + at, True)
    assert [token.token_id for token in one.tokens] == [65, 66]


@pytest.mark.parametrize("ignore", [False, True])
async def test_an_id_that_was_asked_for_ends_the_answer_and_is_not_shown(
    told: Callable[..., Told], ignore: bool
) -> None:
    one = told(max_tokens=9, stop_ids=(ord("c"), 256), ignore_eos=ignore)
    await one.answer(b"abc")
    assert (one.text, one.tokens[-1].reason, one.tokens[-1].token_id) == ("ab", "stop", ord("c"))
    other = told(max_tokens=9, stop_ids=(ord("c"), 256), ignore_eos=ignore)
    await other.answer([ord("a"), 256])
    assert (other.text, other.tokens[-1].reason) == ("a", "stop")


async def test_what_was_held_is_shown_before_an_id_that_ends(told: Callable[..., Told]) -> None:
    one = told(max_tokens=9, stop=("bcd",), stop_ids=(10,))
    await one.answer(b"abc\n")
    assert (one.text, one.tokens[-1].reason) == ("abc", "stop")


GREETING = '{"type": "lark", "grammar": "start: \\"hi\\" /[a-c]{2}/ | \\"h\\u00e9\\""}'
OBJECT = '{"type": "json_object"}'


async def test_a_grammar_decides_over_the_model(told: Callable[..., Told]) -> None:
    one = told(max_tokens=9, grammar=GREETING)
    for at, wanted in enumerate(b"xixb"):
        await one.step([wanted], len(PROMPT) + at)
    assert one.text == "hiab"
    assert [token.reason for token in one.tokens] == ["", "", "", "stop"]


async def test_a_grammar_that_is_cut_short_is_no_whole_answer(told: Callable[..., Told]) -> None:
    one = told(max_tokens=3, grammar=GREETING)
    await one.answer(b"hia")
    assert (one.text, one.tokens[-1].reason) == ("hia", "length")
    whole = told(max_tokens=4, grammar=GREETING)
    await whole.answer(b"hiab")
    assert whole.tokens[-1].reason == "stop"


async def test_an_end_waits_until_the_text_is_whole(told: Callable[..., Told]) -> None:
    one = told(max_tokens=9, grammar='{"type": "json_schema", "schema": {"type": "integer"}}')
    for at, wanted in enumerate([EOS, ord("7"), EOS]):
        await one.step([wanted], len(PROMPT) + at)
    assert (one.text, one.tokens[-1].reason) == ("-7", "stop")


async def test_an_id_that_ends_is_no_text_under_a_grammar_either(told: Callable[..., Told]) -> None:
    one = told(max_tokens=9, stop_ids=(65,), grammar='{"type": "lark", "grammar": "start: /BA+/"}')
    with pytest.raises(BadRequest, match="response_format"):
        await one.answer(b"BA")
    assert one.text == "B"
    whole = told(
        max_tokens=9, stop_ids=(65,), grammar='{"type": "lark", "grammar": "start: /BA*/"}'
    )
    await whole.answer(b"BA")
    assert (whole.text, whole.tokens[-1].reason) == ("B", "stop")


async def test_a_stop_string_ends_an_answer_inside_its_grammar(told: Callable[..., Told]) -> None:
    one = told(max_tokens=9, stop=("ia",), grammar=GREETING)
    await one.answer(b"hia")
    assert (one.text, one.tokens[-1].reason) == ("h", "stop")


async def test_a_step_from_further_back_takes_the_grammar_with_it(
    told: Callable[..., Told],
) -> None:
    straight, back = (told(max_tokens=9, grammar=GREETING) for _ in range(2))
    await straight.answer(b"hiba")
    await back.answer(b"hia")
    for at, token_id in enumerate(b"ba", start=2):
        await back.step([token_id], len(PROMPT) + at)
    assert back.tokens[3:] == straight.tokens[2:]
    await back.step([0xC3], len(PROMPT) + 1)
    await back.step([0xA9], len(PROMPT) + 2)
    assert [token.text for token in back.tokens[-2:]] == ["", "\u00e9"]
    assert back.tokens[-1].reason == "stop"


async def test_the_same_question_has_the_same_answer_prepared_or_not(
    told: Callable[..., Told],
) -> None:
    asked: dict[str, Any] = {"temperature": 1.0, "seed": 5, "max_tokens": 30, "grammar": OBJECT}
    first, second = told(**asked), told(**asked)
    await second.tail.prepare()
    await second.tail.prepare()
    for one in (first, second):
        await one.say_what_fits(30)
    assert len(first.tokens) > 3
    assert second.tokens == first.tokens


async def test_preparing_late_changes_nothing(told: Callable[..., Told]) -> None:
    straight, late = (told(max_tokens=9, grammar=GREETING) for _ in range(2))
    await straight.answer(b"hiba")
    await late.answer(b"hi")
    await late.tail.prepare()
    for at, token_id in enumerate(b"ba", start=2):
        await late.step([token_id], len(PROMPT) + at)
    assert late.tokens == straight.tokens


async def test_a_grammar_that_cannot_be_used_is_told_beside_the_prefill(
    told: Callable[..., Told],
) -> None:
    strange = '{"type": "json_schema", "schema": {"type": "objekt"}}'
    with pytest.raises(BadRequest, match=r"response_format: .*objekt"):
        await told(grammar=strange).tail.prepare()
    unprepared = told(grammar=strange)
    with pytest.raises(BadRequest, match="response_format"):
        await unprepared.step([1], len(PROMPT))
    await told().tail.prepare()


async def test_a_grammar_that_waits_too_long_for_a_thread_is_not_waited_for(
    tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    full = trio.CapacityLimiter(1)
    monkeypatch.setattr("tessella.worker.tail._compiling", full)
    async with full:
        with pytest.raises(Busy):
            await compile_grammar(tokenizer, OBJECT)
        assert trio.current_time() == pytest.approx(COMPILE_TIMEOUT, abs=1)
