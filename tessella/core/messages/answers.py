"""What a client and an entry say to each other, and the question anyone may ask."""

from __future__ import annotations

from dataclasses import dataclass

from tessella.core.ids import ModelId
from tessella.core.messages.chain import Alternative, Stage


@dataclass(frozen=True, slots=True)
class Complete:
    """A client's wish: a CompletionRequest as JSON, and the ticket that it holds, if any."""

    request: bytes
    ticket: bytes = b""
    ticket_signature: bytes = b""


@dataclass(frozen=True, slots=True)
class Begun:
    """The request was accepted and its chain is open."""

    request_id: str
    model: ModelId
    prompt_tokens: int
    cached_tokens: int
    """How many of them every stage still held, from the conversation so far."""
    chain: tuple[Stage, ...]
    tier: str = ""
    """Its place in every queue, by its ticket; empty for a request that nobody is paid for."""


@dataclass(frozen=True, slots=True)
class Delta:
    """The next piece of the answer: one token, and the text it made showable (maybe none)."""

    text: str
    token_id: int
    logprob: float
    top: tuple[Alternative, ...]


@dataclass(frozen=True, slots=True)
class Done:
    """The answer is complete. Seconds are measured at the entry, from the request's arrival."""

    reason: str
    completion_tokens: int
    queue_seconds: float
    """Until the entry's arithmetic for it began."""
    first_token_seconds: float
    hops_seconds: float
    """Of the decode: what was spent waiting for the other stages and the network."""
    total_seconds: float


@dataclass(frozen=True, slots=True)
class AskStatus:
    """What are you doing?"""


@dataclass(frozen=True, slots=True)
class Status:
    """A status document as JSON."""

    document: bytes
