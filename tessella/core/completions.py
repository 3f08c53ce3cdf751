"""What a client asks of an entry: a chat or a text to continue, and how to sample the answer."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from tessella.core.errors import BadRequest
from tessella.core.ids import ModelId
from tessella.core.sampling import Sampling

# A prompt of a million tokens is about 4 MB of text; longer ones have no model here.
MAX_REQUEST_BYTES = 4 * 1024 * 1024 - 1024
MAX_MESSAGES = 4096


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """One turn of a conversation."""

    role: str
    content: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionRequest:
    """Either `messages`, put through the model's chat template, or a raw `prompt`."""

    model: ModelId
    messages: tuple[ChatMessage, ...] = ()
    prompt: str = ""
    sampling: Sampling = field(default_factory=Sampling)

    def __post_init__(self) -> None:
        if bool(self.messages) == bool(self.prompt):
            raise BadRequest("a request has either messages or a prompt")
        if len(self.messages) > MAX_MESSAGES:
            raise BadRequest(f"{len(self.messages)} messages, at most {MAX_MESSAGES}")

    def encode(self) -> bytes:
        """UTF-8 JSON. Raises BadRequest if it is longer than a peer would take."""
        data = json.dumps(
            {
                "model": self.model,
                "messages": [{"role": m.role, "content": m.content} for m in self.messages],
                "prompt": self.prompt,
                "sampling": json.loads(self.sampling.encode()),
            },
            ensure_ascii=False,
        ).encode()
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
        if unknown := sorted(set(loaded) - {"model", "messages", "prompt", "sampling"}):
            raise BadRequest(f"unknown field {unknown[0]!r}")
        return cls(
            model=ModelId(_text(loaded, "model")),
            messages=_messages(loaded.get("messages", [])),
            prompt=_text(loaded, "prompt"),
            sampling=Sampling.decode(json.dumps(loaded.get("sampling", {})).encode()),
        )


def _text(loaded: dict[str, Any], name: str) -> str:
    value = loaded.get(name, "")
    if not isinstance(value, str):
        raise BadRequest(f"{name} must be a string, not {type(value).__name__}")
    return value


def _messages(loaded: object) -> tuple[ChatMessage, ...]:
    if not isinstance(loaded, list):
        raise BadRequest("messages must be an array")
    found = []
    for place, message in enumerate(loaded):
        if not isinstance(message, dict) or set(message) != {"role", "content"}:
            raise BadRequest(f"messages[{place}] must have a role and a content")
        found.append(ChatMessage(_text(message, "role"), _text(message, "content")))
    return tuple(found)
