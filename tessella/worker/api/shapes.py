"""The answers of the completion routes, as the OpenAPI document describes them."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field


class PromptDetails(BaseModel):
    """What the prompt cost."""

    cached_tokens: int = Field(description="That every stage still held from before.")


class Usage(BaseModel):
    """What was read and written."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptDetails


class CalledFunctionTold(BaseModel):
    """What is called."""

    name: str
    arguments: str


class CallTold(BaseModel):
    """A call that the model makes."""

    id: str
    type: Literal["function"]
    function: CalledFunctionTold


class AssistantMessage(BaseModel):
    """What the model said."""

    role: Literal["assistant"]
    content: str | None
    refusal: None
    tool_calls: list[CallTold] | None = None


class ChatChoice(BaseModel):
    """One answer."""

    index: int
    message: AssistantMessage
    logprobs: dict[str, Any] | None
    finish_reason: Literal["stop", "length", "tool_calls"]


class ChatCompletion(BaseModel):
    """The answer to a chat."""

    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[ChatChoice]
    usage: Usage


class TextChoice(BaseModel):
    """One answer."""

    index: int
    text: str
    logprobs: dict[str, Any] | None
    finish_reason: Literal["stop", "length"]


class TextCompletion(BaseModel):
    """The completion of a text."""

    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    choices: list[TextChoice]
    usage: Usage


class PlainCompletion(TextCompletion):
    """The same, with the text at hand."""

    text: str


class ModelTold(BaseModel):
    """A model that is served here."""

    model_config = ConfigDict(extra="forbid")

    id: str
    object: Literal["model"] = "model"
    created: int = Field(description="Since when, in seconds since 1970.")
    owned_by: str = "tessella"
    context_size: int | None = Field(
        default=None,
        description="Tokens of prompt and answer together; null while the model is loading.",
    )
    max_input_tokens: int | None = None


class ModelList(BaseModel):
    """All that are."""

    object: Literal["list"] = "list"
    data: list[ModelTold]
