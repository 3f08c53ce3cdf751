"""Messages reach a template with what is set, and with arguments as objects."""

from __future__ import annotations

from typing import Any

import pytest

from tessella.core.errors import BadRequest
from tessella.engine.chat_messages import template_messages, without_system

CALL = {"id": "1", "name": "f", "arguments": '{"a": 1}'}


def test_what_is_not_set_is_not_there() -> None:
    bare = {"role": "user", "content": "", "name": "", "tool_calls": (), "tool_call_id": ""}
    assert template_messages([bare]) == [{"role": "user", "content": ""}]


def test_what_is_set_is_in_the_form_of_templates() -> None:
    full = {"role": "r", "content": "c", "name": "n", "tool_calls": [CALL], "tool_call_id": "i"}
    function = {"name": "f", "arguments": {"a": 1}}
    call = {"type": "function", "id": "1", "function": function}
    assert template_messages([full]) == [{**full, "tool_calls": [call]}]


@pytest.mark.parametrize("arguments", ["", " ", "{}"])
def test_a_call_may_be_without_arguments(arguments: str) -> None:
    message: Any = {
        "role": "assistant",
        "content": "",
        "tool_calls": [{**CALL, "arguments": arguments}],
    }
    (plain,) = template_messages([message])
    assert plain["tool_calls"][0]["function"]["arguments"] == {}  # type: ignore[index]


@pytest.mark.parametrize(
    ("calls", "named"),
    [
        (3, r"messages\[0\].tool_calls must be an array"),
        (["x"], r"messages\[0\].tool_calls\[0\] must be an object"),
        ([{**CALL, "id": 1}], r"tool_calls\[0\].id must be a string"),
        ([CALL, {**CALL, "name": None}], r"tool_calls\[1\].name must be a string"),
        ([{**CALL, "arguments": {}}], r"arguments must be a string"),
        ([{**CALL, "arguments": "{"}], r"arguments must be JSON text"),
        ([{**CALL, "arguments": "[" * 99_999}], r"arguments must be JSON text"),
        ([{**CALL, "arguments": "[1]"}], r"arguments must be the text of a JSON object"),
    ],
)
def test_a_call_out_of_shape_is_named(calls: Any, named: str) -> None:
    with pytest.raises(BadRequest, match=named):
        template_messages([{"role": "assistant", "content": "", "tool_calls": calls}])


def test_the_system_message_goes_into_the_first_of_a_user() -> None:
    system: dict[str, object] = {"role": "system", "content": " S "}
    first: dict[str, object] = {"role": "assistant", "content": "A"}
    user: dict[str, object] = {"role": "user", "content": "U"}
    assert without_system([system, first, user, user]) == [
        first,
        {"role": "user", "content": "S\n\nU"},
        user,
    ]
    assert without_system([system, first]) is None
