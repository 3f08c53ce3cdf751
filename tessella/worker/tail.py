"""The last stage: it chooses tokens, turns them into text, and knows when the answer ends."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import trio

from tessella.core.errors import Busy
from tessella.core.messages import Alternative, Token
from tessella.engine.grammar import Grammar, open_grammar
from tessella.engine.sampler import Choice, choose
from tessella.engine.shard import Shard
from tessella.engine.stops import StopStrings
from tessella.engine.tokenizer import TextStream, Tokenizer
from tessella.worker.counters import Counters
from tessella.worker.stage import Outcome
from tessella.worker.terms import Terms

if TYPE_CHECKING:
    import torch

Say = Callable[[Token], Awaitable[None]]
Bill = Callable[[], Awaitable[None]]
"""Has a proof of the stage's work on the disk when it returns."""

# Threads that compile grammars: with more of them, prompts would wait for a thread to be read in.
MAX_COMPILING = 4
# Seconds to wait for one of those, and for it: above what `open_grammar` takes at worst.
COMPILE_TIMEOUT = 30.0

_compiling = trio.CapacityLimiter(MAX_COMPILING)


async def no_bill() -> None:
    """Nobody pays."""


async def compile_grammar(tokenizer: Tokenizer, grammar: str) -> Grammar:
    """`Sampling.grammar` at its beginning, compiled in a thread.

    The first time takes a fraction of a second, later ones milliseconds. Raises BadRequest, naming
    response_format, for a grammar that cannot be used, Busy if there is no time for it.
    """
    with trio.move_on_after(COMPILE_TIMEOUT):
        return await trio.to_thread.run_sync(
            open_grammar,
            tokenizer,
            grammar,
            abandon_on_cancel=True,  # type: ignore[call-arg, unused-ignore]
            limiter=_compiling,
        )
    raise Busy("too many grammars are being compiled")


class Tail:
    """One session's end of the chain. An `Onward`.

    All it knows beyond the session's terms is the ids chosen so far, so another tail that is
    given the same ids goes on in the same way.
    """

    def __init__(
        self,
        terms: Terms,
        tokenizer: Tokenizer,
        eos_ids: frozenset[int],
        counters: Counters,
        say: Say,
        bill: Bill = no_bill,
    ) -> None:
        """`bill` is awaited before a token with a reason leaves; what it raises keeps that here."""
        self._terms = terms
        self._tokenizer = tokenizer
        self._eos_ids = eos_ids
        stop_ids = frozenset(terms.sampling.stop_ids)
        self._ends = stop_ids if terms.sampling.ignore_eos else stop_ids | eos_ids
        self._counters = counters
        self._say = say
        self._bill = bill
        self._answer: list[int] = []
        self._grammar: Grammar | None = None
        self._rewind(0)

    async def prepare(self) -> None:
        """Compile the session's grammar, if it has one: to be called beside the prefill.

        Without it the first token does, on the compute thread. Raises as `compile_grammar`.
        """
        grammar = self._terms.sampling.grammar
        if grammar and self._grammar is None:
            opened = await compile_grammar(self._tokenizer, grammar)
            self._grammar = self._grammar or opened

    def finish(self, shard: Shard, output: torch.Tensor, upto: int, sample: bool) -> Outcome:
        """The token that follows position `upto - 1`, or nothing within a prefill."""
        if not sample:
            return None
        kept = max(0, upto - len(self._terms.prompt))
        if kept < len(self._answer):
            self._rewind(kept)
        logits = shard.logits(output[-1])
        return choose(
            logits,
            prompt=self._terms.prompt,
            answer=self._answer,
            sampling=self._terms.sampling,
            eos_ids=self._eos_ids,
            position=upto,
            allowed=self._allowed(len(logits)),
        )

    async def send(self, outcome: Outcome, position: int, upto: int, sample: bool) -> None:
        """Tell the entry. Raises PeerGone if it went away, StoreUnavailable as `bill` does."""
        if not isinstance(outcome, Choice):
            return
        self._counters.tokens_sampled += 1
        self._answer.append(outcome.id)
        text, reason = self._show(outcome.id)
        if reason:
            await self._bill()
        await self._say(
            Token(
                session_id=self._terms.opened.session_id,
                epoch=self._terms.opened.epoch,
                position=upto,
                token_id=outcome.id,
                text=text,
                reason=reason,
                logprob=outcome.logprob,
                top=tuple(Alternative(token_id, logprob) for token_id, logprob in outcome.top),
            )
        )

    def _allowed(self, vocab: int) -> torch.Tensor | None:
        """What the grammar lets come next; None without one."""
        sampling = self._terms.sampling
        if not sampling.grammar:
            return None
        if self._grammar is None:
            self._grammar = open_grammar(self._tokenizer, sampling.grammar)
            self._grammar.rebuild(self._answer)
        return self._grammar.allowed(vocab, self._eos_ids.union(sampling.stop_ids))

    def _show(self, token_id: int) -> tuple[str, str]:
        if token_id in self._ends:
            return self._rest(), "stop"
        text = self._stops.feed(self._stream.push(token_id))
        if self._stops.found:
            return text, "stop"
        complete = False
        if self._grammar is not None:
            self._grammar.advance(token_id)
            complete = self._grammar.complete
        if not complete and len(self._answer) < self._terms.sampling.max_tokens:
            return text, ""
        text += self._rest()
        return text, "stop" if complete or self._stops.found else "length"

    def _rest(self) -> str:
        """What was held back, at the end."""
        return self._stops.feed(self._stream.finish()) + self._stops.flush()

    def _rewind(self, kept: int) -> None:
        """Forget the ids after the first `kept`, and what depends on them."""
        del self._answer[kept:]
        self._stream = TextStream(self._tokenizer)
        self._stops = StopStrings(self._terms.sampling.stop)
        if self._grammar is not None:
            self._grammar.rebuild(self._answer)
        for token_id in self._answer:
            self._stops.feed(self._stream.push(token_id))
