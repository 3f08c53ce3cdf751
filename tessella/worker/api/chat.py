"""POST /v1/chat/completions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from tessella.worker.api.bodies import ChatBody
from tessella.worker.api.delivery import Choice, Delivery, Heard
from tessella.worker.api.documented import completion
from tessella.worker.api.logprobs import TokenText, chat_logprobs
from tessella.worker.api.reading import NoQuery
from tessella.worker.api.rooms import Clock, Rooms
from tessella.worker.api.shapes import ChatCompletion
from tessella.worker.api.voices import Call, Mark, Part
from tessella.worker.api.wanted import chat_wanted

PATH = "/v1/chat/completions"


def add_chat_route(router: APIRouter, rooms: Rooms, clock: Clock, heard: Heard) -> None:
    """Add the route."""

    @router.post(PATH, **completion(PATH, ChatCompletion))
    async def chat_completions(body: ChatBody, _: NoQuery, request: Request) -> Response:
        """Messages in, tokens out, all at once or as they come."""
        wanted = chat_wanted(body, rooms.model, rooms.tool_format() if body.tools else None)
        form = ChatForm(rooms.token_text, wanted.alternatives is not None)
        answer = await rooms.answering(request, len(wanted.requests))
        return Delivery(answer, wanted, form, clock=clock, heard=heard)


class ChatForm:
    """An answer as a chat. A `Form`.

    A delta has what comes and nothing that is null, so that whoever adds deltas up needs no rule.
    """

    prefix = "chatcmpl-"

    def __init__(self, text: TokenText, logprobs: bool) -> None:
        self._text = text
        self._logprobs = logprobs

    def opening(self, index: int) -> list[Choice]:
        """Who speaks."""
        return [self._chunk(index, {"role": "assistant", "content": ""})]

    def piece(self, index: int, part: Part) -> list[Choice]:
        """A text, then each call, the log-probabilities with the first of them."""
        deltas: list[dict[str, Any]] = [{"content": part.text}] if part.text else []
        deltas += [{"tool_calls": [{"index": call.index, **_call(call)}]} for call in part.calls]
        marks = [part.marks] + [()] * (len(deltas) - 1)
        return [self._chunk(index, delta, mark) for delta, mark in zip(deltas, marks, strict=False)]

    def closing(self, index: int, part: Part, reason: str) -> list[Choice]:
        """What was left, then the reason."""
        pieces = self.piece(index, part)
        return [*pieces, self._chunk(index, {}, () if pieces else part.marks, reason)]

    def whole(self, index: int, parts: Sequence[Part], reason: str) -> Choice:
        """A message."""
        text = "".join(part.text for part in parts)
        calls = [_call(call) for part in parts for call in part.calls]
        message: dict[str, Any] = {"role": "assistant", "content": text, "refusal": None}
        if calls:
            message |= {"content": text or None, "tool_calls": calls}
        marks = [mark for part in parts for mark in part.marks]
        return {
            "index": index,
            "message": message,
            "logprobs": chat_logprobs(marks, self._text) if self._logprobs else None,
            "finish_reason": reason,
        }

    def envelope(self, choices: list[Choice], *, chunk: bool) -> dict[str, Any]:
        """What it is, and the choices."""
        kind = "chat.completion.chunk" if chunk else "chat.completion"
        return {"object": kind, "choices": choices}

    def _chunk(
        self,
        index: int,
        delta: dict[str, Any],
        marks: Sequence[Mark] = (),
        reason: str | None = None,
    ) -> Choice:
        told = {"logprobs": chat_logprobs(marks, self._text)} if self._logprobs and marks else {}
        return {"index": index, "delta": delta, **told, "finish_reason": reason}


def _call(call: Call) -> dict[str, Any]:
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": call.id, "type": "function", "function": function}
