"""Long prompts are read beside everything else, a few at a time, and those that cannot fit not at
all."""

from __future__ import annotations

from functools import partial

import pytest
import trio
from trio.testing import MockClock

from tessella.core.completions import ChatMessage, CompletionRequest, Fill
from tessella.core.errors import Busy, ContextTooLong
from tessella.core.ids import ModelId
from tessella.core.tiers import Tier
from tessella.engine.chat_template import ChatTemplate
from tessella.engine.tokenizer import Tokenizer
from tessella.engine.toy import CHAT_TEMPLATE, SPECIAL_TOKENS, TOY_VOCAB, toy_backend
from tessella.worker import prompts as prompts_module
from tessella.worker.limits import DECLARED, InputLimits
from tessella.worker.prompts import (
    INLINE_CHARS,
    MAX_READING,
    MAX_UNREAD,
    READ_TIMEOUT,
    Prompts,
)
from tessella.worker.turns import Turns

FILLING = ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>")
TOKENIZER = Tokenizer(toy_backend(FILLING), template=ChatTemplate(CHAT_TEMPLATE))
LONGEST = max(map(len, (*SPECIAL_TOKENS, *FILLING)))
asking = partial(CompletionRequest, model=ModelId("toy"))


def reader(context: int) -> Prompts:
    limits = InputLimits(context_size=context, max_input_tokens=context - 1, source=DECLARED)
    return Prompts(TOKENIZER, TOY_VOCAB + len(FILLING), limits)


@pytest.mark.parametrize(
    "request_",
    [
        asking(prompt="x" * (64 * LONGEST + 1)),
        asking(messages=(ChatMessage("user", "x" * 64 * LONGEST),)),
        asking(fill=Fill("x" * 64 * LONGEST, "x")),
    ],
    ids=["prompt", "chat", "fill"],
)
async def test_what_no_vocabulary_fits_into_the_context_is_not_read(
    request_: CompletionRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("encode", "encode_plain"):
        monkeypatch.setattr(Tokenizer, name, None)
    with pytest.raises(ContextTooLong, match=f"context of 64 tokens holds {64 * LONGEST} at most"):
        await reader(64).read(request_)


async def test_a_text_of_the_longest_tokens_is_read() -> None:
    longest = max((*SPECIAL_TOKENS, *FILLING), key=len)
    asked = await reader(64).read(asking(prompt=longest * 63))
    assert len(asked.prompt) == 63


async def test_the_loop_goes_on_while_a_long_prompt_is_read() -> None:
    asked = asking(prompt="ab cd " * 60_000)
    turns = 0

    async def turn() -> None:
        nonlocal turns
        while True:
            turns += 1
            await trio.sleep(0.001)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(turn)
        found = await reader(500_000).read(asked)
        nursery.cancel_scope.cancel()
    assert len(found.prompt) == 360_000
    # Held back by it, there would be one or two.
    assert turns > 5


LONG = "x" * (INLINE_CHARS + 1)


@pytest.fixture
async def taken(monkeypatch: pytest.MonkeyPatch) -> Turns:
    """Every place to read a long prompt in is taken."""
    turns = Turns(MAX_READING, MAX_UNREAD, "long prompts")
    monkeypatch.setattr(prompts_module, "_reading", turns)
    for _ in range(MAX_READING):
        await turns.of(Tier.VIP).acquire_on_behalf_of(None)
    return turns


async def test_long_prompts_are_read_a_few_at_a_time_and_waited_for_not_for_ever(
    taken: Turns, autojump_clock: MockClock
) -> None:
    with pytest.raises(Busy, match="too many long prompts"):
        await reader(500_000).read(asking(prompt=LONG), Tier.VIP)
    assert trio.current_time() == pytest.approx(READ_TIMEOUT)
    assert len(taken.waiting) == 0
    # Whoever asks for little does not wait for them.
    assert (await reader(64).read(asking(prompt="x"))).prompt


async def test_of_the_long_prompts_that_wait_the_better_tier_is_read_first(taken: Turns) -> None:
    order: list[Tier] = []

    async def ask(tier: Tier) -> None:
        assert len((await reader(500_000).read(asking(prompt=LONG), tier)).prompt) == len(LONG)
        order.append(tier)

    async with trio.open_nursery() as nursery:
        for at, tier in enumerate((Tier.LEECH, Tier.STANDARD, Tier.VIP), start=1):
            nursery.start_soon(ask, tier)
            while len(taken.waiting) < at:
                await trio.lowlevel.checkpoint()
        # One place comes free, and each hands it on to the next.
        taken.leave()
    assert order == [Tier.VIP, Tier.STANDARD, Tier.LEECH]
    assert taken.free == 1
