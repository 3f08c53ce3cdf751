"""Long prompts are read beside everything else, a few at a time, and those that cannot fit not at
all."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from tessella.core.completions import ChatMessage, CompletionRequest, Fill
from tessella.core.errors import Busy, ContextTooLong
from tessella.core.ids import ModelId
from tessella.engine.chat_template import ChatTemplate
from tessella.engine.tokenizer import Tokenizer
from tessella.engine.toy import CHAT_TEMPLATE, SPECIAL_TOKENS, TOY_VOCAB, toy_backend
from tessella.worker import prompts as prompts_module
from tessella.worker.limits import DECLARED, InputLimits
from tessella.worker.prompts import INLINE_CHARS, MAX_READING, READ_TIMEOUT, Prompts

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


async def test_long_prompts_are_read_a_few_at_a_time_and_waited_for_not_for_ever(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    limiter = trio.CapacityLimiter(MAX_READING)
    monkeypatch.setattr(prompts_module, "_reading", limiter)
    others: list[Any] = [object() for _ in range(MAX_READING)]
    for other in others:
        limiter.acquire_on_behalf_of_nowait(other)
    with pytest.raises(Busy, match="too many long prompts"):
        await reader(500_000).read(asking(prompt="x" * (INLINE_CHARS + 1)))
    assert trio.current_time() == pytest.approx(READ_TIMEOUT)
    # Whoever asks for little does not wait for them.
    assert (await reader(64).read(asking(prompt="x"))).prompt
