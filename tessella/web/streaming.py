"""Answers in pieces, from a generator that ends with them."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from starlette.responses import StreamingResponse
from starlette.types import Send


class Streamed(StreamingResponse):
    """A StreamingResponse that closes its generator, also when the client left before its end.

    A generator that nobody closes is ended by the garbage collector, at any time and without
    being able to wait: trio warns of it.
    """

    async def stream_response(self, send: Send) -> None:
        """Send all pieces."""
        try:
            await super().stream_response(send)
        finally:
            if isinstance(self.body_iterator, AsyncGenerator):
                await self.body_iterator.aclose()
