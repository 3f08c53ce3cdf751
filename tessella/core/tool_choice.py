"""The tools of a request: their shape, and the grammar of an answer that has to call one."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tessella.core.config_keys import shown
from tessella.core.errors import BadRequest
from tessella.core.sampling import MAX_GRAMMAR_BYTES
from tessella.core.tool_calls import ToolFormat

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_FIELDS = {"name", "description", "parameters", "strict"}
# As models were trained to write it. Free blank space is a place where a small one never leaves.
_SPACING = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}


@dataclass(frozen=True, slots=True)
class Tool:
    """A function that may be called, and the JSON Schema of its arguments."""

    name: str
    parameters: Mapping[str, object]
    strict: bool
    """Whether a schema that cannot be followed to the letter is an error."""


def check_tools(tools: Sequence[Mapping[str, object]]) -> list[Tool]:
    """The functions that are described as OpenAI describes them.

    Raises BadRequest that names the field that breaks the shape.
    """
    checked = [_tool(f"tools[{place}]", tool) for place, tool in enumerate(tools)]
    seen: set[str] = set()
    for place, tool in enumerate(checked):
        if tool.name in seen:
            raise BadRequest(f"tools[{place}].function.name: {tool.name!r} is there twice")
        seen.add(tool.name)
    return checked


def forced_call(
    format: ToolFormat,  # noqa: A002
    tools: Sequence[Mapping[str, object]],
    tool_name: str = "",
    *,
    marker_ids: Mapping[str, int] | None = None,
) -> str:
    """What `Sampling.grammar` must be for the answer to be one call of a tool, or of that tool.

    `marker_ids` are the markers of the format that are tokens of their own. Raises BadRequest for
    tools that break their shape, a name that none of them has, or more than a grammar may hold.
    """
    chosen = [tool for tool in check_tools(tools) if tool_name in ("", tool.name)]
    if not chosen:
        raise BadRequest(f"tool_choice: no tool is named {shown(tool_name)}")
    lark = "\n".join(_rules(format, chosen, marker_ids or {}))
    grammar = json.dumps({"type": "lark", "grammar": lark})
    if len(grammar) > MAX_GRAMMAR_BYTES:
        raise BadRequest(
            f"tools: a grammar of {len(grammar)} bytes to call one, at most {MAX_GRAMMAR_BYTES}"
        )
    return grammar


def _rules(format: ToolFormat, tools: list[Tool], ids: Mapping[str, int]) -> list[str]:  # noqa: A002
    key = "parameters" if format is ToolFormat.LLAMA else "arguments"
    marker, closing = (*(_marker(text, ids) for text in format.markers), "")[:2]
    match format:
        case ToolFormat.HERMES:
            start = f'{marker} "\\n" call "\\n" {closing}'
        case ToolFormat.MISTRAL:
            start = f'{marker} " "? "[" call "]"'
        case ToolFormat.LLAMA:
            start = "call"
    rules = [f"start: {start}", "call: " + " | ".join(f"call_{n}" for n in range(len(tools)))]
    for number, tool in enumerate(tools):
        head = f'{{"name": {json.dumps(tool.name)}, "{key}": '
        rules.append(f'call_{number}: {json.dumps(head)} arguments_{number} "}}"')
        options = {**_SPACING, "lenient": not tool.strict}
        schema = json.dumps({**tool.parameters, "x-guidance": options})
        rules.append(f"arguments_{number}: %json {schema}")
    return rules


def _marker(text: str, ids: Mapping[str, int]) -> str:
    literal = json.dumps(text)
    return f"( <[{ids[text]}]> | {literal} )" if text in ids else literal


def _tool(where: str, tool: object) -> Tool:
    tool = _object(where, tool, {"type", "function"})
    if tool.get("type") != "function":
        raise BadRequest(f'{where}.type must be "function", not {shown(tool.get("type"))}')
    where = f"{where}.function"
    function = _object(where, tool.get("function"), _FIELDS)
    name = function.get("name")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise BadRequest(f"{where}.name must be 1 to 64 letters, digits, - or _, not {shown(name)}")
    if not isinstance(function.get("description"), str | None):
        raise BadRequest(f"{where}.description must be a string")
    strict = function.get("strict")
    if not isinstance(strict, bool | None):
        raise BadRequest(f"{where}.strict must be true or false, not {shown(strict)}")
    return Tool(name, _parameters(f"{where}.parameters", function.get("parameters")), bool(strict))


def _parameters(where: str, schema: object) -> Mapping[str, object]:
    if schema is None:
        return {"type": "object", "properties": {}, "additionalProperties": False}
    schema = _object(where, schema)
    if schema.get("type", "object") != "object":
        raise BadRequest(f'{where}.type must be "object", not {shown(schema["type"])}')
    return {"type": "object", **schema}


def _object(where: str, value: object, known: set[str] | None = None) -> Mapping[str, object]:
    if not isinstance(value, Mapping):
        raise BadRequest(f"{where} must be an object, not {shown(value)}")
    if known is not None and (unknown := sorted(set(value) - known)):
        raise BadRequest(f"{where}.{shown(unknown[0])[1:-1]} is not a field of it")
    return value
