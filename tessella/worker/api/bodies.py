"""What the completion routes are asked.

A field is either honoured or refused by its name. Those of OpenAI's that ask for nothing where they
have the value that follows from saying nothing are taken with that value alone:

    n, best_of            1 (n up to 4 for chats and completions)
    store, echo           false        service_tier      auto, default
    modalities            ["text"]     logit_bias, stop  empty
    include_obfuscation   false        null              any field

and those that only tell who asks, or help a cache that is not needed here, with any:

    user, metadata, safety_identifier, prompt_cache_key

`parallel_tool_calls` false is honoured by answering with the first call alone.
"""

from __future__ import annotations

import json
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

from tessella.core.completions import MAX_SESSION_CHARS, MIN_SESSION_CHARS
from tessella.core.sampling import (
    MAX_BIAS,
    MAX_BIASES,
    MAX_STOP_CHARS,
    MAX_STOPS,
    MAX_TOP_LOGPROBS,
)
from tessella.worker.api.messages import Messages
from tessella.worker.api.reading import Body, Strict, broken, unsupported
from tessella.worker.api.tools import ResponseFormat, ToolChoice, Tools

MAX_CHOICES = 4
"""Answers to one request: each is a session of its own."""
MAX_TEXT_LOGPROBS = 5
"""As OpenAI has it for completions of a text."""
MAX_TOKENS = 2**31 - 1


def _few(data: object) -> object:
    if isinstance(data, dict) and len(data) > MAX_BIASES:
        raise broken(f"{len(data)} ids, at most {MAX_BIASES}")
    return data


def _text_only(data: object) -> object:
    parts = data if isinstance(data, list) else []
    if any(isinstance(each, int | list) for each in parts[:1]):
        raise unsupported("token ids are not read here: send the text")
    return data


def _usual(value: bool | int) -> bool | int:
    """False, or one: saying so is saying nothing. 0 is no false, and true is no one."""
    if value != 1 - isinstance(value, bool):
        raise unsupported(f"{json.dumps(value)} cannot be honoured here")
    return value


OnlyFalse = Annotated[bool, AfterValidator(_usual), WithJsonSchema({"const": False})]
OnlyOne = Annotated[int, AfterValidator(_usual), WithJsonSchema({"const": 1})]
Stop = Annotated[str, Field(min_length=1, max_length=MAX_STOP_CHARS)]
Stops = Annotated[list[Stop], Field(fail_fast=True, max_length=MAX_STOPS)]
TokenId = Annotated[str, Field(pattern=r"^[0-9]{1,10}$")]
Biases = Annotated[
    dict[TokenId, Annotated[float, Field(ge=-MAX_BIAS, le=MAX_BIAS)]],
    BeforeValidator(_few),
    Field(max_length=MAX_BIASES),
]
Tokens = Annotated[int, Field(ge=1, le=MAX_TOKENS)]
Prompts = str | Annotated[list[str], Field(fail_fast=True, min_length=1, max_length=MAX_CHOICES)]


class StreamOptions(Strict):
    """What a stream has besides the answer."""

    include_usage: bool | None = Field(
        default=None, description="A last event with the usage, and no choices."
    )
    include_obfuscation: OnlyFalse | None = None


class Asked(Body):
    """What every completion may be asked."""

    usual_temperature: ClassVar[float] = 1.0

    model: str | None = Field(default=None, description="The id that /v1/models tells, or none.")
    max_tokens: Tokens | None = Field(
        default=None, description="Of the answer. Without it, as many as the context holds."
    )
    temperature: float | None = Field(
        default=None, ge=0, le=2, description="0 takes the most probable token. 1 unless given."
    )
    top_p: float | None = Field(default=None, ge=0, le=1)
    top_k: int | None = Field(default=None, ge=0, le=MAX_TOKENS, description="0 is all.")
    min_p: float | None = Field(default=None, ge=0, lt=1)
    presence_penalty: float | None = Field(default=None, ge=-2, le=2)
    frequency_penalty: float | None = Field(default=None, ge=-2, le=2)
    repetition_penalty: float | None = Field(default=None, gt=0, le=2)
    seed: int | None = Field(
        default=None, ge=-(2**63), lt=2**64, description="Random unless given."
    )
    stop: Stop | Stops | None = Field(default=None, description="What ends the answer.")
    logit_bias: Biases | None = Field(default=None, description="By token id.")
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    session: (
        Annotated[str, Field(min_length=MIN_SESSION_CHARS, max_length=MAX_SESSION_CHARS)] | None
    ) = Field(
        default=None,
        description="A name, hard to guess, under which the work on this conversation is kept.",
    )
    user: str | None = None
    metadata: dict[str, Any] | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    store: OnlyFalse | None = None
    service_tier: Literal["auto", "default"] | None = None

    @property
    def choices(self) -> int:
        """How many answers each prompt gets."""
        return 1

    @property
    def alternatives(self) -> int | None:
        """How many alternatives each token is told with; None where not even its own
        log-probability is."""
        return None


class ChatBody(Asked):
    """The body of /v1/chat/completions."""

    messages: Messages
    max_completion_tokens: Tokens | None = Field(default=None, description="The same.")
    n: int | None = Field(default=None, ge=1, le=MAX_CHOICES)
    logprobs: bool | None = None
    top_logprobs: int | None = Field(default=None, ge=0, le=MAX_TOP_LOGPROBS)
    tools: Tools | None = None
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    response_format: ResponseFormat | None = None
    modalities: Annotated[list[Literal["text"]], Field(max_length=1)] | None = None

    @property
    def choices(self) -> int:
        """How many answers."""
        return self.n or 1

    @property
    def alternatives(self) -> int | None:
        """As `Asked` has it."""
        return (self.top_logprobs or 0) if self.logprobs else None


class TextBody(Asked):
    """What a completion of a text may be asked besides."""

    logprobs: int | None = Field(default=None, ge=0, le=MAX_TEXT_LOGPROBS)
    echo: OnlyFalse | None = None
    best_of: OnlyOne | None = None

    @property
    def alternatives(self) -> int | None:
        """As `Asked` has it."""
        return self.logprobs


class CompletionBody(TextBody):
    """The body of /v1/completions."""

    prompt: Annotated[Prompts, BeforeValidator(_text_only)] = Field(
        description="A text, or several: each is answered, and `n` times."
    )
    suffix: str | None = Field(default=None, description="What follows the gap to be filled.")
    n: int | None = Field(default=None, ge=1, le=MAX_CHOICES)

    @property
    def choices(self) -> int:
        """How many answers each prompt gets."""
        return self.n or 1


class GenerateBody(TextBody):
    """The body of /v1/generate."""

    usual_temperature: ClassVar[float] = 0.0

    prompt: str = Field(min_length=1)
    temperature: float | None = Field(
        default=None, ge=0, le=2, description="0, the most probable token, unless given."
    )
    n: OnlyOne | None = None


class FillBody(TextBody):
    """The body of /v1/fim/completions. One of `prefix` and `suffix` may be empty."""

    usual_temperature: ClassVar[float] = 0.0

    prefix: str = Field(default="", description="What comes before the gap.")
    suffix: str = Field(default="", description="What comes after it.")
    temperature: float | None = Field(
        default=None, ge=0, le=2, description="0, the most probable token, unless given."
    )
    n: OnlyOne | None = None
