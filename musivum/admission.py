"""Which calls are let in, at both doors. The dear and the remembered come last:

    policy       the allow-list and the block-list of this mesh
    time         created from 60 s before to 30 s after this clock
    signature    over the exact bytes, for this purpose, by the key that the peer id is
    nonce        not used before by that peer; remembered only after everything above held

Who reads a call has looked at its size and its shape before.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tessella.core.call_rules import NONCE_SECONDS, check_nonce, skew
from tessella.core.errors import (
    BadFrame,
    CallReplayed,
    ClockSkew,
    NotAuthorized,
    OutOfTurn,
    TooManyRequests,
    WorkerNotAuthorized,
)
from tessella.core.identity import PURPOSE_TRACKER, check_signature
from tessella.core.ids import PeerId
from tessella.core.messages import Call, Message, Signed, decode

# A node calls every few seconds, and an entry for each request that brings no ticket: 22 a second.
MAX_NONCES_PER_PEER = 4096
# 10,000 nodes that announce themselves every five seconds leave 360,000; one is about 100 bytes.
MAX_NONCES = 1 << 19
# One peer may have this part of what is left: whoever has many keys fills the table ever more
# slowly, and a node that calls as often as it should is not the one that finds no place.
SHARE = 128
# Nonces are forgotten a bucket at a time, so that a million of them cost no list beside the set.
_BUCKETS = 6
_BUCKET_SECONDS = NONCE_SECONDS / _BUCKETS
_DIGEST_BYTES = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedCall:
    """A call as it was presented: who says it made it, when, and what proves it."""

    peer_id: PeerId
    created: float
    """Seconds since 1970, by the caller's clock."""
    nonce: bytes
    purpose: bytes
    payload: bytes
    """The exact bytes that were signed."""
    signature: bytes


class Nonces:
    """The nonces of the last three minutes, at most MAX_NONCES of them."""

    def __init__(
        self, limit: int = MAX_NONCES, per_peer: int = MAX_NONCES_PER_PEER, share: int = SHARE
    ) -> None:
        self._limit = limit
        self._per_peer = per_peer
        self._share = share
        self._buckets: list[_Bucket] = []

    def __len__(self) -> int:
        return sum(len(bucket.used) for bucket in self._buckets)

    def use(self, peer_id: PeerId, nonce: bytes, now: float) -> None:
        """Remember a nonce from `now` on, for NONCE_SECONDS to a bucket more.

        Raises CallReplayed if it is remembered, and TooManyRequests where there is no room:
        forgetting one early would let it be used twice.
        """
        self._buckets = [each for each in self._buckets if each.ends + NONCE_SECONDS > now]
        mark = hashlib.blake2b(peer_id.encode() + b"\0" + nonce, digest_size=_DIGEST_BYTES).digest()
        if any(mark in bucket.used for bucket in self._buckets):
            raise CallReplayed("the nonce of this call was used before")
        calls = sum(bucket.calls[peer_id] for bucket in self._buckets)
        if calls >= self._room():
            raise TooManyRequests(f"more calls than {NONCE_SECONDS:g} s have room for")
        if not self._buckets or self._buckets[-1].ends <= now:
            self._buckets.append(_Bucket(now + _BUCKET_SECONDS, set(), Counter()))
        self._buckets[-1].used.add(mark)
        self._buckets[-1].calls[peer_id] += 1

    def _room(self) -> int:
        """How many one peer may have now."""
        left = self._limit - len(self)
        return min(self._per_peer, -(-left // self._share))


@dataclass(slots=True)
class _Bucket:
    ends: float
    used: set[bytes]
    calls: Counter[PeerId]


class Admission:
    """The checks of one mesh, and the nonces it remembers."""

    def __init__(
        self,
        *,
        allow: tuple[PeerId, ...] | None,
        block: tuple[PeerId, ...],
        started: float,
        barred: Callable[[PeerId], str | None] = lambda _: None,
    ) -> None:
        """`started` is when this musivum began, in seconds since 1970: what it remembers of nonces
        is no older, so a call that anyone may have seen before is not taken again after that.
        `barred` says why a peer is let in nowhere for now, in a sentence."""
        self._allow = None if allow is None else frozenset(allow)
        self._block = frozenset(block)
        self._started = started
        self._barred = barred
        self.nonces = Nonces()

    def check_policy(self, peer_id: PeerId) -> None:
        """Raises WorkerNotAuthorized for a peer that this mesh does not let in."""
        if peer_id in self._block:
            raise WorkerNotAuthorized(f"{peer_id} is blocked in this mesh")
        if self._allow is not None and peer_id not in self._allow:
            raise WorkerNotAuthorized(f"this mesh is private, and {peer_id} is not on its list")
        reason = self._barred(peer_id)
        if reason is not None:
            raise WorkerNotAuthorized(f"{peer_id} is not let in: {reason}")

    def admit(self, call: SignedCall, now: float, *, overheard: bool) -> None:
        """Let a call in; `now` is in seconds since 1970.

        `overheard`: whether others than its signer could have seen it, and bring it again.
        Raises BadFrame, WorkerNotAuthorized, ClockSkew, BadSignature, CallReplayed or
        TooManyRequests, in this order.
        """
        check_nonce(call.nonce)
        self.check_policy(call.peer_id)
        _check_time(call.created - now)
        if overheard and call.created < self._started:
            raise ClockSkew(f"the call was made before this musivum began, at {self._started:.0f}")
        check_signature(call.peer_id, call.purpose, call.payload, call.signature)
        self.nonces.use(call.peer_id, call.nonce, now)

    def admit_frame(
        self, signed: Signed, peer_id: PeerId, kinds: tuple[type[Any], ...], now: float
    ) -> Message:
        """What a peer calls with on a stream of its own; `kinds` may be called with there.

        Raises what `admit` does, BadFrame for what is no Call, OutOfTurn for another message, and
        NotAuthorized for a call of somebody else.
        """
        call = decode(signed.payload)
        if not isinstance(call, Call):
            raise BadFrame("what was signed is not a Call")
        message = decode(call.message)
        if not isinstance(message, kinds):
            raise OutOfTurn(f"{type(message).__name__} is not what is called with here")
        if call.peer_id != peer_id:
            raise NotAuthorized(f"a call of {call.peer_id:.64} on a stream of {peer_id}")
        presented = SignedCall(
            peer_id=peer_id,
            created=call.created,
            nonce=call.nonce,
            purpose=PURPOSE_TRACKER,
            payload=signed.payload,
            signature=signed.signature,
        )
        # Noise says who is at the other end, so nobody else has heard the call.
        self.admit(presented, now, overheard=False)
        return message


def _check_time(ahead: float) -> None:
    off = skew(ahead)
    if off is not None:
        raise ClockSkew(f"the call was made {off} this clock: set yours")
