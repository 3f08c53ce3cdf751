"""The last stage: it chooses tokens, turns them into text, and knows when the answer ends."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from tessella.core.messages import Alternative, Token
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
    ) -> None:
        self._terms = terms
        self._tokenizer = tokenizer
        self._eos_ids = eos_ids
        self._counters = counters
        self._say = say
        self._answer: list[int] = []
        self._rewind(0)

    def finish(self, shard: Shard, output: torch.Tensor, upto: int, sample: bool) -> Outcome:
        """The token that follows position `upto - 1`, or nothing within a prefill."""
        if not sample:
            return None
        kept = max(0, upto - len(self._terms.prompt))
        if kept < len(self._answer):
            self._rewind(kept)
        return choose(
            shard.logits(output[-1]),
            prompt=self._terms.prompt,
            answer=self._answer,
            sampling=self._terms.sampling,
            eos_ids=self._eos_ids,
            position=upto,
        )

    async def send(self, outcome: Outcome, position: int, upto: int, sample: bool) -> None:
        """Tell the entry. Raises PeerGone if it went away."""
        if not isinstance(outcome, Choice):
            return
        self._counters.tokens_sampled += 1
        self._answer.append(outcome.id)
        text, reason = self._show(outcome.id)
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

    def _show(self, token_id: int) -> tuple[str, str]:
        sampling = self._terms.sampling
        if token_id in self._eos_ids and not sampling.ignore_eos:
            return self._stops.feed(self._stream.finish()) + self._stops.flush(), "stop"
        text = self._stops.feed(self._stream.push(token_id))
        if self._stops.found:
            return text, "stop"
        if len(self._answer) < sampling.max_tokens:
            return text, ""
        text += self._stops.feed(self._stream.finish()) + self._stops.flush()
        return text, "stop" if self._stops.found else "length"

    def _rewind(self, kept: int) -> None:
        """Forget the ids after the first `kept`, and what depends on them."""
        del self._answer[kept:]
        self._stream = TextStream(self._tokenizer)
        self._stops = StopStrings(self._terms.sampling.stop)
        for token_id in self._answer:
            self._stops.feed(self._stream.push(token_id))
