"""Functions that a model may call, and the form its answer must have."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field

from tessella.core.completions import MAX_TOOLS
from tessella.core.sampling import MAX_GRAMMAR_BYTES
from tessella.web.errors import BadField
from tessella.worker.api.reading import Strict

MAX_TOOLS_BYTES = 256 * 1024
"""All definitions together: a context of 100,000 tokens holds no more."""
_NAME = r"^[a-zA-Z0-9_-]{1,64}$"

Name = Annotated[str, Field(pattern=_NAME)]


class Function(Strict):
    """A function: its name, what it is for, and a JSON schema of its arguments."""

    name: Name
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = Field(
        default=None,
        description="Arguments follow the schema wherever a call is required by `tool_choice`.",
    )


class Tool(Strict):
    """Something that may be called."""

    type: Literal["function"]
    function: Function


class Named(Strict):
    """The name of a function."""

    name: str


class NamedChoice(Strict):
    """The one function that has to be called."""

    type: Literal["function"]
    function: Named


Tools = Annotated[list[Tool], Field(fail_fast=True, max_length=MAX_TOOLS)]
ToolChoice = Literal["auto", "none", "required"] | NamedChoice


class Schema(Strict):
    """A JSON schema under a name. It always holds, with or without `strict`."""

    name: Name
    description: str | None = None
    schema_: dict[str, Any] | None = Field(default=None, alias="schema")
    strict: bool | None = None


class ResponseFormat(Strict):
    """What the answer's text must be."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: Schema | None = None


def plain_tools(tools: Sequence[Tool]) -> tuple[Mapping[str, Any], ...]:
    """The tools as they were sent. Raises BadField for what breaks a rule of all together."""
    names = [tool.function.name for tool in tools]
    if twice := next((name for at, name in enumerate(names) if name in names[:at]), None):
        raise BadField("tools", f"tools: two functions of the name {twice}")
    plain = tuple(tool.model_dump(exclude_none=True) for tool in tools)
    _text("tools", plain, MAX_TOOLS_BYTES)
    return plain


def read_choice(choice: ToolChoice | None, tools: Sequence[Tool]) -> tuple[str, str]:
    """Which of TOOL_CHOICES, and the function that it names or an empty text. Raises BadField."""
    if isinstance(choice, NamedChoice):
        name = choice.function.name
        if name not in {tool.function.name for tool in tools}:
            raise BadField(
                "tool_choice", f"tool_choice: there is no function {name!r:.80} in tools"
            )
        return "required", name
    if choice == "required" and not tools:
        raise BadField("tool_choice", "tool_choice: required, and there are no tools")
    return choice or "auto", ""


def read_grammar(wanted: ResponseFormat | None) -> str:
    """The `Sampling.grammar` of a format; empty for any text. Raises BadField."""
    if wanted is None or wanted.type == "text":
        return ""
    if wanted.type == "json_object":
        return json.dumps({"type": "json_object"})
    if wanted.json_schema is None:
        raise BadField("response_format", "response_format: json_schema is missing")
    schema = wanted.json_schema.schema_
    return _text(
        "response_format.json_schema.schema",
        {"type": "json_object"} if schema is None else {"type": "json_schema", "schema": schema},
        MAX_GRAMMAR_BYTES,
    )


def _text(field: str, value: object, most: int) -> str:
    """JSON of at most so many bytes. Raises BadField."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    except ValueError:
        raise BadField(field, f"{field}: a number that JSON does not have") from None
    if (size := len(text.encode())) > most:
        raise BadField(field, f"{field}: {size} bytes, at most {most}")
    return text
