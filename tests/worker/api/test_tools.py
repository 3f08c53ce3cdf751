"""Functions, which of them, and forms of answers."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from tessella.core.ids import ModelId
from tessella.core.sampling import MAX_GRAMMAR_BYTES
from tessella.core.tool_calls import ToolFormat
from tessella.web.errors import BadField
from tessella.worker.api.bodies import ChatBody
from tessella.worker.api.tools import MAX_TOOLS_BYTES
from tessella.worker.api.wanted import Wanted, chat_wanted

TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Of a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}
OTHER: dict[str, Any] = {"type": "function", "function": {"name": "stop"}}


def wanted(**more: Any) -> Wanted:
    body = ChatBody.model_validate({"messages": [{"role": "user", "content": "Hi"}], **more})
    return chat_wanted(body, ModelId("m"), ToolFormat.HERMES)


def test_tools_go_on_as_they_came() -> None:
    given = {"type": "function", "function": {**TOOL["function"], "strict": True}}
    (request,) = wanted(tools=[given, OTHER]).requests
    assert request.tools == (given, OTHER)


@pytest.mark.parametrize(
    ("choice", "told", "reads"),
    [
        (None, ("auto", ""), True),
        ("auto", ("auto", ""), True),
        ("none", ("none", ""), False),
        ("required", ("required", ""), True),
        ({"type": "function", "function": {"name": "stop"}}, ("required", "stop"), True),
    ],
)
def test_a_choice_of_tools(choice: Any, told: tuple[str, str], reads: bool) -> None:
    found = wanted(tools=[TOOL, OTHER], tool_choice=choice)
    (request,) = found.requests
    assert (request.tool_choice, request.tool_name) == told
    assert (found.tool_format is ToolFormat.HERMES) == reads


@pytest.mark.parametrize(
    ("more", "param"),
    [
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tool_choice": {"type": "function", "function": {"name": "stop"}}}, "tool_choice"),
        (
            {"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "x"}}},
            "tool_choice",
        ),
        ({"tools": [TOOL, OTHER, TOOL]}, "tools"),
        ({"tools": [TOOL] * 129}, "tools"),
        ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools[0].function.name"),
        ({"tools": [{"type": "function"}]}, "tools[0].function"),
        (
            {
                "tools": [
                    {
                        "type": "function",
                        "function": {"name": "x", "description": "x" * MAX_TOOLS_BYTES},
                    }
                ]
            },
            "tools",
        ),
        (
            {
                "tools": [
                    {"type": "function", "function": {"name": "x", "parameters": {"a": math.inf}}}
                ]
            },
            "tools",
        ),
        (
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "x", "schema": {"maximum": math.inf}},
                }
            },
            "response_format.json_schema.schema",
        ),
        ({"response_format": {"type": "json_schema"}}, "response_format"),
        (
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {
                        "name": "x",
                        "schema": {"description": "x" * MAX_GRAMMAR_BYTES},
                    },
                }
            },
            "response_format.json_schema.schema",
        ),
    ],
)
def test_what_does_not_fit_is_named(more: dict[str, Any], param: str) -> None:
    with pytest.raises(BadField) as caught:
        wanted(**more)
    assert caught.value.field == param


SCHEMA = {"type": "object", "properties": {"汉": {"type": "integer"}}}


@pytest.mark.parametrize(
    ("form", "grammar"),
    [
        (None, None),
        ({"type": "text"}, None),
        ({"type": "json_object"}, {"type": "json_object"}),
        (
            {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA, "strict": True}},
            {"type": "json_schema", "schema": SCHEMA},
        ),
        (
            {"type": "json_schema", "json_schema": {"name": "x", "schema": {}}},
            {"type": "json_schema", "schema": {}},
        ),
        ({"type": "json_schema", "json_schema": {"name": "x"}}, {"type": "json_object"}),
    ],
)
def test_a_form_of_answer_is_a_grammar(form: Any, grammar: Any) -> None:
    (request,) = wanted(response_format=form).requests
    assert (json.loads(request.sampling.grammar) if grammar else request.sampling.grammar) == (
        grammar or ""
    )
