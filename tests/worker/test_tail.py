from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tessella.core.addresses import PeerAddress
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
from tessella.worker.tail import Tail
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
        self.tail = Tail(terms, tokenizer, frozenset({EOS}), self.counters, self._say)

    async def _say(self, token: Token) -> None:
        self.tokens.append(token)

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
