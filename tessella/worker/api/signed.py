"""Calls of other programs that are signed: who calls is known before a byte of the body is read.

Checked in this order, the remembered last; then the body, which is read by `read_body`:

    presence     the headers are there, and are what they should be
    caller       one of those that this route is for, where it is for few
    time         created from 60 s before to 30 s after this clock, and since this node began
    signature    of the method, path, query and digest, for this node, by the caller's key
    nonce        not used before by that caller
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Protocol

import trio
from fastapi import Security
from starlette.requests import Request

from tessella.core.call_rules import NONCE_SECONDS, skew
from tessella.core.errors import (
    BadSignature,
    BodyTooLarge,
    CallReplayed,
    ClockSkew,
    TooManyRequests,
)
from tessella.core.frames import KIB
from tessella.core.identity import SIGNATURE_BYTES, check_signature
from tessella.core.ids import PeerId
from tessella.core.signed_request import (
    CREATED,
    HEADERS,
    NONCE,
    PURPOSE_HTTP,
    SIGNATURE,
    Head,
    digest_of,
    query_of,
    read_proof,
    signed_text,
)
from tessella.web.errors import HttpRefusal, answers
from tessella.web.signed_docs import SIGNATURE_SCHEME, SIGNED_HEADERS

# About what a node can answer in three minutes; a nonce is 200 bytes.
MAX_NONCES = 100_000
# A chain that decodes 50 tokens a second asks twice a token.
MAX_NONCES_PER_PEER = 20_000
_SWEEP_SECONDS = 1.0
# What the header loses of a moment in its three decimals.
_ROUNDING = 0.001
# A body that is read holds a place that others wait for: below this pace it is given up.
PACE_START_SECONDS = 10.0
PACE = 16 * KIB
"""Bytes a second."""
NO_BODY = digest_of(b"")

REFUSED = (400, 401, 408, 413)


class Used(Protocol):
    """Remembers nonces."""

    def use(self, peer: PeerId, nonce: bytes, now: float) -> None:
        """Raises CallReplayed for one that is remembered, TooManyRequests where there is no room.

        `now` is in seconds since 1970.
        """


class CallNonces:
    """The nonces of the last NONCE_SECONDS, at most `limit` of them.

    Who has many here and calls on has the oldest of his own forgotten: only his own calls could
    come twice then, and those of streams are numbered besides. Who has none finds no place in a
    table that is full: it was filled by others, and theirs are kept.
    """

    def __init__(self, limit: int = MAX_NONCES, per_peer: int = MAX_NONCES_PER_PEER) -> None:
        self._limit = limit
        self._per_peer = per_peer
        # Of each peer, the first used first.
        self._used: dict[PeerId, dict[bytes, float]] = {}
        self._count = 0
        self._swept_at = float("-inf")

    def __len__(self) -> int:
        return self._count

    def use(self, peer: PeerId, nonce: bytes, now: float) -> None:
        """Remember a nonce from `now` on; see `Used`."""
        self._expire(peer, now)
        if nonce in self._used.get(peer, {}):
            raise CallReplayed("the nonce of this call was used before")
        if self._count >= self._limit and now - self._swept_at >= _SWEEP_SECONDS:
            self._swept_at = now
            for each in tuple(self._used):
                self._expire(each, now)
        mine = self._used.setdefault(peer, {})
        if self._count >= self._limit or len(mine) >= self._per_peer:
            self._forget_oldest(peer, mine)
        mine[nonce] = now
        self._count += 1

    def _forget_oldest(self, peer: PeerId, mine: dict[bytes, float]) -> None:
        if not mine:
            del self._used[peer]
            raise TooManyRequests(f"more calls than {NONCE_SECONDS:g} s have room for")
        del mine[next(iter(mine))]
        self._count -= 1

    def _expire(self, peer: PeerId, now: float) -> None:
        mine = self._used.get(peer, {})
        while mine:
            oldest = next(iter(mine))
            if mine[oldest] > now - NONCE_SECONDS:
                return
            del mine[oldest]
            self._count -= 1
        self._used.pop(peer, None)


@dataclass(frozen=True, slots=True)
class SignedCall:
    """A call that was let in: its head, as its caller signed it."""

    peer_id: PeerId
    nonce: bytes
    head: Head


class SignedCalls:
    """The checks of signed routes, for calls to one node."""

    def __init__(
        self,
        ourselves: PeerId,
        clock: Callable[[], float],
        nonces: Used,
        *,
        callers: frozenset[PeerId] | None = None,
    ) -> None:
        """`clock` gives seconds since 1970; `callers` are those that are let in, None for anyone.

        What is remembered of nonces begins now: a call that was made before is not taken.
        """
        self._ourselves = ourselves
        self._clock = clock
        self._nonces = nonces
        self._callers = callers
        self._started = clock()

    def admit(self, request: Request) -> SignedCall:
        """Let a call in, by its head alone.

        Raises BadSignature, ClockSkew or CallReplayed, which all are a 401, BadRequest for a header
        that is none, and TooManyRequests.
        """
        headers = request.headers
        missing = [name for name in HEADERS if name not in headers]
        if missing:
            raise BadSignature(f"not signed: header {missing[0]} is missing")
        if len(headers[SIGNATURE]) != 2 * SIGNATURE_BYTES:
            raise BadSignature(f"header {SIGNATURE}: {2 * SIGNATURE_BYTES} hex digits")
        proof = read_proof(headers)
        if self._callers is not None and proof.peer_id not in self._callers:
            raise BadSignature(f"this is not for {proof.peer_id} to say")
        now = self._clock()
        self._check_time(proof.created, now)
        head = Head(
            request.method,
            request.scope["path"],
            query_of(request.query_params.multi_items()),
            proof.digest,
            self._ourselves,
        )
        text = signed_text(head, proof.peer_id, headers[CREATED], headers[NONCE])
        check_signature(proof.peer_id, PURPOSE_HTTP, text, proof.signature)
        self._nonces.use(proof.peer_id, proof.nonce, now)
        return SignedCall(proof.peer_id, proof.nonce, head)

    def _check_time(self, created: float, now: float) -> None:
        off = skew(created - now)
        if off is not None:
            raise ClockSkew(f"the call was made {off} this node's clock")
        if created < self._started - _ROUNDING:
            raise ClockSkew("the call was made before this node began")


async def read_body(request: Request, call: SignedCall, most: int) -> bytes:
    """The body of a call that was let in, at most `most` bytes of it.

    Raises BadSignature for another than was signed, BodyTooLarge, and HttpRefusal of 408 for one
    that is slower than PACE.
    """
    body, digest, began = bytearray(), hashlib.sha256(), trio.current_time()
    with trio.CancelScope(deadline=began + PACE_START_SECONDS) as pace:
        async with aclosing(request.stream()) as pieces:
            async for piece in pieces:
                if len(body) + len(piece) > most:
                    raise BodyTooLarge(most)
                body += piece
                digest.update(piece)
                pace.deadline = began + PACE_START_SECONDS + len(body) / PACE
    if pace.cancelled_caught:
        raise HttpRefusal(408, "request_timeout", f"a body slower than {PACE} bytes a second")
    if digest.hexdigest() != call.head.digest:
        raise BadSignature("a body that is not the one that was signed")
    return bytes(body)


def documented(
    name: str, path: str, *statuses: int, parameters: list[dict[str, Any]], body: dict[str, Any]
) -> dict[str, Any]:
    """What OpenAPI says of a signed route: its `statuses` beside REFUSED, `parameters` beside the
    headers, and `body`, its request body."""
    return {
        "operation_id": name,
        "summary": path,
        "responses": answers(*REFUSED, *statuses),
        "dependencies": [Security(SIGNATURE_SCHEME)],
        "openapi_extra": {"parameters": [*parameters, *SIGNED_HEADERS], "requestBody": body},
    }
