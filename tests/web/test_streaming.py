"""A generator ends with its answer."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import httpx
import pytest
from starlette.types import Message, Receive, Scope, Send

from tessella.web.streaming import Streamed


@pytest.fixture
def ended() -> list[str]:
    return []


async def test_pieces_arrive_in_order() -> None:
    async def pieces() -> AsyncIterator[str]:
        yield "a"
        yield "b"

    def plain() -> Iterator[bytes]:
        yield b"c"

    for body, text in ((pieces(), "ab"), (plain(), "c")):
        transport = httpx.ASGITransport(Streamed(body))
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            assert (await client.get("/")).text == text


async def test_a_client_that_leaves_ends_the_generator_at_once(ended: list[str]) -> None:
    async def pieces() -> AsyncIterator[str]:
        try:
            while True:
                yield "a"
        finally:
            ended.append("generator")

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        async def sent(message: Message) -> None:
            if message["type"] == "http.response.body":
                raise OSError("gone")

        await Streamed(pieces())(scope, receive, sent)

    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        with pytest.raises(OSError, match="gone"):
            await client.get("/")
        ended.append("call")
    assert ended == ["generator", "call"]
