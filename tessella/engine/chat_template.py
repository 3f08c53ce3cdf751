"""A model's chat template: Jinja2, sandboxed, with what HuggingFace templates expect to find.

A template is a stranger's program. It sees plain values only, changes nothing, and its steps and
its output are bounded while it runs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cached_property

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser

from tessella.core.errors import BadRequest, BadWeights, UnsupportedField
from tessella.core.tensors import MIB
from tessella.core.text import one_line
from tessella.core.tool_calls import ToolFormat, format_of
from tessella.engine.chat_messages import Messages, template_messages, without_system
from tessella.engine.template_budget import BudgetedEnvironment, counting

# Longer than the prompt of any context served; a template that writes more is running away.
MAX_PROMPT_CHARS = 8 * MIB
MAX_TEMPLATE_CHARS = MIB
# Of a template's own words, in the error that a client is told.
MAX_REFUSAL_CHARS = 300

# Stands in for a system message to see whether it is written at all. Nobody's prompt holds it, and
# no filter changes it.
_PROBE = "tessella5f3ac1d2probe"

# What a template's own mistakes look like from outside, beside Jinja's errors.
_MISTAKES = (
    ArithmeticError, AttributeError, LookupError, MemoryError, RecursionError, SyntaxError,
    TypeError, ValueError,
)  # fmt: skip


class ChatTemplate:
    """One template, or one with another for conversations with tools.

    It is compiled when it is first rendered.
    """

    def __init__(self, source: str, *, tool_source: str | None = None) -> None:
        """Raises BadWeights for a source that is too long."""
        for text in (source, tool_source or ""):
            if len(text) > MAX_TEMPLATE_CHARS:
                raise BadWeights(
                    f"a chat template of {len(text)} characters, at most {MAX_TEMPLATE_CHARS}"
                )
        self._source = source
        self._tools = None if tool_source is None else ChatTemplate(tool_source)

    def compile(self) -> None:
        """Raises BadWeights if it is no template."""
        _ = self._compiled
        if self._tools is not None:
            self._tools.compile()

    @cached_property
    def supports_tools(self) -> bool:
        """Whether it does something with the tools it is given."""
        if self._tools is not None:
            return self._tools.supports_tools
        try:
            names = list(_environment().parse(self._source).find_all(nodes.Name))
        except (jinja2.TemplateError, *_MISTAKES):
            return False
        return any(each.name == "tools" and each.ctx == "load" for each in names)

    @property
    def tool_format(self) -> ToolFormat | None:
        """How the model writes its calls; None without tools, or if we cannot read them."""
        if self._tools is not None:
            return self._tools.tool_format
        return format_of(self._source) if self.supports_tools else None

    def render(
        self,
        messages: Sequence[Mapping[str, object]],
        *,
        tools: Sequence[Mapping[str, object]] = (),
        add_generation_prompt: bool,
        special_tokens: Mapping[str, str],
    ) -> str:
        """The prompt for a conversation; messages are those of `template_messages`.

        Where the template has no place for a leading system message, the first user says it.
        Raises BadRequest with the template's own words if it refuses the conversation, and
        UnsupportedField for tools that it has no place for.
        """
        plain = template_messages(messages)
        if tools and not self.supports_tools:
            raise UnsupportedField("tools", "the chat template of this model has no place for them")
        chosen = self._tools if tools and self._tools is not None else self
        values: dict[str, object] = {
            **special_tokens,
            "tools": [dict(tool) for tool in tools] or None,
            "documents": None,
            "add_generation_prompt": add_generation_prompt,
        }
        if plain[0]["role"] != "system":
            return chosen._write(plain, values)
        return chosen._write_system(plain, values)

    def _write_system(self, plain: Messages, values: dict[str, object]) -> str:
        refusal = BadRequest("chat template: it has no place for a system message")
        try:
            text = self._write(plain, values)
            if _PROBE in self._write([{**plain[0], "content": _PROBE}, *plain[1:]], values):
                return text
        except BadRequest as exc:
            refusal = exc
        folded = without_system(plain)
        if folded is None:
            raise refusal
        try:
            return self._write(folded, values)
        except BadRequest:
            raise refusal from None

    def _write(self, messages: Messages, values: dict[str, object]) -> str:
        pieces: list[str] = []
        length = 0
        try:
            for piece in self._compiled.generate(values, messages=messages):
                length += len(piece)
                if length > MAX_PROMPT_CHARS:
                    raise BadRequest(f"the conversation is over {MAX_PROMPT_CHARS} characters")
                pieces.append(piece)
        except (jinja2.TemplateError, *_MISTAKES) as exc:
            raise BadRequest(f"chat template: {_shortened(exc)}") from exc
        return "".join(pieces)

    @cached_property
    def _compiled(self) -> jinja2.Template:
        try:
            return _environment().from_string(self._source)
        except (jinja2.TemplateError, *_MISTAKES) as exc:
            raise BadWeights(
                f"the model's chat template cannot be compiled: {_shortened(exc)}"
            ) from exc


def _shortened(exc: Exception) -> str:
    said = str(exc)[: 2 * MAX_REFUSAL_CHARS] or type(exc).__name__
    line = one_line(said).strip()
    return line if len(line) <= MAX_REFUSAL_CHARS else f"{line[:MAX_REFUSAL_CHARS]}…"


def _environment() -> jinja2.Environment:
    environment = BudgetedEnvironment([_Generation, loopcontrols])
    environment.filters["tojson"] = counting(_to_json)
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _strftime_now
    return environment


class _Generation(Extension):
    """`{% generation %}` marks what the assistant said, for training; here it is only a bracket."""

    tags = {"generation"}  # noqa: RUF012  # Jinja's own declaration

    def parse(self, parser: Parser) -> list[nodes.Node]:
        """The statements between the tags."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _to_json(
    value: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    # Jinja's own filter escapes for HTML.
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _raise_exception(message: str) -> None:
    raise jinja2.TemplateError(message)


def _strftime_now(pattern: str) -> str:
    return datetime.now().strftime(pattern)
