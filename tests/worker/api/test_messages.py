"""Content in three shapes, for each role, and what belongs to which."""

from __future__ import annotations

from typing import Any

import pytest

from tessella.core.completions import ChatMessage, ToolCall
from tessella.core.errors import UnsupportedField
from tessella.web.errors import BadField
from tessella.worker.api.bodies import ChatBody

ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}


def read(*messages: dict[str, Any]) -> list[ChatMessage]:
    return [each.plain() for each in ChatBody.model_validate({"messages": [*messages]}).messages]


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("Hi", "Hi"),
        ("", ""),
        ([{"type": "text", "text": "Hi"}], "Hi"),
        ([{"type": "text", "text": "H"}, {"type": "input_text", "text": "i 汉"}], "Hi 汉"),
        ([], ""),
    ],
)
@pytest.mark.parametrize("role", ROLES)
def test_a_text_and_its_parts_are_the_same(role: str, content: Any, text: str) -> None:
    assert read({"role": role, "content": content}) == [ChatMessage(ROLES[role], text)]


@pytest.mark.parametrize("nothing", [{}, {"content": None}])
def test_only_an_assistant_may_have_said_nothing(nothing: dict[str, None]) -> None:
    assert read({"role": "assistant", **nothing}) == [ChatMessage("assistant", "")]
    for role in ("system", "developer", "user"):
        with pytest.raises(BadField, match=rf"messages\[0\]: .* role {role} needs a content"):
            read({"role": role, **nothing})


def test_calls_and_their_answers_are_kept() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
    assert read(
        {"role": "user", "content": "Hi", "name": "ann"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "content": "7", "tool_call_id": "c1"},
    ) == [
        ChatMessage("user", "Hi", name="ann"),
        ChatMessage("assistant", "", tool_calls=(ToolCall("c1", "f", '{"a": 1}'),)),
        ChatMessage("tool", "7", tool_call_id="c1"),
    ]


def test_an_answer_can_be_sent_back_as_clients_dump_it() -> None:
    dumped: dict[str, Any] = {
        "role": "assistant",
        "content": "Hi",
        "refusal": None,
        "annotations": [],
        "audio": None,
        "function_call": None,
        "tool_calls": None,
        "reasoning_content": None,
    }
    assert read(dumped) == [ChatMessage("assistant", "Hi")]


@pytest.mark.parametrize(
    ("message", "place"),
    [
        ({"role": "function", "content": "x", "name": "f"}, "role"),
        ({"role": "user", "content": [{"type": "image_url", "image_url": {}}]}, "content[0]"),
        (
            {
                "role": "user",
                "content": [{"type": "text", "text": "x"}, {"type": "input_audio", "a": 1}],
            },
            "content[1]",
        ),
        ({"role": "user", "content": [{"type": "file", "file": {}}]}, "content[0]"),
        ({"role": "assistant", "content": [{"type": "refusal", "refusal": "x"}]}, "content[0]"),
        ({"role": "assistant", "content": "x", "function_call": {"name": "f"}}, "function_call"),
        ({"role": "assistant", "content": "x", "audio": {"id": "x"}}, "audio"),
        ({"role": "user", "content": "x", "cache_control": {}}, "cache_control"),
        ({"role": "user", "content": [{"type": "text", "text": "x", "y": 1}]}, "content[0].y"),
    ],
)
def test_what_a_model_of_texts_cannot_read_is_refused_with_its_place(
    message: dict[str, Any], place: str
) -> None:
    with pytest.raises(UnsupportedField) as caught:
        read({"role": "user", "content": "x"}, message)
    assert caught.value.field == f"messages[1].{place}"


@pytest.mark.parametrize(
    ("message", "place"),
    [
        ("Hi", ""),
        ({"content": "x"}, ".role"),
        ({"role": "user", "content": 5}, ".content"),
        ({"role": "user", "content": ["x"]}, ".content[0]"),
        ({"role": "user", "content": [{"text": "x"}]}, ".content[0].type"),
        ({"role": "user", "content": [{"type": "text"}]}, ".content[0].text"),
        ({"role": "user", "content": [{"type": "text", "text": None}]}, ".content[0].text"),
        ({"role": "user", "content": "x", "tool_call_id": "c"}, ""),
        ({"role": "tool", "content": "x"}, ""),
        ({"role": "tool", "content": None, "tool_call_id": "c"}, ""),
        ({"role": "assistant", "tool_calls": [{"id": "c"}]}, ".tool_calls[0].function"),
    ],
)
def test_what_breaks_a_rule_is_named_with_its_place(message: Any, place: str) -> None:
    with pytest.raises(BadField) as caught:
        read({"role": "user", "content": "x"}, message)
    assert caught.value.field == f"messages[1]{place}"


def test_only_an_assistant_calls() -> None:
    call = {"id": "c1", "function": {"name": "f", "arguments": "{}"}}
    with pytest.raises(BadField, match="only an assistant"):
        read({"role": "user", "content": "x", "tool_calls": [call]})


@pytest.mark.parametrize("messages", [[], [{"role": "user", "content": "x"}] * 4097, None, "Hi"])
def test_a_conversation_has_a_beginning_and_an_end(messages: Any) -> None:
    with pytest.raises(BadField, match=r"^messages: "):
        ChatBody.model_validate({"messages": messages})
