"""Calls whose body and answer are bytes, both perhaps long: bounded as those of `web.client` are.

A long body is sent in pieces, so that a link that is slow is told from one that is dead.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass

import httpx

from tessella.web.client import CONNECT_SECONDS, MAX_ANSWER, first_answer, named, our_errors
from tessella.web.targets import Target

PIECE_BYTES = 64 * 1024
"""What is written at once. A whole body in one write would have to be gone within one timeout."""
SLOWEST = 16 * 1024
"""Bytes a second: a link below that carries no hidden states."""
MAX_ANSWER_BYTES = 8 * MAX_ANSWER
"""Thousands of tokens, or what a stage says in minutes."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a call was answered with."""

    headers: Mapping[str, str]
    """By name in any case."""
    body: bytes


@dataclass(frozen=True, slots=True)
class Post:
    """One call."""

    target: Target
    headers: Mapping[str, str]
    body: bytes
    stall_seconds: float
    """Without a byte either way; what the called one may take to answer."""


async def post_bytes(client: httpx.AsyncClient, post: Post) -> Answer:
    """What it is answered with, at the first of the target's addresses that takes a connection.

    Raises RemoteFailure for an answer that is an error, BadFrame for one that is too long,
    PeerUnreachable, PeerSilent or PeerClosed for one that does not come.
    """
    name = named(post.target)
    limit = 2 * post.stall_seconds + len(post.body) / SLOWEST
    with our_errors(name, limit):
        return Answer(*await first_answer(client, _requests(client, post), MAX_ANSWER_BYTES, name))


def _requests(client: httpx.AsyncClient, post: Post) -> list[httpx.Request]:
    url = post.target.url
    headers = {
        **client.headers,
        "Content-Type": "application/octet-stream",
        "Content-Length": str(len(post.body)),
        **post.headers,
        "Host": url.authority,
    }
    timeout = httpx.Timeout(post.stall_seconds, connect=CONNECT_SECONDS)
    extensions = {"timeout": timeout.as_dict(), "sni_hostname": url.host}
    return [
        httpx.Request(
            "POST",
            url.at(address),
            headers=headers,
            stream=Pieces(post.body),
            extensions=extensions,
        )
        for address in post.target.addresses
    ]


class Pieces(httpx.AsyncByteStream):
    """A body in pieces. No generator: one that a lost connection leaves behind has no end."""

    def __init__(self, body: bytes) -> None:
        self._body = body

    def __aiter__(self) -> AsyncIterator[bytes]:
        """Its pieces, from the first."""
        return _Walk(self._body)


class _Walk:
    def __init__(self, body: bytes) -> None:
        self._body = body
        self._at = 0

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        if self._at >= len(self._body):
            raise StopAsyncIteration
        start, self._at = self._at, self._at + PIECE_BYTES
        return self._body[start : self._at]
