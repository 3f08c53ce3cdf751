"""What a body comes to: one request for each answer, and how the answers are told."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tessella.core.completions import CompletionRequest, Fill
from tessella.core.errors import BadRequest, UnknownModel, UnsupportedField
from tessella.core.ids import ModelId
from tessella.core.sampling import Sampling
from tessella.core.tool_calls import ToolFormat
from tessella.web.errors import BadField
from tessella.worker.api.bodies import (
    MAX_CHOICES,
    MAX_TOKENS,
    Asked,
    ChatBody,
    CompletionBody,
    FillBody,
    GenerateBody,
)
from tessella.worker.api.tools import plain_tools, read_choice, read_grammar

_SEEDS = 2**64
# Ends of ranges that are open: with this top_p, as with 0, the best token is all that is left.
_TINY = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What one call of a completion route wants."""

    requests: tuple[CompletionRequest, ...]
    """One for each choice: those of the first prompt, then those of the next."""
    each: int
    """Choices of one prompt."""
    alternatives: int | None
    """How many each token is told with; None for no log-probabilities at all."""
    stream: bool
    usage: bool
    """Whether a stream ends with the usage."""
    tool_format: ToolFormat | None = None
    """How calls in the answer are written, where any may be made."""
    parallel: bool = True
    """Whether several may."""


def chat_wanted(body: ChatBody, served: ModelId, form: ToolFormat | None) -> Wanted:
    """What a chat wants of a model that writes calls in this form, or not at all.

    Raises BadRequest, UnknownModel or UnsupportedField.
    """
    tools = body.tools or []
    choice, name = read_choice(body.tool_choice, tools)
    grammar = read_grammar(body.response_format)
    calls = bool(tools) and choice != "none"
    if calls and form is None:
        raise UnsupportedField("tools", "the chat template of this model has no place for them")
    if grammar and calls:
        raise UnsupportedField("response_format", "an answer of one form cannot call a function")
    if body.top_logprobs and not body.logprobs:
        raise BadField("top_logprobs", "top_logprobs: it goes with logprobs")
    request = CompletionRequest(
        model=_model(body, served),
        messages=tuple(message.plain() for message in body.messages),
        tools=plain_tools(tools),
        tool_choice=choice,
        tool_name=name,
        session=body.session or "",
        sampling=replace(_sampling(body, _most_tokens(body)), grammar=grammar),
    )
    wanted = _wanted(body, [request])
    return replace(
        wanted,
        tool_format=form if calls else None,
        parallel=body.parallel_tool_calls is not False,
    )


def text_wanted(body: CompletionBody | GenerateBody | FillBody, served: ModelId) -> Wanted:
    """What the completion of a text, or of several, wants. Raises as `chat_wanted`."""
    model, sampling = _model(body, served), _sampling(body, body.max_tokens)
    session = body.session or ""
    requests = [
        CompletionRequest(model=model, prompt=prompt, fill=fill, session=session, sampling=sampling)
        for prompt, fill in _texts(body)
    ]
    return _wanted(body, requests)


def _texts(body: CompletionBody | GenerateBody | FillBody) -> list[tuple[str, Fill | None]]:
    """Each a prompt, or a gap."""
    if isinstance(body, FillBody):
        if not body.prefix and not body.suffix:
            raise BadField("prefix", "prefix and suffix are both empty")
        return [("", Fill(body.prefix, body.suffix))]
    prompts = [body.prompt] if isinstance(body.prompt, str) else body.prompt
    suffix = body.suffix if isinstance(body, CompletionBody) else None
    if suffix:
        return [("", Fill(prompt, suffix)) for prompt in prompts]
    if not all(prompts):
        raise BadField("prompt", "prompt: it is empty")
    return [(prompt, None) for prompt in prompts]


def _wanted(body: Asked, requests: Sequence[CompletionRequest]) -> Wanted:
    """Each request as many times as choices are wanted, with a seed of its own."""
    total = len(requests) * body.choices
    if total > MAX_CHOICES:
        raise BadField("n", f"n: {total} answers are wanted, at most {MAX_CHOICES}")
    if body.session and total > 1:
        raise UnsupportedField("session", "one conversation goes on in one answer")
    options = body.stream_options
    return Wanted(
        requests=tuple(
            replace(request, sampling=_seeded(request.sampling, number))
            for request in requests
            for number in range(body.choices)
        ),
        each=body.choices,
        alternatives=body.alternatives,
        stream=bool(body.stream),
        usage=bool(options and options.include_usage),
    )


def _seeded(sampling: Sampling, number: int) -> Sampling:
    return replace(sampling, seed=(sampling.seed + number) % _SEEDS)


def _model(body: Asked, served: ModelId) -> ModelId:
    if body.model is not None and body.model != served:
        raise UnknownModel(f"this node serves {served}, not {body.model[:80]!r}")
    return served


def _most_tokens(body: ChatBody) -> int | None:
    given = {body.max_tokens, body.max_completion_tokens} - {None}
    if len(given) > 1:
        text = "max_completion_tokens: it is not the same as max_tokens"
        raise BadField("max_completion_tokens", text)
    return next(iter(given), None)


def _sampling(body: Asked, most: int | None) -> Sampling:
    """The sampling of the first choice."""
    seed = secrets.randbits(64) if body.seed is None else body.seed % _SEEDS
    return Sampling(
        max_tokens=MAX_TOKENS if most is None else most,
        temperature=_or(body.temperature, body.usual_temperature),
        top_p=max(_TINY, _or(body.top_p, 1.0)),
        top_k=body.top_k or 0,
        min_p=min(1.0 - _TINY, _or(body.min_p, 0.0)),
        repetition_penalty=max(_TINY, _or(body.repetition_penalty, 1.0)),
        presence_penalty=_or(body.presence_penalty, 0.0),
        frequency_penalty=_or(body.frequency_penalty, 0.0),
        seed=seed,
        logprobs=body.alternatives or 0,
        stop=(body.stop,) if isinstance(body.stop, str) else tuple(body.stop or ()),
        logit_bias=_biases(body),
    )


def _biases(body: Asked) -> tuple[tuple[int, float], ...]:
    biases = {int(token): bias for token, bias in (body.logit_bias or {}).items()}
    if len(biases) != len(body.logit_bias or {}):
        raise BadField("logit_bias", "logit_bias: it names an id twice")
    try:
        Sampling(logit_bias=tuple(biases.items()))
    except BadRequest as exc:
        raise BadField("logit_bias", str(exc)) from None
    return tuple(biases.items())


def _or(value: float | None, usual: float) -> float:
    return usual if value is None else value
