"""`POST /v1/token_stream/{request_id}`: the tokens of tails that reach this entry over HTTP alone.

The capability is in the first frame: the grant that this node signed for that tail and that
session, which one stream may claim once. The signature of the request proves who the tail is.
"""

from __future__ import annotations

from functools import partial

import trio
from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from tessella.core.errors import BadRequest, TooManyRequests
from tessella.core.ids import SESSION_ID_BYTES, PeerId, SessionId
from tessella.core.rates import Buckets, Rate
from tessella.worker.api.forward import STATUSES, STREAM_ANSWER, STREAM_BODY, STREAM_PARAMETERS
from tessella.worker.api.signed import documented
from tessella.worker.http_hops.asks import TOKEN_PATH
from tessella.worker.http_hops.doors import StreamDoor
from tessella.worker.tokens import TokenDesk

# Of one tail, over all sessions that end at it: a request a token, and a read each few seconds.
TOKEN_RATE = Rate(200.0, 400)


class TokenRoom:
    """Tokens of tails, each at its own pace."""

    def __init__(self, door: StreamDoor, desk: TokenDesk, rate: Rate = TOKEN_RATE) -> None:
        self._door = door
        self._desk = desk
        self._rate = rate
        self._buckets = Buckets[PeerId](rate)

    async def answer(self, request: Request, request_id: str) -> Response:
        """Answer one request. Raises TooManyRequests for a tail that is too fast."""
        call = self._door.calls.admit(request)
        if not self._buckets.take(call.peer_id, trio.current_time()):
            raise TooManyRequests(
                f"more than {self._rate.per_second:g} requests a second of a tail"
            )
        handler = partial(self._desk.serve, session_id=_session_id(request_id))
        return await self._door.answer_call(call, request, handler)


def _session_id(text: str) -> SessionId:
    if len(text) != 2 * SESSION_ID_BYTES or not set(text) <= set("0123456789abcdef"):
        raise BadRequest(f"request_id: {2 * SESSION_ID_BYTES} hex digits")
    return SessionId(bytes.fromhex(text))


def add_tokens(app: FastAPI, room: TokenRoom) -> None:
    """The route of tokens. The app has to take bodies of MAX_TOKEN_BODY there."""
    path = TOKEN_PATH + "{request_id}"
    named = {
        "name": "request_id",
        "in": "path",
        "required": True,
        "description": "The request, as it was named when its answer began.",
        "schema": {"type": "string", "pattern": f"^[0-9a-f]{{{2 * SESSION_ID_BYTES}}}$"},
    }
    told = documented(
        "token_stream", path, *STATUSES, parameters=[named, *STREAM_PARAMETERS], body=STREAM_BODY
    )
    told["responses"] |= STREAM_ANSWER

    @app.post(path, response_class=Response, **told)
    async def token_stream(request: Request) -> Response:
        """The tail's tokens for one request; only the tail of its chain may bring them."""
        return await room.answer(request, request.path_params["request_id"])
