"""A POST of a stream, from its headers to its answer: the signature first, the body last."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response

from p2p.peers import Handler
from tessella.core.errors import BadRequest
from tessella.core.identity import Identity
from tessella.core.signed_request import answer_text, sign_answer
from tessella.worker.api.signed import NO_BODY, SignedCall, SignedCalls, read_body
from tessella.worker.http_hops.asks import END, Ask, Said, read_ask
from tessella.worker.http_hops.table import HttpStreams

OCTETS = "application/octet-stream"
# Of a Content-Length that is read: no body here has a length of so many.
_MAX_DIGITS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamDoor:
    """What leads from requests to the streams of one protocol."""

    identity: Identity
    """Signs the answers."""
    calls: SignedCalls
    streams: HttpStreams
    max_body: int
    place: Callable[[int | None], AbstractContextManager[object]] = nullcontext
    """Room for one body while it is read and taken. Takes the length that its head tells, None
    where it tells none. Raises where there is no room."""

    async def answer(self, request: Request, handler: Handler) -> Response:
        """Answer one request; `handler` serves the stream, if it opens one."""
        return await self.answer_call(self.calls.admit(request), request, handler)

    async def answer_call(self, call: SignedCall, request: Request, handler: Handler) -> Response:
        """The same for a call that was let in already."""
        ask = read_ask(call.head.query)
        if ask.act.has_body:
            with self.place(_told_length(request)):
                said = await self._said(call, ask, request, handler)
        elif call.head.digest != NO_BODY:
            raise BadRequest(f"query.act: {ask.act.value} comes without a body")
        else:
            said = await self._said(call, ask, request, handler)
        return self._signed(call, said)

    async def _said(self, call: SignedCall, ask: Ask, request: Request, handler: Handler) -> Said:
        async def body() -> bytes:
            told = _told_length(request)
            most = self.max_body if told is None else min(told, self.max_body)
            return await read_body(request, call, most)

        return await self.streams.answer(call.peer_id, ask, call.head.digest, body, handler)

    def _signed(self, call: SignedCall, said: Said) -> Response:
        text = answer_text(call.peer_id, call.nonce, said.word, said.data)
        headers = sign_answer(self.identity, text)
        if said.end is not None:
            headers[END] = said.word
        return Response(said.data, media_type=OCTETS, headers=headers)


def _told_length(request: Request) -> int | None:
    text = request.headers.get("content-length", "")
    return int(text) if text.isdecimal() and len(text) <= _MAX_DIGITS else None
