"""Answers on their way to a client, whole or as events, for as long as it is there.

Each choice is a session of its own, and all of them end together: at the first error, or when the
client goes away, whether it still waits in the queue, for the prefill or for the next token.

Until the first token of a stream nothing is sent, so that an error is a status. After it an error
is an event, and what follows is the end without `[DONE]`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, Protocol

import trio
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from tessella.core.completions import CompletionRequest
from tessella.core.errors import LocalError, TessellaError
from tessella.core.messages import Begun, Delta, Done, Message, Progress
from tessella.web.errors import RealJson, error_body, told_error
from tessella.web.streaming import EventStream, departure
from tessella.worker.api.rooms import Answer, Clock
from tessella.worker.api.voices import Part, Voice, voice_for
from tessella.worker.api.wanted import Wanted
from tessella.worker.nurseries import open_conversation

# Messages of all choices that wait for the client to read; the sessions wait behind them.
QUEUED = 64
# Proxies give up what is silent for 30 to 60 seconds.
KEEP_ALIVE_SECONDS = 5.0

Choice = dict[str, Any]
Heard = Callable[[str], None]
_Message = Message | TessellaError
_Said = tuple[int, _Message]


class Form(Protocol):
    """How an answer is written: as a chat, or as a text."""

    prefix: str
    """Of its id."""

    def opening(self, index: int) -> list[Choice]:
        """The choices of the first chunk, if it has any."""

    def piece(self, index: int, part: Part) -> list[Choice]:
        """The choices of chunks with this part, one a chunk."""

    def closing(self, index: int, part: Part, reason: str) -> list[Choice]:
        """The same for the last part of a choice."""

    def whole(self, index: int, parts: Sequence[Part], reason: str) -> Choice:
        """A choice in one."""

    def envelope(self, choices: list[Choice], *, chunk: bool) -> dict[str, Any]:
        """What is around choices, without what all answers have."""


class Delivery(Response):
    """The response of a completion route."""

    def __init__(
        self, answer: Answer, wanted: Wanted, form: Form, *, clock: Clock, heard: Heard
    ) -> None:
        super().__init__()
        self._answer = answer
        self._wanted = wanted
        self._form = form
        self._heard = heard
        self._created = int(clock())
        self._begun: Begun | None = None
        self._arrived = trio.current_time()
        self._voices = [
            voice_for(each, wanted.tool_format, wanted.parallel) for each in wanted.requests
        ]
        self._told_at = 0.0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer. Raises the error of an answer that has not begun."""
        if self._wanted.stream:
            await self._tell_events(receive, EventStream(send))
            return
        answer = await self._whole(receive)
        if answer is not None:
            await answer(scope, receive, send)

    async def _whole(self, receive: Receive) -> Response | None:
        """The answer, or None where nobody is left to take it."""
        parts: list[list[Part]] = [[] for _ in self._voices]
        complete = False
        async with self._said(receive) as said:
            async for index, message in said:
                if (part := _heard(self._voices[index], message)) is not None:
                    parts[index].append(part)
            complete = True
        if not complete:
            return None
        choices = [
            self._form.whole(index, parts[index], voice.reason)
            for index, voice in enumerate(self._voices)
        ]
        told = self._around(choices, chunk=False) | {
            "usage": usage(self._voices, self._wanted.each)
        }
        timing = server_timing([voice.done for voice in self._voices])
        return RealJson(told, headers=self._told_headers() | {"Server-Timing": timing})

    async def _tell_events(self, receive: Receive, events: EventStream) -> None:
        complete = False
        try:
            async with self._said(receive) as said:
                async for index, message in said:
                    await self._tell(events, index, message)
                complete = True
            if complete:
                await self._close(events)
        except Exception as exc:  # a bug too is told to who is there; it goes on to the log
            if not events.begun:
                raise
            error = told_error(exc)
            self._heard(LocalError.code if error is None else error.code)
            await events.data(error_body(error))
            await events.end()
            if error is None:
                raise

    async def _tell(self, events: EventStream, index: int, message: _Message) -> None:
        voice, form = self._voices[index], self._form
        opens = not voice.opened
        part = _heard(voice, message)
        if not voice.opened:
            return
        if not events.begun:
            self._begun, self._told_at = voice.begun, trio.current_time()
            first = (self._told_at - self._arrived) * 1000
            await events.begin(self._told_headers() | {"Server-Timing": f"first;dur={first:.1f}"})
        chunks = form.opening(index) if opens else []
        if isinstance(message, Done):
            chunks += form.closing(index, part or Part(), voice.reason)
        elif part is not None:
            chunks += form.piece(index, part)
        if chunks:
            await events.data(*(self._around([choice], chunk=True) for choice in chunks))
        elif trio.current_time() - self._told_at >= KEEP_ALIVE_SECONDS:
            await events.comment("progress")
        else:
            return
        self._told_at = trio.current_time()

    async def _close(self, events: EventStream) -> None:
        timing = server_timing([voice.done for voice in self._voices])
        if self._wanted.usage:
            told = {"usage": usage(self._voices, self._wanted.each)}
            await events.data(self._around([], chunk=True) | told)
        await events.comment(f"server-timing {timing}")
        await events.text("[DONE]")
        await events.end()

    @asynccontextmanager
    async def _said(self, receive: Receive) -> AsyncIterator[trio.MemoryReceiveChannel[_Said]]:
        """What all answers say, to be read to its end. The block is left early, and without an
        error, when the client is gone."""
        async with open_conversation() as nursery:
            sender, receiver = trio.open_memory_channel[_Said](QUEUED)

            async def watch() -> None:
                await departure(receive)
                nursery.cancel_scope.cancel()

            nursery.start_soon(watch)
            for index, request in enumerate(self._wanted.requests):
                nursery.start_soon(self._ask, index, request, sender.clone())
            sender.close()
            try:
                yield receiver
            finally:
                # First, so that no answer finds its way blocked where it should find its end.
                nursery.cancel_scope.cancel()
                receiver.close()

    async def _ask(
        self, index: int, request: CompletionRequest, sender: trio.MemorySendChannel[_Said]
    ) -> None:
        async def say(message: Message) -> None:
            if not isinstance(message, Progress):
                await sender.send((index, message))
                return
            # Said in passing, by somebody who must not wait: where much is said, all is well.
            with suppress(trio.WouldBlock):
                sender.send_nowait((index, message))

        async with sender:
            try:
                await self._answer(request, say)
            except TessellaError as exc:
                # Behind what was said before it, which the client may still have.
                await sender.send((index, exc))

    def _around(self, choices: list[Choice], *, chunk: bool) -> dict[str, Any]:
        begun = self._begun or self._voices[0].begun
        told = {
            "id": f"{self._form.prefix}{begun.request_id}",
            "created": self._created,
            "model": begun.model,
            **self._form.envelope(choices, chunk=chunk),
        }
        # As OpenAI has it: where the usage comes last, each chunk before says that it is not there.
        return told | ({"usage": None} if chunk and self._wanted.usage else {})

    def _told_headers(self) -> dict[str, str]:
        begun = self._begun or self._voices[0].begun
        stages = (f"{each.peer_id}:{each.layers.start}-{each.layers.stop}" for each in begun.chain)
        tier = {"Tessella-Tier": begun.tier} if begun.tier else {}
        return {"X-Request-Id": begun.request_id, "Tessella-Chain": ", ".join(stages), **tier}


def usage(voices: Sequence[Voice], each: int) -> dict[str, Any]:
    """What was read and written; `each` choices have one prompt, which is counted once."""
    begun = [voice.begun for voice in voices[::each]]
    prompt = sum(one.prompt_tokens for one in begun)
    written = sum(voice.done.completion_tokens for voice in voices)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": written,
        "total_tokens": prompt + written,
        "prompt_tokens_details": {"cached_tokens": sum(one.cached_tokens for one in begun)},
    }


def server_timing(dones: Sequence[Done]) -> str:
    """Where the time went, in milliseconds, as a Server-Timing header. Of several the longest."""
    spent = {
        "queue": max(done.queue_seconds for done in dones),
        "prefill": max(done.first_token_seconds - done.queue_seconds for done in dones),
        "decode": max(done.total_seconds - done.first_token_seconds for done in dones),
        "hops": max(done.hops_seconds for done in dones),
    }
    return ", ".join(f"{name};dur={max(0.0, each) * 1000:.1f}" for name, each in spent.items())


def _heard(voice: Voice, message: _Message) -> Part | None:
    """What a message makes showable. Raises it where it is an error."""
    match message:
        case TessellaError():
            raise message
        case Begun():
            voice.begin(message)
        case Delta():
            return voice.hear(message)
        case Done():
            return voice.end(message)
        case Progress():
            pass
        case _:
            raise LocalError(f"{type(message).__name__} in an answer")
    return None
