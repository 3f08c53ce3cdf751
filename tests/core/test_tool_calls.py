"""Calls are read out of an answer however it is cut, and nothing of the rest is lost."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tessella.core import tool_calls
from tessella.core.tool_calls import Called, Said, ToolCallReader, ToolFormat, format_of

HERMES, LLAMA, MISTRAL = ToolFormat.HERMES, ToolFormat.LLAMA, ToolFormat.MISTRAL
ADD = Called(0, "add", '{"a":1}')
MUL = Called(1, "mul", "{}")
ADD_JSON = '{"name": "add", "arguments": {"a": 1}}'
MUL_JSON = '{"name": "mul", "arguments": {}}'
LLAMA_ADD = '{"name": "add", "parameters": {"a": 1}}'
LLAMA_MUL = '{"name": "mul", "parameters": {}}'


def joined(parts: list[Said | Called]) -> list[str | Called]:
    """The answer with adjacent pieces of text as one."""
    found: list[str | Called] = []
    for part in parts:
        if isinstance(part, Called):
            found.append(part)
        elif found and isinstance(found[-1], str):
            found[-1] += part.text
        else:
            found.append(part.text)
    return found


def read(
    format: ToolFormat,  # noqa: A002
    pieces: list[str],
    names: tuple[str, ...] = (),
) -> list[str | Called]:
    reader = ToolCallReader(format, names)
    parts = [part for piece in pieces for part in reader.feed(piece)]
    return joined([*parts, *reader.finish()])


CALLS: list[tuple[ToolFormat, str, list[str | Called]]] = [
    (HERMES, f"<tool_call>\n{ADD_JSON}\n</tool_call>", [ADD]),
    (HERMES, f"<tool_call>{ADD_JSON}", [ADD]),
    (HERMES, f"<tool_call>{ADD_JSON}\n</tool_", [ADD]),
    (HERMES, f"Let me.\n\n<tool_call>{ADD_JSON}</tool_call>\n", ["Let me.", ADD]),
    (
        HERMES,
        f"<tool_call>{ADD_JSON}</tool_call>\n<tool_call>{MUL_JSON}</tool_call> done",
        [ADD, MUL, " done"],
    ),
    (HERMES, f"<tool_call>{ADD_JSON}<tool_call>{MUL_JSON}</tool_call>", [ADD, MUL]),
    (HERMES, f"<tool_call>{ADD_JSON} and </tool_call>", [ADD, " and </tool_call>"]),
    (HERMES, f"<<tool_call>{ADD_JSON}</tool_call>", ["<", ADD]),
    (HERMES, f"<tool_call><tool_call>{ADD_JSON}</tool_call>", ["<tool_call>", ADD]),
    (HERMES, '<tool_call>{"name": "mul"}</tool_call>', [Called(0, "mul", "{}")]),
    (HERMES, '<tool_call>{"arguments": "{\\"a\\": 1}", "name": "add"}</tool_call>', [ADD]),
    (LLAMA, LLAMA_ADD, [ADD]),
    (LLAMA, f"\n {LLAMA_ADD} \n", [ADD]),
    (LLAMA, f"<|python_tag|>{LLAMA_ADD}", [ADD]),
    (LLAMA, f"{LLAMA_ADD}; {LLAMA_MUL}", [ADD, MUL]),
    (LLAMA, f"{LLAMA_ADD}\n{LLAMA_MUL}", [ADD, MUL]),
    (LLAMA, f"Yes: <|python_tag|>{LLAMA_ADD}", ["Yes:", ADD]),
    (LLAMA, f"{LLAMA_ADD} is it", [ADD, " is it"]),
    (LLAMA, f"{LLAMA_ADD};; {{}}", [ADD, ";; {}"]),
    (LLAMA, '{"type": "function", "name": "add", "parameters": {"a": 1}}', [ADD]),
    (MISTRAL, f"[TOOL_CALLS][{ADD_JSON}]", [ADD]),
    (MISTRAL, f"[TOOL_CALLS] [{ADD_JSON}, {MUL_JSON}]", [ADD, MUL]),
    (MISTRAL, f"[TOOL_CALLS]{ADD_JSON}", [ADD]),
    (MISTRAL, f"Hm [[TOOL_CALLS][{ADD_JSON}] ok", ["Hm [", ADD, " ok"]),
    (MISTRAL, f"[TOOL_CALLS][{ADD_JSON}, {{oops}}]", [ADD, ", {oops}]"]),
    (MISTRAL, f"[TOOL_CALLS][{ADD_JSON}][TOOL_CALLS][{MUL_JSON}]", [ADD, MUL]),
]


@pytest.mark.parametrize(("format", "text", "expected"), CALLS)
def test_calls_are_taken_out_whole_and_cut(
    format: ToolFormat,  # noqa: A002
    text: str,
    expected: list[str | Called],
) -> None:
    assert read(format, [text]) == expected
    assert read(format, list(text)) == expected


NO_CALLS = [
    (HERMES, "a < b and <tool_ for <tool_call"),
    (HERMES, "<tool_call>not JSON</tool_call>"),
    (HERMES, '<tool_call>{"name": 1, "arguments": {}}</tool_call>'),
    (HERMES, '<tool_call>{"name": "", "arguments": {}}</tool_call>'),
    (HERMES, '<tool_call>{"name": "f", "arguments": [1]}</tool_call>'),
    (HERMES, '<tool_call>{"name": "f", "arguments": {"x": NaN}}</tool_call>'),
    (HERMES, '<tool_call>{"name": "f", "arguments": {"x": 1e999}}</tool_call>'),
    (HERMES, '<tool_call>{"name": "f", "arguments": {"x": "\\ud800"}}</tool_call>'),
    (HERMES, '<tool_call>{"name": "f", "arguments": "{"}</tool_call>'),
    (HERMES, '<tool_call>{"name": "f", "argum'),
    (HERMES, '<tool_call>{"a": ' + '{"a": ' * 20_000),
    (HERMES, ADD_JSON),
    (LLAMA, '{"name": "Ada", "age": 36}'),
    (LLAMA, '{"name": "Ada"}'),
    (LLAMA, '{"name": "add", "parameters": {}, "why": 1}'),
    (LLAMA, f"So: {LLAMA_ADD}"),
    (LLAMA, '<|python_tag|>search.call(query="x")'),
    (MISTRAL, "[TOOL_CALLS]"),
    (MISTRAL, "[TOOL_CALLS][]"),
    (MISTRAL, "[TOOL_CALLS][[{}]]"),
    (MISTRAL, "[TOOL_CALLS],{}"),
    (MISTRAL, "see [1] and [TOOL"),
]


@pytest.mark.parametrize(("format", "text"), NO_CALLS)
def test_what_only_looked_like_a_call_is_text(
    format: ToolFormat,  # noqa: A002
    text: str,
) -> None:
    assert read(format, [text]) == [text]
    assert read(format, list(text)) == [text]


PARTS = [
    " ", "\n", "a", "<", "[", "{", "}", '"', "\\", ",", ";", "]", "1",
    "<tool_call>", "</tool_call>", "[TOOL_CALLS]", "<|python_tag|>",
    '{"name": "add"', '"arguments": {}', '"parameters": {}',
]  # fmt: skip
CALL_PARTS = [*PARTS, ADD_JSON, MUL_JSON, LLAMA_ADD, LLAMA_MUL]


def cut(text: str, places: list[int]) -> list[str]:
    bounds = [0, *sorted(place % (len(text) + 1) for place in places), len(text)]
    return [text[start:stop] for start, stop in pairwise(bounds)]


@given(
    st.sampled_from(ToolFormat),
    st.lists(st.sampled_from(CALL_PARTS), max_size=12).map("".join),
    st.lists(st.integers(0, 10_000), max_size=8),
)
def test_no_cut_changes_the_answer(
    format: ToolFormat,  # noqa: A002
    text: str,
    places: list[int],
) -> None:
    whole = read(format, [text])
    assert read(format, cut(text, places)) == whole
    if not any(isinstance(part, Called) for part in whole):
        assert "".join(map(str, whole)) == text


@given(st.sampled_from(ToolFormat), st.text(max_size=40))
def test_text_without_calls_comes_out_as_it_went_in(
    format: ToolFormat,  # noqa: A002
    text: str,
) -> None:
    assert "".join(map(str, read(format, list(text)))) == text


def test_text_is_passed_on_as_soon_as_it_cannot_be_a_call() -> None:
    reader = ToolCallReader(HERMES)
    assert reader.feed("Hello") == [Said("Hello")]
    assert reader.feed(" <tool") == []
    assert reader.feed("box>") == [Said(" <toolbox>")]
    assert reader.feed(f"<tool_call>{ADD_JSON}") == [ADD]
    assert reader.finish() == []


def test_blanks_are_not_held_back_without_end() -> None:
    reader = ToolCallReader(HERMES)
    said = "".join(part.text for part in reader.feed(" " * 1000) if isinstance(part, Said))
    assert len(said) >= 1000 - tool_calls.MAX_HELD_SPACE - 1


def test_a_call_without_end_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tool_calls, "MAX_CALL_CHARS", 100)
    reader = ToolCallReader(HERMES)
    text = '<tool_call>{"name": "' + "x" * 90
    assert joined(reader.feed(text)) == [text]
    assert reader.feed("y") == [Said("y")]


@pytest.mark.parametrize("blank", ["\n" * 1000, "[" * 1000])
def test_what_stands_between_marker_and_object_is_short(blank: str) -> None:
    reader = ToolCallReader(MISTRAL)
    said = joined(reader.feed(f"[TOOL_CALLS]{blank}x"))
    assert said == [f"[TOOL_CALLS]{blank}x"]


def test_only_the_tools_that_there_are_can_be_called() -> None:
    text = f"<tool_call>{ADD_JSON}</tool_call>"
    assert read(HERMES, [text], ("mul",)) == [text]
    assert read(HERMES, [text], ("add", "mul")) == [ADD]


def test_arguments_keep_their_values() -> None:
    arguments = {"text": 'é\n"}{', "list": [1, None, {"x": [True]}], "number": 0.1}
    call = json.dumps({"name": "f", "arguments": arguments})
    found = read(HERMES, list(f"<tool_call>{call}</tool_call>"))[0]
    assert isinstance(found, Called)
    assert json.loads(found.arguments) == arguments
    assert "é" in found.arguments


def test_a_line_end_that_a_model_forgot_to_escape_is_let_through() -> None:
    found = read(HERMES, ['<tool_call>{"name": "f", "arguments": {"x": "a\nb"}}</tool_call>'])
    assert found == [Called(0, "f", '{"x":"a\\nb"}')]


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ('…<tool_call>\\n{"name": …', HERMES),
        ("{{ '[TOOL_CALLS]' }}", MISTRAL),
        ('{"name": function name, "parameters": dictionary of argument name', LLAMA),
        ("{{ '<|python_tag|>' }}", LLAMA),
        ("<tool_call>\n<function=name>", None),
        ("<tool_call>name\n<arg_key>", None),
        ("[TOOL_CALLS]name[ARGS]{}", None),
        ("{% for tool in tools %}{{ tool }}{% endfor %}", None),
        ("", None),
    ],
)
def test_the_format_is_told_by_the_template(template: str, expected: ToolFormat | None) -> None:
    assert format_of(template) is expected


def test_the_markers_of_a_format_are_those_around_its_calls() -> None:
    assert HERMES.markers == ("<tool_call>", "</tool_call>")
    assert (LLAMA.markers, MISTRAL.markers) == (("<|python_tag|>",), ("[TOOL_CALLS]",))
