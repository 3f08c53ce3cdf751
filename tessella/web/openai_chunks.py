"""Chunks of OpenAI's completion routes as the events of an answer. Nothing here waits.

Beside what OpenAI has, a node of ours says the chain and the tier in headers, and how long things
took in the last comment line:

    Tessella-Chain: 12D3KooW…:0-10, 12D3KooW…:10-24
    Tessella-Tier: standard
    : server-timing queue;dur=0.4, prefill;dur=120.3, decode;dur=801.0, hops;dur=33.1
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any

from tessella.core.errors import BadFrame, PeerClosed, RemoteFailure
from tessella.core.ids import ModelId, PeerId
from tessella.core.layers import LayerRange
from tessella.core.messages import Begun, Delta, Done, Stage
from tessella.core.messages.failure import MAX_FAIL_CHARS
from tessella.core.text import one_line
from tessella.web.event_parser import Comment, Data

REQUEST_HEADER, CHAIN_HEADER, TIER_HEADER = "x-request-id", "tessella-chain", "tessella-tier"
TIMING = "server-timing "
MAX_STAGES = 1024
MAX_CODE_CHARS = 64
UNKNOWN_TOKEN = 0
"""The `token_id` of every Delta: these routes tell texts, and no ids."""


def parse_chain(text: str) -> tuple[Stage, ...]:
    """The stages in a chain header; none where it says something else: it is only shown."""
    stages = []
    for part in text.split(",")[:MAX_STAGES]:
        peer_id, _, layers = part.strip().rpartition(":")
        try:
            stages.append(
                Stage(PeerId(one_line(peer_id)), LayerRange.parse(layers.replace("-", ":")))
            )
        except ValueError:
            return ()
    return tuple(stages)


def parse_timing(text: str) -> dict[str, float]:
    """Milliseconds by name, out of `queue;dur=0.4, prefill;dur=120.3`; what is none is left out."""
    found = {}
    for part in text.split(","):
        name, _, value = part.strip().partition(";dur=")
        try:
            duration = float(value)
        except ValueError:
            continue
        if math.isfinite(duration) and duration >= 0:
            found[name] = duration
    return found


def failure_of(error: object, *, retry: bool) -> RemoteFailure | None:
    """The `{"code", "message"}` of an error body as an error; None if it is something else.

    `retry` is what the status says of trying again, where the body says nothing.
    """
    if not isinstance(error, Mapping):
        return None
    code, message = error.get("code"), error.get("message")
    if not isinstance(code, str) or not isinstance(message, str):
        return None
    again = retry or error.get("retry_after") is not None
    return RemoteFailure(
        one_line(code)[:MAX_CODE_CHARS], one_line(message)[:MAX_FAIL_CHARS], retry=again
    )


class ChunkReader:
    """The events of one streamed answer, in the order of `tessella.client.complete`.

    Begun comes first, without the number of prompt tokens, which these routes tell at the end:
    then it comes once more, before Done. Where the answer names no times, those of `clock`
    (seconds, from the request on) are told.
    """

    def __init__(
        self, model: ModelId, headers: Mapping[str, str], clock: Callable[[], float]
    ) -> None:
        self.done = False
        self._clock = clock
        self._request_id = one_line(headers.get(REQUEST_HEADER, ""))[:MAX_FAIL_CHARS]
        self._chain = parse_chain(headers.get(CHAIN_HEADER, ""))
        self._tier = one_line(headers.get(TIER_HEADER, ""))[:MAX_CODE_CHARS]
        self._model = model
        self._reason = ""
        self._usage: Mapping[str, Any] = {}
        self._timing: dict[str, float] = {}
        self._pieces = 0
        self._first_at: float | None = None

    def begun(self, prompt_tokens: int = 0, cached_tokens: int = 0) -> Begun:
        """How the answer begins, as far as it is known."""
        return Begun(
            self._request_id, self._model, prompt_tokens, cached_tokens, self._chain, self._tier
        )

    def take(self, event: Data | Comment) -> list[Begun | Delta | Done]:
        """What the next event says.

        Raises RemoteFailure for an error in the stream, BadFrame for what is no chunk.
        """
        if isinstance(event, Comment):
            if event.text.startswith(TIMING):
                self._timing = parse_timing(event.text.removeprefix(TIMING))
            return []
        if event.text.strip() == "[DONE]":
            return self._end()
        return self._chunk(_object(event.text))

    def close(self) -> list[Begun | Delta | Done]:
        """The stream has ended. Raises PeerClosed if the answer has not."""
        if not self._reason:
            raise PeerClosed("the answer broke off")
        return self._end()

    def _chunk(self, chunk: Mapping[str, Any]) -> list[Begun | Delta | Done]:
        if "error" in chunk:
            raise failure_of(chunk["error"], retry=False) or BadFrame("an error without a code")
        if isinstance(chunk.get("usage"), Mapping):
            self._usage = chunk["usage"]
        choices = chunk.get("choices")
        if not isinstance(choices, list):
            raise BadFrame("a chunk of an answer without choices")
        if not choices:
            return []
        text, reason = _choice(choices[0])
        self._reason = reason or self._reason
        if not text:
            return []
        self._pieces += 1
        if self._first_at is None:
            self._first_at = self._clock()
        return [Delta(text, UNKNOWN_TOKEN, 0.0, ())]

    def _end(self) -> list[Begun | Delta | Done]:
        self.done = True
        details = self._usage.get("prompt_tokens_details")
        cached = _count(details, "cached_tokens") or 0 if isinstance(details, Mapping) else 0
        prompt = _count(self._usage, "prompt_tokens") or 0
        tokens = _count(self._usage, "completion_tokens")
        return [self.begun(prompt, cached), self._done(self._pieces if tokens is None else tokens)]

    def _done(self, tokens: int) -> Done:
        total = self._clock()
        first = total if self._first_at is None else self._first_at
        queue = self._timing.get("queue", 0.0) / 1000
        if "prefill" in self._timing:
            first = queue + self._timing["prefill"] / 1000
            total = first + self._timing.get("decode", 0.0) / 1000
        hops = self._timing.get("hops", 0.0) / 1000
        return Done(one_line(self._reason) or "stop", tokens, queue, first, hops, total)


def _object(text: str) -> Mapping[str, Any]:
    try:
        value: Any = json.loads(text)
    except (ValueError, RecursionError):
        raise BadFrame("a chunk of an answer that is not JSON") from None
    if not isinstance(value, dict):
        raise BadFrame("a chunk of an answer that is not an object")
    return value


def _choice(choice: object) -> tuple[str, str]:
    """The text and the finish reason of a choice, of either route; empty where there is none."""
    if not isinstance(choice, Mapping):
        raise BadFrame("a choice that is not an object")
    delta = choice.get("delta")
    text = delta.get("content") if isinstance(delta, Mapping) else choice.get("text")
    reason = choice.get("finish_reason")
    if not isinstance(text, str | None) or not isinstance(reason, str | None):
        raise BadFrame("a choice whose text or finish_reason is no text")
    # JSON can have halves of characters, which nothing can print.
    return (text or "").encode(errors="replace").decode(), reason or ""


def _count(values: Mapping[str, Any], name: str) -> int | None:
    value = values.get(name)
    return value if type(value) is int and value >= 0 else None
