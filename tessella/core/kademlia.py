"""Kademlia's arithmetic, and whom to ask next on the way to a key.

Strategy. Every key and every peer is a point: SHA-256 of its bytes, as libp2p has it; the distance
of two points is their XOR. A lookup asks the nearest peers it knows for nearer ones until the K
nearest have all answered. Nothing here waits or sends: who calls says what happened and is told
what to do. Whom a node remembers between lookups is `tessella.core.buckets`.
"""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Iterable
from functools import lru_cache

from tessella.core.addresses import PeerAddress
from tessella.core.errors import BadFrame, BadSignature
from tessella.core.identity import peer_id_of, public_key_of
from tessella.core.ids import PeerId

# Kademlia's k: that all 20 holders of a key vanish within one beat is out of the question as long
# as fewer than half of all nodes do (one in a million). libp2p has the same.
K = 20
# Questions at a time in one lookup. libp2p asks 10: one silent peer then costs a tenth.
ALPHA = 10
# A lookup among a million honest nodes asks about 35; lies end here.
MAX_QUERIES = 100
# Peers taken from one answer: K of the protocol, and what other implementations add.
MAX_CLOSER = 2 * K
BITS = 256

# The identity multihash of the protobuf of an Ed25519 key, up to the 32 bytes of the key.
_PEER_PREFIX = bytes.fromhex("002408011220")


@lru_cache(maxsize=65536)
def peer_bytes(peer: PeerId) -> bytes:
    """A peer id as it travels in the protocol: the multihash that base58 spells."""
    return _PEER_PREFIX + public_key_of(peer)


def peer_from_bytes(raw: bytes) -> PeerId:
    """The inverse. Raises BadFrame for a peer whose key is not Ed25519."""
    if len(raw) != len(_PEER_PREFIX) + 32 or not raw.startswith(_PEER_PREFIX):
        raise BadFrame(f"not the peer id of an Ed25519 key: {raw[:40].hex()}")
    return peer_id_of(raw[len(_PEER_PREFIX) :])


def point(key: bytes) -> int:
    """Where a key lies."""
    return int.from_bytes(hashlib.sha256(key).digest(), "big")


@lru_cache(maxsize=65536)
def peer_point(peer: PeerId) -> int:
    """Where a peer lies."""
    try:
        return point(peer_bytes(peer))
    except BadSignature as exc:
        raise BadFrame(str(exc)) from None


def common_prefix(a: int, b: int) -> int:
    """How many leading bits two points share."""
    return BITS - (a ^ b).bit_length()


def nearest(peers: Iterable[PeerAddress], target: int, count: int = K) -> list[PeerAddress]:
    """The peers nearest to a point, nearest first."""
    return heapq.nsmallest(count, peers, key=lambda peer: peer_point(peer.peer_id) ^ target)


class Lookup:
    """Whom to ask next on the way to a point. Ends with the K nearest peers that answered.

    Call `next` after every change and ask whom it names; tell each outcome with `answered` or
    `failed`. No peer is named twice, at most `alpha` are asked at a time and `most` in all.
    """

    def __init__(
        self,
        target: int,
        start: Iterable[PeerAddress],
        *,
        own: PeerId,
        k: int = K,
        alpha: int = ALPHA,
        most: int = MAX_QUERIES,
    ) -> None:
        self.target = target
        self.asked = 0
        self._own = own
        self._k = k
        self._alpha = alpha
        self._most = most
        # By distance; a distance names its peer.
        self._peers: dict[int, PeerAddress] = {}
        self._answered: set[int] = set()
        self._failed: set[int] = set()
        self._waiting: set[int] = set()
        self._hear(start)

    def _hear(self, peers: Iterable[PeerAddress]) -> None:
        for peer in peers:
            if peer.peer_id != self._own:
                self._peers.setdefault(self._distance(peer.peer_id), peer)

    def _distance(self, peer: PeerId) -> int:
        return peer_point(peer) ^ self.target

    def _frontier(self) -> list[int]:
        """The k nearest that have not failed: when all have answered, the lookup is done."""
        return heapq.nsmallest(self._k, self._peers.keys() - self._failed)

    def next(self) -> list[PeerAddress]:
        """Whom to ask now; they count as asked."""
        room = min(self._alpha - len(self._waiting), self._most - self.asked)
        known = self._answered | self._waiting
        chosen = [at for at in self._frontier() if at not in known][: max(0, room)]
        self._waiting.update(chosen)
        self.asked += len(chosen)
        return [self._peers[at] for at in chosen]

    def answered(self, peer: PeerId, closer: Iterable[PeerAddress] = ()) -> None:
        """A peer that was asked named others: of them, MAX_CLOSER are heard."""
        at = self._distance(peer)
        if at in self._waiting:
            self._waiting.discard(at)
            self._answered.add(at)
            self._hear(nearest(closer, self.target, MAX_CLOSER))

    def failed(self, peer: PeerId) -> None:
        """A peer that was asked did not answer, or lied."""
        at = self._distance(peer)
        if at in self._waiting:
            self._waiting.discard(at)
            self._failed.add(at)

    @property
    def done(self) -> bool:
        """Whether there is nobody left to ask, or to wait for, who could matter."""
        open_ = [at for at in self._frontier() if at not in self._answered]
        if self.asked >= self._most:
            return not self._waiting
        return not open_

    def closest(self) -> list[PeerAddress]:
        """The nearest peers that answered, nearest first: at most k."""
        return [self._peers[at] for at in sorted(self._answered)[: self._k]]
