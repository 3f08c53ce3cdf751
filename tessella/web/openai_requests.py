"""Requests of this mesh as the bodies that OpenAI's completion routes take. Nothing here waits."""

from __future__ import annotations

from typing import Any

from tessella.core.completions import ChatMessage, CompletionRequest
from tessella.core.errors import UnsupportedField
from tessella.core.sampling import Sampling

_DEFAULTS = Sampling()
_PENALTIES = ("repetition_penalty", "presence_penalty", "frequency_penalty")
_OPTIONAL = ("top_p", "top_k", "min_p", *_PENALTIES)
# What a chat never sets and these routes have other shapes for, or none.
_NOT_SENT = ("logprobs", "stop_ids", "grammar", "ignore_eos")


def route_of(request: CompletionRequest) -> str:
    """The path that takes a request."""
    if request.messages:
        return "/v1/chat/completions"
    return "/v1/completions" if request.fill is None else "/v1/fim/completions"


def body_of(request: CompletionRequest) -> dict[str, Any]:
    """The body of a streamed request. Raises UnsupportedField for what it cannot carry."""
    if request.tools:
        raise UnsupportedField("tools", "not sent over HTTP by this client")
    body: dict[str, Any] = {"model": request.model, "stream": True}
    body["stream_options"] = {"include_usage": True}
    if request.messages:
        body["messages"] = [_message(each) for each in request.messages]
    elif request.fill is not None:
        body |= {"prefix": request.fill.prefix, "suffix": request.fill.suffix}
    else:
        body["prompt"] = request.prompt
    if request.session:
        body["session"] = request.session
    return body | _sampling(request.sampling)


def _message(message: ChatMessage) -> dict[str, Any]:
    if message.tool_calls or message.tool_call_id:
        raise UnsupportedField("tool_calls", "not sent over HTTP by this client")
    named = {"name": message.name} if message.name else {}
    return {"role": message.role, "content": message.content, **named}


def _sampling(sampling: Sampling) -> dict[str, Any]:
    for name in _NOT_SENT:
        if getattr(sampling, name) != getattr(_DEFAULTS, name):
            raise UnsupportedField(name, "not sent over HTTP by this client")
    told: dict[str, Any] = {
        "max_tokens": sampling.max_tokens,
        "temperature": sampling.temperature,
    }
    # Other servers refuse what they do not know, so that only what was asked for is sent.
    for name in _OPTIONAL:
        if (value := getattr(sampling, name)) != getattr(_DEFAULTS, name):
            told[name] = value
    if sampling.temperature > 0:
        told["seed"] = sampling.seed
    if sampling.stop:
        told["stop"] = list(sampling.stop)
    if sampling.logit_bias:
        told["logit_bias"] = {str(token): bias for token, bias in sampling.logit_bias}
    return told
