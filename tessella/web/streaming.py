"""Answers in pieces, each of which ends with its client."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.datastructures import MutableHeaders
from starlette.types import Receive, Send

from tessella.web.errors import real_json

EVENTS = "text/event-stream"


class EventStream:
    """An answer of server-sent events, begun when the first thing is sent.

    One task at a time may send. What is sent raises as `send` does where the client left.
    """

    def __init__(self, send: Send) -> None:
        self._send = send
        self.begun = False
        """Whether the status went out, so that an error can no longer be one."""

    async def begin(self, headers: Mapping[str, str]) -> None:
        """Send the status, which is 200, and the headers."""
        told = MutableHeaders(headers)
        told["Content-Type"] = f"{EVENTS}; charset=utf-8"
        told["Cache-Control"] = "no-store"
        # nginx would keep events back until it has some kilobytes of them.
        told["X-Accel-Buffering"] = "no"
        self.begun = True
        await self._send({"type": "http.response.start", "status": 200, "headers": told.raw})

    async def data(self, *contents: object) -> None:
        """Send events, each with a JSON value."""
        await self._body(b"".join(b"data: " + real_json(each) + b"\n\n" for each in contents))

    async def text(self, line: str) -> None:
        """Send one event that is not JSON."""
        await self._body(f"data: {line}\n\n".encode())

    async def comment(self, line: str) -> None:
        """Send what readers skip."""
        await self._body(f": {line}\n\n".encode())

    async def end(self) -> None:
        """Send that there is no more."""
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _body(self, data: bytes) -> None:
        await self._send({"type": "http.response.body", "body": data, "more_body": True})


async def departure(receive: Receive) -> None:
    """Wait until the client of a request that was read to its end is gone."""
    while (await receive())["type"] != "http.disconnect":
        pass
