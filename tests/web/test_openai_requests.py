"""Requests as OpenAI's routes take them: what was asked, and nothing dropped in silence."""

from __future__ import annotations

from typing import Any

import pytest

from tessella.core.completions import ChatMessage, CompletionRequest, Fill
from tessella.core.errors import UnsupportedField
from tessella.core.ids import ModelId
from tessella.core.sampling import Sampling
from tessella.web.openai_requests import body_of, route_of

TOY = ModelId("toy")
CHAT = CompletionRequest(model=TOY, messages=(ChatMessage("user", "hi"),), session="s" * 16)
RAW = CompletionRequest(model=TOY, prompt="Once")
GAP = CompletionRequest(model=TOY, fill=Fill("a", ""))
ALWAYS = {
    "model": "toy",
    "stream": True,
    "stream_options": {"include_usage": True},
    "max_tokens": 512,
    "temperature": 0.0,
}


@pytest.mark.parametrize(
    ("request_", "route", "told"),
    [
        (
            CHAT,
            "/v1/chat/completions",
            {"messages": [{"role": "user", "content": "hi"}], "session": "s" * 16},
        ),
        (RAW, "/v1/completions", {"prompt": "Once"}),
        (GAP, "/v1/fim/completions", {"prefix": "a", "suffix": ""}),
    ],
)
def test_a_request_goes_to_its_route_with_what_was_asked(
    request_: CompletionRequest, route: str, told: dict[str, Any]
) -> None:
    assert route_of(request_) == route
    assert body_of(request_) == ALWAYS | told


def test_sampling_is_sent_where_it_was_chosen() -> None:
    sampling = Sampling(
        max_tokens=3,
        temperature=0.5,
        top_k=4,
        min_p=0.1,
        presence_penalty=1.0,
        seed=9,
        stop=("x",),
        logit_bias=((5, -1.0),),
    )
    body = body_of(CompletionRequest(model=TOY, prompt="Once", sampling=sampling))
    assert {name: body[name] for name in set(body) - set(ALWAYS)} == {
        "prompt": "Once",
        "top_k": 4,
        "min_p": 0.1,
        "presence_penalty": 1.0,
        "seed": 9,
        "stop": ["x"],
        "logit_bias": {"5": -1.0},
    }


@pytest.mark.parametrize(
    ("sampling", "name"),
    [
        (Sampling(grammar='{"type": "json_object"}'), "grammar"),
        (Sampling(stop_ids=(1,)), "stop_ids"),
        (Sampling(logprobs=2), "logprobs"),
    ],
)
def test_what_cannot_be_sent_is_refused_and_not_dropped(sampling: Sampling, name: str) -> None:
    with pytest.raises(UnsupportedField, match=name):
        body_of(CompletionRequest(model=TOY, prompt="Once", sampling=sampling))
    with pytest.raises(UnsupportedField, match="tools"):
        body_of(CompletionRequest(model=TOY, messages=CHAT.messages, tools=({},)))
