"""A conversation in the form that HuggingFace chat templates read."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from tessella.core.errors import BadRequest

Messages = list[dict[str, object]]


def template_messages(messages: Sequence[Mapping[str, object]]) -> Messages:
    """Messages with a `role` and a `content`, and of the rest only what is set.

    `tool_calls` are mappings of an id, a name and arguments as JSON text; templates get the
    arguments as an object. Raises BadRequest naming the message and the field.
    """
    if not messages:
        raise BadRequest("messages must hold at least one message")
    return [_message(f"messages[{place}]", message) for place, message in enumerate(messages)]


def without_system(messages: Messages) -> Messages | None:
    """The leading system message as the beginning of the first user's; None if there is none."""
    system, rest = str(messages[0]["content"]).strip(), messages[1:]
    for place, message in enumerate(rest):
        if message["role"] == "user":
            content = f"{system}\n\n{message['content']}" if system else message["content"]
            return [*rest[:place], {**message, "content": content}, *rest[place + 1 :]]
    return None


def _message(where: str, message: Mapping[str, object]) -> dict[str, object]:
    plain: dict[str, object] = {
        key: _text(f"{where}.{key}", message.get(key)) for key in ("role", "content")
    }
    for key in ("name", "tool_call_id"):
        if text := _text(f"{where}.{key}", message.get(key, "")):
            plain[key] = text
    calls = message.get("tool_calls") or ()
    if not isinstance(calls, Sequence):
        raise BadRequest(f"{where}.tool_calls must be an array")
    if calls:
        named = [(f"{where}.tool_calls[{place}]", call) for place, call in enumerate(calls)]
        plain["tool_calls"] = [_call(name, call) for name, call in named]
    return plain


def _call(where: str, call: object) -> dict[str, object]:
    if not isinstance(call, Mapping):
        raise BadRequest(f"{where} must be an object")
    function = {
        "name": _text(f"{where}.name", call.get("name")),
        "arguments": _object(f"{where}.arguments", call.get("arguments")),
    }
    return {"type": "function", "id": _text(f"{where}.id", call.get("id")), "function": function}


def _text(where: str, value: object) -> str:
    if not isinstance(value, str):
        raise BadRequest(f"{where} must be a string")
    return value


def _object(where: str, value: object) -> dict[str, object]:
    text = _text(where, value)
    try:
        # Some clients write a call without arguments as no text at all.
        loaded = json.loads(text) if text.strip() else {}
    except (ValueError, RecursionError) as exc:
        raise BadRequest(f"{where} must be JSON text") from exc
    if not isinstance(loaded, dict):
        raise BadRequest(f"{where} must be the text of a JSON object")
    return loaded
