"""Orders of musivum: it may tell a node to hold other layers. Nobody else may.

Checked in this order, the remembered last:

    peer         at the other end of the stream, by its handshake: a musivum of this node's own
    signature    over the exact bytes, for this purpose, by that peer
    identity     the peer that the call names is that peer
    time         created from 60 s before to 30 s after this clock
    nonce        not used before; remembered only after everything above held
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from p2p.streams import FrameStream
from tessella.core.call_rules import NONCE_SECONDS, check_nonce, skew
from tessella.core.errors import (
    BadFrame,
    CallReplayed,
    ClockSkew,
    NotAuthorized,
    OutOfTurn,
    TooManyRequests,
)
from tessella.core.identity import PURPOSE_TRACKER, check_signature
from tessella.core.ids import PeerId
from tessella.core.layers import LayerRange
from tessella.core.messages import Accepted, Assign, Call, Signed, decode

# The order is the first frame; a musivum has nothing to wait for.
ORDER_TIMEOUT = 10.0
# More than one order a second for three minutes is no re-split, it is a defect.
MAX_NONCES = 256
# One order at a time, and one that was given up by a musivum that lost its connection.
ORDER_STREAMS, ORDER_STREAMS_PER_PEER = 8, 2


class Nonces:
    """The nonces of the last NONCE_SECONDS, at most MAX_NONCES of them."""

    def __init__(self) -> None:
        self._used: set[tuple[PeerId, bytes]] = set()
        self._order: deque[tuple[float, tuple[PeerId, bytes]]] = deque()

    def use(self, peer: PeerId, nonce: bytes, now: float) -> None:
        """Remember a nonce from `now` on.

        Raises CallReplayed if it is remembered, and TooManyRequests where there is no room:
        forgetting one early would let it be used twice.
        """
        while self._order and self._order[0][0] <= now - NONCE_SECONDS:
            self._used.discard(self._order.popleft()[1])
        if (peer, nonce) in self._used:
            raise CallReplayed("the nonce of this call was used before")
        if len(self._used) >= MAX_NONCES:
            raise TooManyRequests(f"{MAX_NONCES} orders within {NONCE_SECONDS:g} s")
        self._used.add((peer, nonce))
        self._order.append((now, (peer, nonce)))


class Orders:
    """The handler of order streams: one order each."""

    def __init__(
        self,
        musivums: Iterable[PeerId],
        want: Callable[[LayerRange], None],
        clock: Callable[[], float],
    ) -> None:
        """`want` takes the range, or raises Refused; `clock` gives seconds since 1970."""
        self.musivums = frozenset(musivums)
        """Who may order."""
        self.want = want
        """Takes a range that was ordered, or raises Refused."""
        self._clock = clock
        self._nonces = Nonces()

    async def serve(self, stream: FrameStream) -> None:
        """Take one order, and say Accepted before it is carried out.

        Raises what `admit` raises, and Refused.
        """
        if stream.peer_id not in self.musivums:
            raise NotAuthorized(f"{stream.peer_id} is no musivum of this node")
        signed = await stream.receive(ORDER_TIMEOUT)
        if not isinstance(signed, Signed):
            raise OutOfTurn(f"{type(signed).__name__} in place of a signed order")
        self.want(self.admit(signed, stream.peer_id).layers)
        await stream.send(Accepted())

    def admit(self, signed: Signed, peer: PeerId) -> Assign:
        """The order in a call of this musivum.

        Raises BadSignature, NotAuthorized, ClockSkew, CallReplayed, TooManyRequests, and BadFrame
        or OutOfTurn for what is no order.
        """
        payload = check_signature(peer, PURPOSE_TRACKER, signed.payload, signed.signature)
        call = decode(payload)
        if not isinstance(call, Call):
            raise BadFrame("what was signed is not a Call")
        if call.peer_id != peer:
            raise NotAuthorized(f"a call of {call.peer_id:.64} on a stream of {peer}")
        now = self._clock()
        _check_time(call.created - now)
        check_nonce(call.nonce)
        self._nonces.use(peer, call.nonce, now)
        order = decode(call.message)
        if not isinstance(order, Assign):
            raise OutOfTurn(f"{type(order).__name__} is not what a node is told")
        return order


def _check_time(ahead: float) -> None:
    off = skew(ahead)
    if off is not None:
        raise ClockSkew(f"the order was made {off} this node's clock")
