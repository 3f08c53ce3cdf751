"""What a client asks of an entry: a chat, a text to go on with or a gap to fill, and how."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from tessella.core.errors import BadRequest
from tessella.core.ids import ModelId
from tessella.core.sampling import Sampling

# A prompt of a million tokens is about 4 MB of text; longer ones have no model here.
MAX_REQUEST_BYTES = 4 * 1024 * 1024 - 1024
MAX_MESSAGES = 4096
MAX_TOOLS = 128
MAX_TOOL_CALLS = 128
# Whoever knows a session's name may go on with it, so that it has to be hard to guess.
MIN_SESSION_CHARS, MAX_SESSION_CHARS = 16, 128
TOOL_CHOICES = ("auto", "none", "required")


@dataclass(frozen=True, slots=True)
class ToolCall:
    """What an assistant called: a function by name, with a JSON object as text."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """One turn of a conversation."""

    role: str
    content: str = ""
    name: str = ""
    """Who speaks, or whose answer it is; empty where nobody says."""
    tool_calls: tuple[ToolCall, ...] = ()
    """Of an assistant."""
    tool_call_id: str = ""
    """Of a tool's answer: which call it answers."""

    def plain(self) -> dict[str, object]:
        """The message as JSON and chat templates have it: role, content, and what else is set."""
        plain: dict[str, object] = {"role": self.role, "content": self.content}
        if self.tool_calls:
            plain["tool_calls"] = [
                {"id": call.id, "name": call.name, "arguments": call.arguments}
                for call in self.tool_calls
            ]
        more = {"name": self.name, "tool_call_id": self.tool_call_id}
        return plain | {name: text for name, text in more.items() if text}


@dataclass(frozen=True, slots=True)
class Fill:
    """A gap between two texts. Either may be empty, and not both."""

    prefix: str
    suffix: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionRequest:
    """One of `messages`, put through the model's chat template, a raw `prompt`, and a `fill`.

    Raises BadRequest that names what breaks a rule.
    """

    model: ModelId
    messages: tuple[ChatMessage, ...] = ()
    prompt: str = ""
    fill: Fill | None = None
    tools: tuple[Mapping[str, Any], ...] = ()
    """Functions that may be called, as OpenAI describes them; the chat template writes them."""
    tool_choice: str = "auto"
    """One of TOOL_CHOICES."""
    tool_name: str = ""
    """The one function that has to be called, where `tool_choice` is `required`."""
    session: str = ""
    """A name under which the entry keeps the KV for the next request of this conversation."""
    sampling: Sampling = field(default_factory=Sampling)

    def __post_init__(self) -> None:
        if [bool(self.messages), bool(self.prompt), self.fill is not None].count(True) != 1:
            raise BadRequest("a request has either messages or a prompt, or a prefix and a suffix")
        if self.fill is not None and not (self.fill.prefix or self.fill.suffix):
            raise BadRequest("prefix and suffix are both empty")
        _check_count("messages", self.messages, MAX_MESSAGES)
        _check_count("tools", self.tools, MAX_TOOLS)
        if self.tools and not self.messages:
            raise BadRequest("tools go with messages")
        if self.tool_choice not in TOOL_CHOICES:
            raise BadRequest(f"tool_choice must be one of {', '.join(TOOL_CHOICES)}")
        if self.tool_choice == "required" and not self.tools:
            raise BadRequest("tool_choice: required, and there are no tools")
        if self.tool_name and self.tool_choice != "required":
            raise BadRequest("a tool to call by name is a required one")
        if self.session and not MIN_SESSION_CHARS <= len(self.session) <= MAX_SESSION_CHARS:
            wanted = f"{MIN_SESSION_CHARS} to {MAX_SESSION_CHARS}"
            raise BadRequest(f"session must have {wanted} characters")

    def encode(self) -> bytes:
        """UTF-8 JSON. Raises BadRequest if it is longer than a peer would take."""
        plain = {name: _PLAIN.get(name, _as_it_is)(getattr(self, name)) for name in _NAMES}
        # What is not set is not sent.
        told = {name: value for name, value in plain.items() if value or name == "model"}
        data = json.dumps(told, ensure_ascii=False).encode()
        if len(data) > MAX_REQUEST_BYTES:
            raise BadRequest(f"a request of {len(data)} bytes, at most {MAX_REQUEST_BYTES}")
        return data

    @classmethod
    def decode(cls, data: bytes) -> CompletionRequest:
        """The inverse. Raises BadRequest that names what is wrong."""
        try:
            loaded: Any = json.loads(data)
        except (ValueError, RecursionError) as exc:
            raise BadRequest("a completion request that is not JSON") from exc
        if not isinstance(loaded, dict):
            raise BadRequest("a completion request that is not an object")
        if unknown := sorted(set(loaded) - set(_NAMES)):
            raise BadRequest(f"unknown field {unknown[0]!r}")
        return cls(
            model=ModelId(_text(loaded, "model")),
            messages=tuple(_each(loaded, "messages", _message)),
            prompt=_text(loaded, "prompt"),
            fill=_fill(loaded.get("fill")),
            tools=tuple(_each(loaded, "tools", _object)),
            tool_choice=_text(loaded, "tool_choice") or "auto",
            tool_name=_text(loaded, "tool_name"),
            session=_text(loaded, "session"),
            sampling=Sampling.decode(json.dumps(loaded.get("sampling", {})).encode()),
        )


_NAMES = tuple(each.name for each in fields(CompletionRequest))


def _check_count(name: str, values: tuple[object, ...], most: int) -> None:
    if len(values) > most:
        raise BadRequest(f"{len(values)} {name}, at most {most}")


def _as_it_is(value: object) -> object:
    return value


_PLAIN: dict[str, Callable[[Any], object]] = {
    "messages": lambda messages: [message.plain() for message in messages],
    "fill": lambda fill: fill and {"prefix": fill.prefix, "suffix": fill.suffix},
    "tools": list,
    "sampling": lambda sampling: json.loads(sampling.encode()),
}


def _text(loaded: Mapping[str, Any], name: str, where: str = "") -> str:
    value = loaded.get(name, "")
    if not isinstance(value, str):
        raise BadRequest(f"{where}{name} must be a string, not {type(value).__name__}")
    return value


def _each(
    loaded: Mapping[str, Any], name: str, read: Callable[[str, object], Any], where: str = ""
) -> list[Any]:
    values = loaded.get(name, [])
    if not isinstance(values, list):
        raise BadRequest(f"{where}{name} must be an array")
    return [read(f"{where}{name}[{place}]", value) for place, value in enumerate(values)]


def _object(where: str, value: object) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise BadRequest(f"{where} must be an object")
    return value


def _fill(value: object) -> Fill | None:
    if value is None:
        return None
    loaded = _object("fill", value)
    if set(loaded) - {"prefix", "suffix"}:
        raise BadRequest("fill has a prefix and a suffix")
    return Fill(_text(loaded, "prefix", "fill."), _text(loaded, "suffix", "fill."))


def _message(where: str, value: object) -> ChatMessage:
    needed, known = {"role", "content"}, {"role", "content", "name", "tool_calls", "tool_call_id"}
    if not isinstance(value, dict) or not needed <= set(value) <= known:
        raise BadRequest(f"{where} must have a role and a content, and only what a message has")
    calls = _each(value, "tool_calls", _tool_call, f"{where}.")
    _check_count(f"{where}.tool_calls", tuple(calls), MAX_TOOL_CALLS)
    return ChatMessage(
        role=_text(value, "role", f"{where}."),
        content=_text(value, "content", f"{where}."),
        name=_text(value, "name", f"{where}."),
        tool_calls=tuple(calls),
        tool_call_id=_text(value, "tool_call_id", f"{where}."),
    )


def _tool_call(where: str, value: object) -> ToolCall:
    names = ("id", "name", "arguments")
    if not isinstance(value, dict) or set(value) != set(names):
        raise BadRequest(f"{where} must have an id, a name and arguments")
    return ToolCall(*(_text(value, name, f"{where}.") for name in names))
