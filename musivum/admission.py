"""Which calls are let in. Checked in this order, the dear and the remembered last:

    signature    over the exact bytes, for this purpose, by the peer at the other end of the stream
    identity     the peer that the call names is that peer
    time         created from 60 s before to 30 s after this clock
    nonce        not used before by that peer; remembered only after everything above held

A call says nothing to anyone but its signer, so memory that a restart empties opens no door: a
stranger's replay fails at the first line.
"""

from __future__ import annotations

from collections import Counter, deque

from tessella.core.errors import BadFrame, NotAuthorized, OutOfTurn, TooManySessions
from tessella.core.identity import PURPOSE_TRACKER, check_signature
from tessella.core.ids import PeerId
from tessella.core.messages import (
    Announce,
    Call,
    Deregister,
    Message,
    Ready,
    Register,
    ReportFailure,
    Signed,
    decode,
)

# Seconds a call may be older or newer than this clock: clocks drift, and packets wait.
PAST_SECONDS = 60.0
FUTURE_SECONDS = 30.0
# Twice the window in which a nonce could be accepted again.
NONCE_SECONDS = 180.0
MIN_NONCE_BYTES, MAX_NONCE_BYTES = 8, 64
# A node calls every few seconds; a busy one a few times more when it joins.
MAX_NONCES_PER_PEER = 512
# 8,192 nodes that announce themselves every ten seconds leave 147,456.
MAX_NONCES = 1 << 18

CALLS = (Register, Ready, Announce, Deregister, ReportFailure)


class Nonces:
    """The nonces of the last three minutes, at most MAX_NONCES of them."""

    def __init__(self, limit: int = MAX_NONCES, per_peer: int = MAX_NONCES_PER_PEER) -> None:
        self._limit = limit
        self._per_peer = per_peer
        self._used: set[tuple[PeerId, bytes]] = set()
        self._order: deque[tuple[float, PeerId, bytes]] = deque()
        self._count: Counter[PeerId] = Counter()

    def __len__(self) -> int:
        return len(self._used)

    def use(self, peer_id: PeerId, nonce: bytes, now: float) -> None:
        """Remember a nonce from `now` on.

        Raises NotAuthorized if it is remembered, and TooManySessions where there is no room:
        forgetting one early would let it be used twice.
        """
        self._forget(now - NONCE_SECONDS)
        if (peer_id, nonce) in self._used:
            raise NotAuthorized("the nonce of this call was used before")
        if self._count[peer_id] >= self._per_peer or len(self._used) >= self._limit:
            raise TooManySessions(f"more calls than {NONCE_SECONDS:g} s have room for")
        self._used.add((peer_id, nonce))
        self._order.append((now, peer_id, nonce))
        self._count[peer_id] += 1

    def _forget(self, before: float) -> None:
        while self._order and self._order[0][0] <= before:
            _, peer_id, nonce = self._order.popleft()
            self._used.discard((peer_id, nonce))
            self._count[peer_id] -= 1
            if not self._count[peer_id]:
                del self._count[peer_id]


def admit(signed: Signed, peer_id: PeerId, now: float, nonces: Nonces) -> Message:
    """The message in a call of this peer, one of CALLS.

    `now` is in seconds since 1970. Raises BadSignature, BadFrame, NotAuthorized, OutOfTurn or
    TooManySessions.
    """
    payload = check_signature(peer_id, PURPOSE_TRACKER, signed.payload, signed.signature)
    call = decode(payload)
    if not isinstance(call, Call):
        raise BadFrame("what was signed is not a Call")
    if call.peer_id != peer_id:
        raise NotAuthorized(f"a call of {call.peer_id:.64} on a stream of {peer_id}")
    _check_time(call.created - now)
    if not MIN_NONCE_BYTES <= len(call.nonce) <= MAX_NONCE_BYTES:
        raise BadFrame(f"a nonce has {MIN_NONCE_BYTES} to {MAX_NONCE_BYTES} bytes")
    nonces.use(peer_id, call.nonce, now)
    message = decode(call.message)
    if not isinstance(message, CALLS):
        raise OutOfTurn(f"{type(message).__name__} is not what a tracker is called with")
    return message


def _check_time(ahead: float) -> None:
    if not -PAST_SECONDS <= ahead <= FUTURE_SECONDS:
        word = "ahead of" if ahead > 0 else "behind"
        raise NotAuthorized(f"the call was made {abs(ahead):.0f} s {word} this clock: set yours")
