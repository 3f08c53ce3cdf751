"""One answer, from the request to its last word."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass, field

from p2p.peers import Host
from tessella.cli.discovery import Door
from tessella.cli.render import Document
from tessella.client import Event, complete
from tessella.core.completions import CompletionRequest
from tessella.core.messages import Begun, Delta, Done, Stage


@dataclass(slots=True)
class Answer:
    """An answer as it grows; `finish_reason` is empty until it is complete."""

    model: str = ""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    chain: tuple[Stage, ...] = ()
    pieces: list[str] = field(default_factory=list)
    finish_reason: str = ""
    first_token_seconds: float = 0.0
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
                self.prompt_tokens = event.prompt_tokens
            case Delta():
                self.completion_tokens += 1
                self.pieces.append(event.text)
                return event.text
            case Done():
                self.finish_reason = event.reason
                self.completion_tokens = event.completion_tokens
                self.first_token_seconds = event.first_token_seconds
                self.total_seconds = event.total_seconds
        return ""

    def document(self) -> Document:
        """The answer as JSON. Times are the entry's: from the arrival of the request."""
        return {
            "text": self.text,
            "model": self.model,
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "finish_reason": self.finish_reason,
            "tok_s": round(self.tok_s, 3),
            "ttft_ms": round(self.first_token_seconds * 1000, 3),
            "chain": [
                {
                    "peer_id": stage.peer_id,
                    "layer_range": [stage.layers.start, stage.layers.stop],
                }
                for stage in self.chain
            ],
        }

    def summary(self) -> str:
        """A line of numbers."""
        return (
            f"{self.completion_tokens} tokens, {self.tok_s:.1f} tok/s, first after "
            f"{self.first_token_seconds * 1000:.0f} ms ({self.finish_reason})"
        )


async def ask(
    host: Host,
    door: Door,
    request: CompletionRequest,
    answer: Answer,
    say: Callable[[str], None],
) -> None:
    """Fill `answer`, and `say` its text as it comes. Cancelling it cancels the request.

    What was said before an error or a cancellation stays in `answer`.
    """
    async with aclosing(complete(host, door.address, request)) as coming:  # type: ignore[type-var, unused-ignore]
        async for event in coming:
            if text := answer.take(event):
                say(text)
