"""What a request may bring: headers of a bounded size, and a body that is bounded and arrives.

Parameters of a query are counted too: a framework keeps words for each that it does not know.

The cap of a body is known before a byte of it is read. A body that announces its length is
refused at once; one that comes in chunks is counted. A body that only trickles is given up when
it is slower than one could call reading: waiting is what it would make us do for hours. And the
large ones are counted together, from their first byte until they are answered: each is held whole,
and a few hundred clients would fill the memory with what they do not finish.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import trio
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tessella.core.errors import BadRequest, BodyTooLarge, Busy, TessellaError
from tessella.web.errors import BadFraming, HttpRefusal

KIB = 1024
MIB = 1024 * KIB
MAX_HEADER_LINES = 128
"""A browser sends about 20; each line costs more memory than its bytes."""
MAX_HEADER_BYTES = 16 * KIB
"""All lines together, as h11 and most servers bound them."""
MAX_PARAMETERS = 64
"""Of a query; no question here takes ten."""
SLOWEST = 500.0
"""Bytes a second below which a body is given up, as Apache's mod_reqtimeout has it."""
SLOW_START_SECONDS = 10.0
"""What a body may take before its pace counts."""


@dataclass(frozen=True, slots=True)
class BodyCaps:
    """How many bytes a request's body may have, by path."""

    default: int = 64 * KIB
    """A control message: ids, addresses, parameters."""
    larger: Mapping[str, int] = field(default_factory=dict)
    """Paths with another cap. One that ends in `/` stands for all below it; the longest wins."""
    together: int = 128 * MIB
    """Of all requests to these paths at once: some 30 of the longest prompts, which are in memory
    a few times over while they are read."""
    apart: frozenset[str] = frozenset()
    """Those of these paths that do not count, having a quota of their own."""

    def of(self, path: str) -> int:
        """The cap for a path, in bytes."""
        entry = self._entry(path)
        return self.default if entry is None else self.larger[entry]

    def counts(self, path: str) -> bool:
        """Whether what is sent to a path counts for `together`."""
        entry = self._entry(path)
        return entry is not None and entry not in self.apart

    def _entry(self, path: str) -> str | None:
        if path in self.larger:
            return path
        above = [each for each in self.larger if each.endswith("/") and path.startswith(each)]
        return max(above, key=len, default=None)


DEFAULT_BODIES = BodyCaps()


class BodyLimits:
    """Middleware that holds requests to their limits. Raises the error to answer with.

    The errors are BodyTooLarge, BadRequest, BadFraming, Busy, and HttpRefusal of 408 and 431. Where
    a limit breaks while the app reads, what the app answers to that is dropped, unless it had begun
    before.
    """

    def __init__(self, app: ASGIApp, caps: BodyCaps = DEFAULT_BODIES) -> None:
        self._app = app
        self._caps = caps
        self._held = _Held(caps.together)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        limit = self._caps.of(scope["path"])
        check_headers(scope["headers"], limit)
        check_query(scope.get("query_string", b""))
        held = self._held if self._caps.counts(scope["path"]) else None
        body = _BoundedBody(receive, send, limit, held)
        try:
            await self._app(scope, body.receive, body.send)
        except Exception:  # whatever an app makes of the refusal that it met while it read
            if body.refused is None or body.answered:
                raise
        finally:
            body.release()
        if body.refused is not None and not body.answered:
            raise body.refused


def check_headers(headers: list[tuple[bytes, bytes]], limit: int) -> None:
    """Raise the error that a request's headers deserve, if they do. `limit` is of its body."""
    if len(headers) > MAX_HEADER_LINES:
        raise HttpRefusal(431, "headers_too_large", f"over {MAX_HEADER_LINES} header lines")
    if sum(len(name) + len(value) + len(b": \r\n") for name, value in headers) > MAX_HEADER_BYTES:
        raise HttpRefusal(431, "headers_too_large", f"over {MAX_HEADER_BYTES} bytes of headers")
    lengths = [value for name, value in headers if name.lower() == b"content-length"]
    if not lengths:
        return
    if any(name.lower() == b"transfer-encoding" for name, _ in headers):
        raise BadFraming("Content-Length and Transfer-Encoding: which one ends the body?")
    if len(lengths) > 1 or not lengths[0].isdigit():
        raise BadFraming("Content-Length is not one number")
    # More digits than a cap can have are not worth reading, and Python would refuse thousands.
    digits = lengths[0].lstrip(b"0") or b"0"
    if len(digits) > len(str(limit)) or int(digits) > limit:
        raise BodyTooLarge(limit)


def check_query(query: bytes) -> None:
    """Raises BadRequest for more parameters than MAX_PARAMETERS."""
    if query.count(b"&") >= MAX_PARAMETERS:
        raise BadRequest(f"query: over {MAX_PARAMETERS} parameters")


def seconds_allowed(received: int) -> float:
    """How long one may have waited for a body of which so many bytes came."""
    return SLOW_START_SECONDS + received / SLOWEST


class _Held:
    """Bytes of bodies that are in memory."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._bytes = 0

    def take(self, size: int) -> bool:
        """Count so many more; False, and none is counted, where there is no room for them."""
        if self._bytes + size > self._limit:
            return False
        self._bytes += size
        return True

    def give(self, size: int) -> None:
        """So many are gone."""
        self._bytes -= size


class _BoundedBody:
    """The two directions of one request, seen by the app."""

    def __init__(self, receive: Receive, send: Send, limit: int, held: _Held | None) -> None:
        self._receive = receive
        self._send = send
        self._limit = limit
        self._held = held
        self._counted = 0
        self._received = 0
        self._waited = 0.0
        self._ended = False
        self.refused: TessellaError | None = None
        self.answered = False

    async def receive(self) -> Message:
        if self.refused is not None:
            raise self.refused
        if self._ended:
            return await self._receive()
        message = await self._next()
        self._received += len(message.get("body", b""))
        self._ended = not message.get("more_body", False)
        if self._received > self._limit:
            self.refused = BodyTooLarge(self._limit)
            raise self.refused
        self._count(len(message.get("body", b"")))
        return message

    def release(self) -> None:
        """The request is over."""
        if self._held is not None:
            self._held.give(self._counted)
            self._counted = 0

    def _count(self, size: int) -> None:
        if self._held is None:
            return
        if not self._held.take(size):
            self.refused = Busy("too many long requests are being read here: wait, and ask again")
            raise self.refused
        self._counted += size

    async def send(self, message: Message) -> None:
        if self.refused is not None and not self.answered:
            return
        self.answered = True
        await self._send(message)

    async def _next(self) -> Message:
        # Only the waiting counts: an app that takes its time with each piece is not the sender.
        began = trio.current_time()
        with trio.move_on_after(max(0.0, seconds_allowed(self._received) - self._waited)):
            message = await self._receive()
            self._waited += trio.current_time() - began
            return message
        self.refused = HttpRefusal(
            408, "request_timeout", f"a body slower than {SLOWEST:g} bytes a second"
        )
        raise self.refused
