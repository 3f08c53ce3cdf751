"""A model's chat template: Jinja2, sandboxed, with what HuggingFace templates expect to find.

A template is a stranger's program. It sees plain strings only, changes nothing, and its output is
bounded as it is written.
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
from jinja2.sandbox import ImmutableSandboxedEnvironment

from tessella.core.errors import BadRequest, BadWeights
from tessella.core.tensors import MIB

# Longer than the prompt of any context served; a template that writes more is running away.
MAX_PROMPT_CHARS = 8 * MIB
MAX_TEMPLATE_CHARS = MIB

# What a template's own mistakes look like from outside, beside Jinja's errors.
_MISTAKES = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)


class ChatTemplate:
    """One template. It is compiled when it is first rendered."""

    def __init__(self, source: str) -> None:
        """Raises BadWeights for a source that is too long."""
        if len(source) > MAX_TEMPLATE_CHARS:
            raise BadWeights(f"a chat template of {len(source)} characters")
        self._source = source

    @cached_property
    def _compiled(self) -> jinja2.Template:
        try:
            return _environment().from_string(self._source)
        except (jinja2.TemplateError, *_MISTAKES) as exc:
            raise BadWeights(f"the model's chat template cannot be compiled: {exc}") from exc

    def render(
        self,
        messages: Sequence[Mapping[str, object]],
        *,
        add_generation_prompt: bool,
        special_tokens: Mapping[str, str],
    ) -> str:
        """The prompt for a conversation: each message has a `role` and a `content`, both strings.

        Raises BadRequest with the template's own words if the template refuses the conversation.
        """
        pieces: list[str] = []
        length = 0
        values = {**special_tokens, "messages": _plain(messages), "tools": None, "documents": None}
        try:
            for piece in self._compiled.generate(
                values, add_generation_prompt=add_generation_prompt
            ):
                length += len(piece)
                if length > MAX_PROMPT_CHARS:
                    raise BadRequest(f"the conversation is over {MAX_PROMPT_CHARS} characters")
                pieces.append(piece)
        except (jinja2.TemplateError, *_MISTAKES) as exc:
            raise BadRequest(f"chat template: {exc}") from exc
        return "".join(pieces)


def _plain(messages: Sequence[Mapping[str, object]]) -> list[dict[str, str]]:
    if not messages:
        raise BadRequest("messages must hold at least one message")
    plain = []
    for position, message in enumerate(messages):
        for key in ("role", "content"):
            if not isinstance(message.get(key), str):
                raise BadRequest(f"messages[{position}].{key} must be a string")
        plain.append({key: text for key, text in message.items() if isinstance(text, str)})
    return plain


def _environment() -> jinja2.Environment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols]
    )
    environment.filters["tojson"] = _to_json
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
