"""POST /v1/completions, /v1/generate and /v1/fim/completions: a text that goes on, or a gap in
one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from tessella.worker.api.bodies import CompletionBody, FillBody, GenerateBody
from tessella.worker.api.delivery import Choice, Delivery, Heard
from tessella.worker.api.documented import completion
from tessella.worker.api.logprobs import TokenText, text_logprobs
from tessella.worker.api.reading import NoQuery
from tessella.worker.api.rooms import Clock, Rooms
from tessella.worker.api.shapes import PlainCompletion, TextCompletion
from tessella.worker.api.voices import Mark, Part
from tessella.worker.api.wanted import text_wanted

COMPLETIONS, GENERATE, FILL = "/v1/completions", "/v1/generate", "/v1/fim/completions"


def add_text_routes(router: APIRouter, rooms: Rooms, clock: Clock, heard: Heard) -> None:
    """Add the three routes."""

    async def deliver(
        body: CompletionBody | GenerateBody | FillBody, request: Request, *, plain: bool
    ) -> Response:
        wanted = text_wanted(body, rooms.model)
        form = TextForm(rooms.token_text, wanted.alternatives, plain=plain)
        answer = await rooms.answering(request, len(wanted.requests))
        return Delivery(answer, wanted, form, clock=clock, heard=heard)

    @router.post(COMPLETIONS, **completion(COMPLETIONS, TextCompletion))
    async def completions(body: CompletionBody, _: NoQuery, request: Request) -> Response:
        """A text in, how it goes on out; with a suffix, what is between."""
        return await deliver(body, request, plain=False)

    @router.post(GENERATE, **completion(GENERATE, PlainCompletion))
    async def generate(body: GenerateBody, _: NoQuery, request: Request) -> Response:
        """The same for one text, greedily unless asked otherwise."""
        return await deliver(body, request, plain=True)

    @router.post(FILL, **completion(FILL, PlainCompletion))
    async def fim_completions(body: FillBody, _: NoQuery, request: Request) -> Response:
        """What is between a prefix and a suffix, for code."""
        return await deliver(body, request, plain=True)


class TextForm:
    """An answer as a text. A `Form`. If `plain`, the text is at the top too."""

    prefix = "cmpl-"

    def __init__(self, text: TokenText, alternatives: int | None, *, plain: bool) -> None:
        self._text = text
        self._alternatives = alternatives
        self._plain = plain

    def opening(self, index: int) -> list[Choice]:
        """Nothing: there is nobody to name."""
        return []

    def piece(self, index: int, part: Part) -> list[Choice]:
        """The text."""
        return [self._choice(index, part.text, part.marks, None)] if part.text else []

    def closing(self, index: int, part: Part, reason: str) -> list[Choice]:
        """The text that was left, and the reason."""
        return [self._choice(index, part.text, part.marks, reason)]

    def whole(self, index: int, parts: Sequence[Part], reason: str) -> Choice:
        """All text in one."""
        marks = [mark for part in parts for mark in part.marks]
        return self._choice(index, "".join(part.text for part in parts), marks, reason)

    def envelope(self, choices: list[Choice], *, chunk: bool) -> dict[str, Any]:
        """What it is, and the choices. A chunk is no other object here."""
        told = {"object": "text_completion", "choices": choices}
        return told | ({"text": choices[0]["text"]} if self._plain and choices else {})

    def _choice(self, index: int, text: str, marks: Sequence[Mark], reason: str | None) -> Choice:
        told = (
            None
            if self._alternatives is None
            else text_logprobs(marks, self._text, self._alternatives)
        )
        return {"index": index, "text": text, "logprobs": told, "finish_reason": reason}
