"""Answers of a form, through OpenAI's client: JSON by a schema, and calls of functions."""

from __future__ import annotations

import json
from typing import Any, Literal

import pytest
from openai import OpenAI
from pydantic import BaseModel, ConfigDict, Field

from tests.mesh.api.nodes import MODEL

pytestmark = pytest.mark.mesh

GREEDY: Any = {"model": MODEL, "temperature": 0}
MOST: Any = GREEDY | {"max_tokens": 60}


class City(BaseModel):
    """What is asked for. Short in every field: a small model does not end by itself."""

    model_config = ConfigDict(extra="forbid")
    name: str = Field(max_length=12)
    kind: Literal["city", "river"]
    in_europe: bool


class Nothing(BaseModel):
    """No arguments."""

    model_config = ConfigDict(extra="forbid")


class Sum(BaseModel):
    """The arguments of a function."""

    model_config = ConfigDict(extra="forbid")
    a: int = Field(ge=0, le=99)
    b: int = Field(ge=0, le=99)


def function(name: str, arguments: type[BaseModel]) -> Any:
    """A tool."""
    described = {"name": name, "parameters": arguments.model_json_schema(), "strict": True}
    return {"type": "function", "function": described}


ADD, NOW = function("add", Sum), function("now", Nothing)
ASK: Any = [{"role": "user", "content": "What is 3 plus 5?"}]


def test_an_answer_fits_its_schema(client: OpenAI) -> None:
    messages: Any = [{"role": "user", "content": "Paris as JSON."}]
    answer = client.chat.completions.parse(messages=messages, response_format=City, **MOST)
    (choice,) = answer.choices
    assert choice.finish_reason == "stop"
    assert choice.message.parsed == City(**json.loads(choice.message.content or ""))


def test_an_answer_is_a_json_object(client: OpenAI) -> None:
    messages: Any = [{"role": "user", "content": 'Repeat: {"name": "Bob"}'}]
    answer = client.chat.completions.create(
        messages=messages, response_format={"type": "json_object"}, **MOST
    )
    (choice,) = answer.choices
    assert choice.finish_reason == "stop"
    assert isinstance(json.loads(choice.message.content or ""), dict)


def test_a_call_that_is_required_is_made_and_its_result_leads_to_a_text(client: OpenAI) -> None:
    options: Any = {"tools": [ADD], **MOST}
    answer = client.chat.completions.create(messages=ASK, tool_choice="required", **options)
    (choice,) = answer.choices
    assert choice.finish_reason == "tool_calls"
    (call,) = choice.message.tool_calls or []
    assert call.type == "function"
    assert call.function.name == "add"
    found = Sum(**json.loads(call.function.arguments))
    messages = [
        *ASK,
        choice.message,
        {"role": "tool", "tool_call_id": call.id, "content": str(found.a + found.b)},
    ]
    options["max_tokens"] = 8
    then = client.chat.completions.create(messages=messages, **options).choices[0]
    assert then.message.tool_calls is None
    assert then.message.content


def test_the_function_that_is_named_is_called_in_a_stream(client: OpenAI) -> None:
    choice: Any = {"type": "function", "function": {"name": "now"}}
    with client.chat.completions.stream(
        messages=ASK, tools=[ADD, NOW], tool_choice=choice, **MOST
    ) as events:
        answer = events.until_done().get_final_completion().choices[0]
    assert answer.finish_reason == "tool_calls"
    assert not answer.message.content
    (call,) = answer.message.tool_calls or []
    assert (call.function.name, call.function.arguments) == ("now", "{}")


@pytest.mark.parametrize("choice", ["auto", "none"])
def test_where_a_call_may_be_made_an_answer_is_a_call_or_a_text(
    client: OpenAI, choice: Any
) -> None:
    options = MOST | {"max_tokens": 16}
    answer = client.chat.completions.create(
        messages=ASK, tools=[ADD], tool_choice=choice, **options
    )
    (only,) = answer.choices
    calls = only.message.tool_calls or []
    assert bool(calls) is (only.finish_reason == "tool_calls")
    assert calls or only.message.content
    if choice == "none":
        assert calls == []
