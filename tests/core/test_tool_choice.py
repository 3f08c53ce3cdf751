"""A forced call is a grammar that compiles, and that lets nothing but a call of a tool through."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from llguidance import LLMatcher, LLTokenizer

from tessella.core.errors import BadRequest
from tessella.core.sampling import Sampling
from tessella.core.tool_calls import Called, ToolCallReader, ToolFormat
from tessella.core.tool_choice import Tool, check_tools, forced_call

HERMES, LLAMA, MISTRAL = ToolFormat.HERMES, ToolFormat.LLAMA, ToolFormat.MISTRAL
SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
    "required": ["city"],
    "additionalProperties": False,
}
TOOLS: list[dict[str, Any]] = [
    {"type": "function", "function": {"name": "weather", "parameters": SCHEMA}},
    {"type": "function", "function": {"name": "now", "description": "The time."}},
]
VOCABULARY = LLTokenizer("byte")


def accepts(grammar: str, text: str) -> bool:
    loaded = json.loads(grammar)
    assert loaded["type"] == "lark"
    lark = LLMatcher.grammar_from_lark(loaded["grammar"])
    is_error, said = LLMatcher.validate_grammar_with_warnings(lark, VOCABULARY)
    assert not is_error, said
    matcher = LLMatcher(VOCABULARY, lark)
    ids = list(text.encode())
    return matcher.try_consume_tokens(ids) == len(ids) and matcher.is_accepting()


def call(name: str, arguments: str, key: str = "arguments") -> str:
    return f'{{"name": "{name}", "{key}": {arguments}}}'


GOOD = '{"city": "Köln", "days": 3}'
TEXTS: list[tuple[ToolFormat, str, bool]] = [
    (HERMES, f"<tool_call>\n{call('weather', GOOD)}\n</tool_call>", True),
    (HERMES, f"<tool_call>\n{call('now', '{}')}\n</tool_call>", True),
    (HERMES, f"<tool_call>\n{call('now', GOOD)}\n</tool_call>", False),
    (HERMES, f"<tool_call>\n{call('other', '{}')}\n</tool_call>", False),
    (HERMES, f"<tool_call>\n{call('weather', '{}')}\n</tool_call>", False),
    (HERMES, f"<tool_call>\n{call('weather', GOOD)}", False),
    (HERMES, "Hello", False),
    (LLAMA, call("weather", GOOD, "parameters"), True),
    (LLAMA, call("weather", '{"city": 1}', "parameters"), False),
    (LLAMA, call("weather", GOOD), False),
    (MISTRAL, f"[TOOL_CALLS][{call('weather', GOOD)}]", True),
    (MISTRAL, f"[TOOL_CALLS] [{call('now', '{}')}]", True),
    (MISTRAL, "[TOOL_CALLS][]", False),
]


@pytest.mark.parametrize(("format", "text", "good"), TEXTS)
def test_a_call_of_a_tool_fits_and_nothing_else(
    format: ToolFormat,  # noqa: A002
    text: str,
    good: bool,
) -> None:
    assert accepts(forced_call(format, TOOLS), text) is good


@pytest.mark.parametrize(("format", "text", "good"), [case for case in TEXTS if case[2]])
def test_what_fits_is_read_back_as_that_call(
    format: ToolFormat,  # noqa: A002
    text: str,
    good: bool,
) -> None:
    reader = ToolCallReader(format, ["weather", "now"])
    parts = [*reader.feed(text), *reader.finish()]
    assert [type(part) for part in parts] == [Called]


def test_markers_that_are_tokens_may_be_those() -> None:
    ids = {"<tool_call>": 300, "</tool_call>": 301, "[TOOL_CALLS]": 302}
    hermes, mistral = (
        json.loads(forced_call(each, TOOLS, marker_ids=ids))["grammar"].splitlines()[0]
        for each in (HERMES, MISTRAL)
    )
    assert '( <[300]> | "<tool_call>" )' in hermes
    assert '( <[301]> | "</tool_call>" )' in hermes
    assert '( <[302]> | "[TOOL_CALLS]" )' in mistral


def test_a_tool_by_name_is_the_only_one() -> None:
    grammar = forced_call(LLAMA, TOOLS, "now")
    assert accepts(grammar, call("now", "{}", "parameters"))
    assert not accepts(grammar, call("weather", GOOD, "parameters"))
    with pytest.raises(BadRequest, match="tool_choice: no tool is named 'other'"):
        forced_call(LLAMA, TOOLS, "other")


def test_the_grammar_is_one_that_sampling_takes() -> None:
    assert Sampling(grammar=forced_call(HERMES, TOOLS)).grammar
    described = {"type": "object", "description": "x" * 70_000}
    with pytest.raises(BadRequest, match="tools: a grammar of"):
        forced_call(
            HERMES, [{"type": "function", "function": {"name": "f", "parameters": described}}]
        )


def test_no_schema_gets_out_of_its_rule() -> None:
    nasty = {
        "properties": {'"}\nstart: "x"\n': {"const": '"\n%ignore /./'}},
        "x-guidance": {"a": 1},
    }
    tool = {"type": "function", "function": {"name": "f", "parameters": nasty}}
    grammar = forced_call(LLAMA, [tool])
    assert accepts(grammar, call("f", "{}", "parameters"))
    assert not accepts(grammar, "x")


def test_a_schema_beyond_the_engine_is_an_error_only_where_it_is_strict() -> None:
    schema = {"type": "object", "not": {"required": ["x"]}}

    def valid(strict: bool) -> bool:
        function = {"name": "f", "parameters": schema, "strict": strict}
        grammar = json.loads(forced_call(LLAMA, [{"type": "function", "function": function}]))
        lark = LLMatcher.grammar_from_lark(grammar["grammar"])
        return not LLMatcher.validate_grammar_with_warnings(lark, VOCABULARY)[0]

    assert (valid(False), valid(True)) == (True, False)


def test_tools_are_read_with_what_they_leave_out() -> None:
    nulls = {"name": "f", "description": None, "parameters": None, "strict": None}
    nothing = {"type": "object", "properties": {}, "additionalProperties": False}
    assert check_tools([{"type": "function", "function": nulls}]) == [Tool("f", nothing, False)]
    assert check_tools(TOOLS)[0] == Tool("weather", SCHEMA, False)
    assert check_tools([]) == []


def function(**fields: object) -> Mapping[str, object]:
    return {"type": "function", "function": {"name": "f", **fields}}


@pytest.mark.parametrize(
    ("tool", "named"),
    [
        (3, r"tools\[1\] must be an object"),
        ({}, r'tools\[1\]\.type must be "function"'),
        ({"type": "web_search"}, r"tools\[1\]\.type"),
        ({"type": "function"}, r"tools\[1\]\.function must be an object"),
        ({**function(), "extra": 1}, r"tools\[1\]\.extra is not a field"),
        (function(extra=1), r"tools\[1\]\.function\.extra is not a field"),
        (function(name=""), r"tools\[1\]\.function\.name must be"),
        (function(name="a b"), r"function\.name must be"),
        (function(name="x" * 65), r"function\.name must be"),
        (function(name="f\n"), r"function\.name must be"),
        (function(name=None), r"function\.name must be"),
        (function(description=1), r"function\.description must be a string"),
        (function(strict="yes"), r"function\.strict must be true or false"),
        (function(parameters=[]), r"function\.parameters must be an object"),
        (function(parameters={"type": "string"}), r'parameters\.type must be "object"'),
        (TOOLS[0], r"tools\[1\]\.function\.name: 'weather' is there twice"),
    ],
)
def test_a_tool_out_of_shape_is_named(tool: Any, named: str) -> None:
    with pytest.raises(BadRequest, match=named):
        check_tools([TOOLS[0], tool])
