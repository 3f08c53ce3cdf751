"""One request for each answer: sampling with its usual values, seeds side by side."""

from __future__ import annotations

from typing import Any

import pytest

from tessella.core.completions import CompletionRequest, Fill
from tessella.core.errors import UnknownModel, UnsupportedField
from tessella.core.ids import ModelId
from tessella.core.sampling import Sampling
from tessella.core.tool_calls import ToolFormat
from tessella.web.errors import BadField
from tessella.worker.api.bodies import ChatBody, CompletionBody, FillBody, GenerateBody
from tessella.worker.api.wanted import Wanted, chat_wanted, text_wanted

MODEL = ModelId("org/small")
MOST = 2**31 - 1
NAME = "a-name-hard-to-guess"


def chat(**more: Any) -> Wanted:
    body = ChatBody.model_validate({"messages": [{"role": "user", "content": "Hi"}], **more})
    return chat_wanted(body, MODEL, None)


def completion(**more: Any) -> Wanted:
    return text_wanted(CompletionBody.model_validate({"prompt": "Hi", **more}), MODEL)


def generate(**more: Any) -> Wanted:
    return text_wanted(GenerateBody.model_validate({"prompt": "Hi", **more}), MODEL)


def fill(**more: Any) -> Wanted:
    return text_wanted(FillBody.model_validate({"prefix": "a", **more}), MODEL)


@pytest.mark.parametrize(
    ("want", "temperature"), [(chat, 1.0), (completion, 1.0), (generate, 0.0), (fill, 0.0)]
)
def test_what_is_not_asked_has_its_usual_value(want: Any, temperature: float) -> None:
    found = want(seed=5)
    (request,) = found.requests
    assert request.model == MODEL
    assert request.sampling == Sampling(max_tokens=MOST, temperature=temperature, seed=5)
    assert (found.each, found.alternatives, found.stream, found.usage) == (1, None, False, False)


@pytest.mark.parametrize("want", [chat, completion, generate, fill])
def test_all_of_sampling_can_be_asked(want: Any) -> None:
    (request,) = want(
        model=MODEL,
        max_tokens=9,
        temperature=0.5,
        top_p=0.9,
        top_k=40,
        min_p=0.1,
        presence_penalty=0.2,
        frequency_penalty=-0.3,
        repetition_penalty=1.1,
        seed=5,
        stop="x",
        logit_bias={"7": -100, "8": 1.5},
        session=NAME,
    ).requests
    assert request.session == NAME
    assert request.sampling == Sampling(
        max_tokens=9,
        temperature=0.5,
        top_p=0.9,
        top_k=40,
        min_p=0.1,
        presence_penalty=0.2,
        frequency_penalty=-0.3,
        repetition_penalty=1.1,
        seed=5,
        stop=("x",),
        logit_bias=((7, -100), (8, 1.5)),
    )


def test_seeds_are_random_and_wrap_around() -> None:
    def seeds(**more: Any) -> list[int]:
        return [each.sampling.seed for each in chat(**more).requests]

    assert seeds() != seeds()
    assert seeds(seed=-1, n=3) == [2**64 - 1, 0, 1]
    first, second = seeds(n=2)
    assert second == (first + 1) % 2**64


def test_a_batch_is_what_its_prompts_are_alone() -> None:
    batch = completion(prompt=["a", "b"], n=2, seed=5)
    alone = [completion(prompt=each, n=2, seed=5) for each in ("a", "b")]
    assert batch.requests == alone[0].requests + alone[1].requests
    assert [each.prompt for each in batch.requests] == ["a", "a", "b", "b"]
    assert batch.each == 2


def test_more_answers_than_that_are_refused() -> None:
    with pytest.raises(BadField, match=r"^n: 6 answers"):
        completion(prompt=["a", "b"], n=3)


def test_one_conversation_goes_on_in_one_answer() -> None:
    with pytest.raises(UnsupportedField, match=r"^session"):
        chat(session=NAME, n=2)
    with pytest.raises(UnsupportedField, match=r"^session"):
        completion(session=NAME, prompt=["a", "b"])


@pytest.mark.parametrize(
    ("found", "prompt", "gap"),
    [
        (lambda: completion(suffix="z"), "", Fill("Hi", "z")),
        (lambda: completion(prompt="", suffix="z"), "", Fill("", "z")),
        (lambda: completion(suffix=""), "Hi", None),
        (lambda: completion(prompt=["Hi"]), "Hi", None),
        (lambda: fill(suffix="z"), "", Fill("a", "z")),
        (lambda: fill(), "", Fill("a", "")),
        (lambda: generate(), "Hi", None),
    ],
)
def test_a_suffix_makes_a_gap(found: Any, prompt: str, gap: Fill | None) -> None:
    (request,) = found().requests
    assert (request.prompt, request.fill) == (prompt, gap)
    assert isinstance(request, CompletionRequest)


@pytest.mark.parametrize(
    ("more", "most"),
    [
        ({"max_completion_tokens": 7}, 7),
        ({"max_tokens": 7}, 7),
        ({"max_tokens": 7, "max_completion_tokens": 7}, 7),
        ({"max_tokens": None, "max_completion_tokens": 7}, 7),
        ({}, MOST),
    ],
)
def test_the_length_has_two_names(more: dict[str, Any], most: int) -> None:
    assert chat(**more).requests[0].sampling.max_tokens == most


def test_two_lengths_contradict_each_other() -> None:
    with pytest.raises(BadField) as caught:
        chat(max_tokens=7, max_completion_tokens=8)
    assert caught.value.field == "max_completion_tokens"


@pytest.mark.parametrize(
    ("found", "alternatives"),
    [
        (lambda: chat(logprobs=True), 0),
        (lambda: chat(logprobs=True, top_logprobs=20), 20),
        (lambda: chat(logprobs=False), None),
        (lambda: completion(logprobs=0), 0),
        (lambda: completion(logprobs=5), 5),
        (lambda: completion(), None),
    ],
)
def test_how_many_alternatives(found: Any, alternatives: int | None) -> None:
    wanted = found()
    assert wanted.alternatives == alternatives
    assert wanted.requests[0].sampling.logprobs == (alternatives or 0)


def test_alternatives_go_with_log_probabilities() -> None:
    with pytest.raises(BadField, match=r"^top_logprobs"):
        chat(top_logprobs=2)


def test_another_model_is_not_here() -> None:
    for want in (chat, completion, generate, fill):
        with pytest.raises(UnknownModel, match=r"this node serves org/small, not 'other'"):
            want(model="other")
        assert want(model=None).requests[0].model == MODEL


TOOLS = [{"type": "function", "function": {"name": "f"}}]


def test_tools_need_a_template_that_has_a_place_for_them() -> None:
    with pytest.raises(UnsupportedField, match=r"^tools"):
        chat(tools=TOOLS)
    assert chat(tools=TOOLS, tool_choice="none").tool_format is None


def test_a_form_of_answer_and_calls_exclude_each_other() -> None:
    body = {
        "messages": [{"role": "user", "content": "Hi"}],
        "tools": TOOLS,
        "response_format": {"type": "json_object"},
    }
    with pytest.raises(UnsupportedField, match=r"^response_format"):
        chat_wanted(ChatBody.model_validate(body), MODEL, ToolFormat.HERMES)


def test_parallel_calls_can_be_declined() -> None:
    assert chat().parallel
    assert chat(parallel_tool_calls=True).parallel
    assert not chat(parallel_tool_calls=False).parallel


def test_a_stream_may_end_with_the_usage() -> None:
    assert chat(stream=True, stream_options={"include_usage": True}).usage
    assert not chat(stream=True, stream_options={}).usage
    assert chat(stream=True).stream


@pytest.mark.parametrize(
    ("more", "field", "low", "high"),
    [
        ({"top_p": 0}, "top_p", 0, 1e-6),
        ({"repetition_penalty": 5e-324}, "repetition_penalty", 0, 1e-6),
        ({"min_p": 1 - 1e-16}, "min_p", 1 - 1e-6, 1),
    ],
)
def test_what_is_at_the_open_end_of_a_range_is_taken_as_next_to_it(
    more: dict[str, float], field: str, low: float, high: float
) -> None:
    assert low < getattr(chat(**more).requests[0].sampling, field) < high
