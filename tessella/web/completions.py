"""Asking an HTTP API for a completion, and reading the answer as it comes.

async with open_client() as client:
    async for event in complete_http(client, "http://127.0.0.1:8080", request):
        ...
"""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import suppress

import httpx
import trio

from tessella.core.completions import MAX_REQUEST_BYTES, CompletionRequest
from tessella.core.errors import BadFrame, BadRequest
from tessella.core.messages import Begun, Delta, Done
from tessella.web.client import CONNECT_SECONDS, MAX_ANSWER, named, our_errors, raise_failure
from tessella.web.event_parser import EventParser
from tessella.web.openai_chunks import ChunkReader
from tessella.web.openai_requests import body_of, route_of

FIRST_SECONDS = 600.0
"""Before the first token: until then a node says nothing, and a long prompt takes minutes on
machines that are slow, or busy with others."""
SILENCE_SECONDS = 120.0
"""Between two pieces of an answer. Not every server says that it still lives."""


async def complete_http(
    client: httpx.AsyncClient,
    url: str,
    request: CompletionRequest,
    *,
    clock: Callable[[], float] = time.monotonic,
) -> AsyncIterator[Begun | Delta | Done]:
    """The events of an answer, as `ChunkReader` has them. Closing the iterator cancels.

    `url` is where the API is, without `/v1`; whose it is, and where, is not judged: it has to be
    one that the user named. Raises RemoteFailure with the node's code, PeerGone if it went away,
    BadFrame for an answer that is none.
    """
    content = json.dumps(body_of(request), ensure_ascii=False, allow_nan=False).encode()
    if len(content) > MAX_REQUEST_BYTES:
        raise BadRequest(f"a request of {len(content)} bytes, at most {MAX_REQUEST_BYTES}")
    call = client.build_request(
        "POST",
        url + route_of(request),
        content=content,
        headers={"Content-Type": "application/json", "Accept": "text/event-stream"},
        timeout=httpx.Timeout(FIRST_SECONDS, connect=CONNECT_SECONDS),
    )
    name = named(str(call.url))
    started = clock()
    with our_errors(name, FIRST_SECONDS):
        response = await client.send(call, stream=True)
    pieces = response.aiter_raw()
    try:
        await _refuse_other_answers(name, response, pieces)
        reader = ChunkReader(request.model, response.headers, lambda: clock() - started)
        yield reader.begun()
        parser = EventParser()
        while not reader.done:
            with our_errors(name, SILENCE_SECONDS):
                piece = await anext(pieces, None)
            if piece is None:
                for event in reader.close():
                    yield event
                return
            for said in parser.feed(piece):
                for event in () if reader.done else reader.take(said):
                    yield event
    finally:
        await _end(pieces)
        await response.aclose()


async def _refuse_other_answers(
    name: str, response: httpx.Response, pieces: AsyncIterator[bytes]
) -> None:
    """Raise unless the answer is a stream of events."""
    if response.headers.get("Content-Encoding", "identity") != "identity":
        raise BadFrame(f"{name} answered in an encoding that was not asked for")
    if not 200 <= response.status_code < 300:
        body = bytearray()
        with our_errors(name, SILENCE_SECONDS):
            async for piece in pieces:
                body += piece
                if len(body) > MAX_ANSWER:
                    break
        raise_failure(name, response.status_code, bytes(body))
    kind = response.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    if kind != "text/event-stream":
        raise BadFrame(f"{name} answered without a stream of events")


async def _end(pieces: AsyncIterator[bytes]) -> None:
    """End httpx's generators where they wait: left behind, the garbage collector would."""
    # Whatever the connection says meanwhile, nobody asks any more.
    with trio.CancelScope() as over, suppress(httpx.HTTPError, httpx.StreamError):
        over.cancel()
        async for _ in pieces:
            pass
