"""One answer, from the request to its last word."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import dataclass, field

from tessella.cli.render import Document
from tessella.client import Event
from tessella.core.messages import Begun, Delta, Done, Stage
from tessella.core.tiers import Tier


@dataclass(slots=True)
class Answer:
    """An answer as it grows; `finish_reason` is empty until it is complete."""

    model: str = ""
    prompt_tokens: int = 0
    cached_tokens: int = 0
    """Of the prompt: what was held already, and not computed."""
    completion_tokens: int = 0
    chain: tuple[Stage, ...] = ()
    tier: Tier | None = None
    """How soon it was due; None where nobody was paid for it."""
    pieces: list[str] = field(default_factory=list)
    finish_reason: str = ""
    queue_seconds: float = 0.0
    first_token_seconds: float = 0.0
    hops_seconds: float = 0.0
    total_seconds: float = 0.0

    @property
    def text(self) -> str:
        """Everything said so far."""
        return "".join(self.pieces)

    @property
    def tok_s(self) -> float:
        """Tokens a second after the first one, or over all of it where there is but one."""
        after_first = self.total_seconds - self.first_token_seconds
        if self.completion_tokens > 1 and after_first > 0:
            return (self.completion_tokens - 1) / after_first
        return self.completion_tokens / self.total_seconds if self.total_seconds > 0 else 0.0

    def take(self, event: Event) -> str:
        """Take the next event in; the text it adds."""
        match event:
            case Begun():
                self.model, self.chain = event.model, event.chain
                self.tier = Tier(event.tier) if event.tier in set(Tier) else None
                self.prompt_tokens = event.prompt_tokens
                self.cached_tokens = event.cached_tokens
            case Delta():
                self.completion_tokens += 1
                self.pieces.append(event.text)
                return event.text
            case Done():
                self.finish_reason = event.reason
                self.completion_tokens = event.completion_tokens
                self.queue_seconds = event.queue_seconds
                self.first_token_seconds = event.first_token_seconds
                self.hops_seconds = event.hops_seconds
                self.total_seconds = event.total_seconds
        return ""

    def document(self) -> Document:
        """The answer as JSON. Times are the entry's: from the arrival of the request."""
        return {
            "text": self.text,
            "model": self.model,
            "prompt_tokens": self.prompt_tokens,
            "cached_tokens": self.cached_tokens,
            "completion_tokens": self.completion_tokens,
            "finish_reason": self.finish_reason,
            "tok_s": round(self.tok_s, 3),
            "ttft_ms": round(self.first_token_seconds * 1000, 3),
            "timing_ms": {name: round(value, 3) for name, value in self.timing_ms().items()},
            "tier": self.tier,
            "paid": self.tier is not None,
            "chain": [
                {
                    "peer_id": stage.peer_id,
                    "layer_range": [stage.layers.start, stage.layers.stop],
                }
                for stage in self.chain
            ],
        }

    def timing_ms(self) -> dict[str, float]:
        """Where the time went, in milliseconds. `hops` is the part of `decode` spent waiting."""
        seconds = {
            "queue": self.queue_seconds,
            "prefill": self.first_token_seconds - self.queue_seconds,
            "decode": self.total_seconds - self.first_token_seconds,
            "hops": self.hops_seconds,
        }
        return {name: max(0.0, value) * 1000 for name, value in seconds.items()}

    def summary(self) -> str:
        """A line of numbers."""
        cached = ""
        if self.cached_tokens:
            cached = f", cached {self.cached_tokens} of {self.prompt_tokens} prompt tokens"
        return (
            f"{self.completion_tokens} tokens, {self.tok_s:.1f} tok/s, first after "
            f"{self.first_token_seconds * 1000:.0f} ms ({self.finish_reason}){cached}"
        )

    def timing(self) -> str:
        """A line of times."""
        times = ", ".join(f"{name} {value:.1f} ms" for name, value in self.timing_ms().items())
        return f"{times}; {self.tok_s:.1f} tok/s; {self.standing}"

    @property
    def standing(self) -> str:
        """The tier in words, or why there is none."""
        if self.tier is None:
            return "unpaid (no musivum answered)"
        return f"tier {self.tier.title()}"


async def fill_answer(
    coming: AsyncIterator[Event], answer: Answer, say: Callable[[str], None]
) -> None:
    """Fill `answer`, and `say` its text as it comes. Cancelling it cancels the request.

    What was said before an error or a cancellation stays in `answer`.
    """
    async with aclosing(coming):  # type: ignore[type-var, unused-ignore]
        async for event in coming:
            if text := answer.take(event):
                say(text)
