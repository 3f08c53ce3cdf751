"""The conversation of a chat, as OpenAI's clients write it: content in three shapes, five roles."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from tessella.core.completions import MAX_MESSAGES, MAX_TOOL_CALLS, ChatMessage, ToolCall
from tessella.worker.api.reading import Strict, broken, unsupported

Role = Literal["system", "developer", "user", "assistant", "tool"]
TEXT_PARTS = ("text", "input_text")
MAX_PARTS = 1024


class TextPart(Strict):
    """A piece of a content. Pictures and sounds are refused: the models here read text."""

    type: Literal["text", "input_text"]
    text: str

    @model_validator(mode="before")
    @classmethod
    def _is_text(cls, data: object) -> object:
        kind = data.get("type") if isinstance(data, dict) else None
        if isinstance(kind, str) and kind not in TEXT_PARTS:
            raise unsupported(f"a part of type {kind!r:.40}: only text is read here")
        return data


class CalledFunction(Strict):
    """What a call of an assistant called."""

    name: str
    arguments: str = Field(description="A JSON object, as text.")


class CallMade(Strict):
    """A call that an assistant made."""

    id: str
    type: Literal["function"] = "function"
    function: CalledFunction


Content = str | Annotated[list[TextPart], Field(fail_fast=True, max_length=MAX_PARTS)]


class Message(Strict):
    """One turn. `developer` is what newer clients call `system`."""

    role: Role
    content: Content | None = Field(
        default=None, description="A text, or its parts. Only an assistant may have said nothing."
    )
    name: str | None = None
    tool_calls: (
        Annotated[list[CallMade], Field(fail_fast=True, max_length=MAX_TOOL_CALLS)] | None
    ) = None
    tool_call_id: str | None = None
    annotations: Annotated[list[str], Field(max_length=0)] | None = Field(
        default=None, description="None: clients send back what they were sent."
    )

    @model_validator(mode="after")
    def _fits_its_role(self) -> Message:
        if self.content is None and self.role != "assistant":
            raise broken(f"a message of the role {self.role} needs a content")
        if self.tool_calls and self.role != "assistant":
            raise broken("only an assistant makes tool_calls")
        if (self.tool_call_id is not None) != (self.role == "tool"):
            raise broken("tool_call_id goes with the role tool, and that role with it")
        return self

    def plain(self) -> ChatMessage:
        """The message, its parts in one text."""
        content = self.content or ""
        return ChatMessage(
            role="system" if self.role == "developer" else self.role,
            content=content if isinstance(content, str) else "".join(p.text for p in content),
            name=self.name or "",
            tool_calls=tuple(
                ToolCall(call.id, call.function.name, call.function.arguments)
                for call in self.tool_calls or ()
            ),
            tool_call_id=self.tool_call_id or "",
        )


Messages = Annotated[list[Message], Field(fail_fast=True, min_length=1, max_length=MAX_MESSAGES)]
