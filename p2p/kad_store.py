"""What a node keeps for others: signed records, and who said that it is a provider. Bounded.

Whoever stores is authenticated and still a stranger: what is kept is what the rules of
`tessella.core.records` let pass, for as long as they say, and a flood of identities costs a
bounded number of places.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from dataclasses import dataclass

from tessella.core.addresses import PeerAddress
from tessella.core.errors import BadFrame, Busy
from tessella.core.ids import PeerId
from tessella.core.kademlia import peer_point
from tessella.core.records import NodeRecord, better, is_multihash, open_record

# Records of 2 KiB: 8 MiB. Each is on 20 nodes for its own key and on 60 for what it provides.
MAX_VALUES = 4096
# A node says once in four minutes that it is a provider; two such words may be lost.
PROVIDER_LIFE = 600.0
# Providers of one key: a mesh of a thousand nodes is listed whole.
MAX_PROVIDERS_PER_KEY = 1024
# Keys for which one peer can be a provider here: its models, each with and without contract.
MAX_KEYS_PER_PEER = 32
# In all, about 300 bytes each.
MAX_PROVIDERS = 16384


@dataclass(frozen=True, slots=True)
class Stored:
    """A record as it came, and opened."""

    record: NodeRecord
    data: bytes
    stored_at: float


class ValueStore:
    """The best record of each node, while it holds.

    When all places are taken the record farthest from this node goes: identities that are made to
    flood it lie anywhere, and what this node should hold lies near.
    """

    def __init__(self, own: PeerId, most: int = MAX_VALUES) -> None:
        self._own = peer_point(own)
        self._most = most
        self._kept: dict[PeerId, Stored] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def put(self, key: bytes, data: bytes, now: float) -> NodeRecord:
        """Keep a record if it is better than the one held; the one held from now on.

        Raises what `open_record` raises.
        """
        record = open_record(data, key, now)
        held = self._kept.get(record.peer_id)
        if held is None or better(held.record, record) is record:
            self._kept[record.peer_id] = Stored(record, data, now)
            self._make_room(now)
            return record
        return held.record

    def get(self, peer: PeerId, now: float) -> Stored | None:
        """The record of a node, if it still holds."""
        held = self._kept.get(peer)
        if held is None or held.record.ends_at <= now:
            self._kept.pop(peer, None)
            return None
        return held

    def records(self, now: float) -> list[NodeRecord]:
        """All that hold."""
        self.expire(now)
        return [held.record for held in self._kept.values()]

    def expire(self, now: float) -> None:
        """Drop what does not hold any more."""
        ended = [peer for peer, held in self._kept.items() if held.record.ends_at <= now]
        for peer in ended:
            del self._kept[peer]

    def _make_room(self, now: float) -> None:
        if len(self._kept) <= self._most:
            return
        self.expire(now)
        while len(self._kept) > self._most:
            del self._kept[max(self._kept, key=lambda peer: peer_point(peer) ^ self._own)]


@dataclass(frozen=True, slots=True)
class _Provider:
    peer: PeerAddress
    ends_at: float


class ProviderStore:
    """Who said, itself, that it is a provider of a key.

    A key with too many keeps those that come first in an order only this node knows: of a flood
    of identities it keeps a fair share, and who is kept stays kept.
    """

    def __init__(
        self, salt: bytes, *, per_key: int = MAX_PROVIDERS_PER_KEY, most: int = MAX_PROVIDERS
    ) -> None:
        self._salt = salt
        self._per_key = per_key
        self._most = most
        self._keys: dict[bytes, dict[PeerId, _Provider]] = {}
        self._count: dict[PeerId, int] = {}
        self._total = 0

    def __len__(self) -> int:
        return self._total

    def add(self, key: bytes, peer: PeerAddress, now: float) -> None:
        """Keep a provider for PROVIDER_LIFE. Its addresses are its own word.

        Raises BadFrame for a key that has no providers, Busy where all places are taken.
        """
        if not is_multihash(key):
            raise BadFrame(f"not a multihash of SHA-256: {key[:40].hex()}")
        known = self._keys.get(key, {})
        if peer.peer_id not in known:
            if self._count.get(peer.peer_id, 0) >= MAX_KEYS_PER_PEER:
                raise Busy(f"{peer.peer_id} is a provider of {MAX_KEYS_PER_PEER} keys here")
            if len(self) >= self._most:
                self.expire(now)
                self._refuse_full()
            self._count[peer.peer_id] = self._count.get(peer.peer_id, 0) + 1
            self._total += 1
        known = self._keys.setdefault(key, {})
        known[peer.peer_id] = _Provider(peer, now + PROVIDER_LIFE)
        if len(known) > self._per_key:
            self._remove(key, max(known, key=self._rank))

    def _refuse_full(self) -> None:
        if len(self) >= self._most:
            raise Busy(f"all {self._most} places for providers are taken here")

    def _rank(self, peer: PeerId) -> bytes:
        return hashlib.sha256(self._salt + peer.encode()).digest()

    def _remove(self, key: bytes, peer: PeerId) -> None:
        del self._keys[key][peer]
        if not self._keys[key]:
            del self._keys[key]
        self._total -= 1
        self._count[peer] -= 1
        if not self._count[peer]:
            del self._count[peer]

    def get(self, key: bytes, now: float) -> tuple[PeerAddress, ...]:
        """The providers of a key."""
        known = self._keys.get(key, {})
        return tuple(entry.peer for entry in known.values() if entry.ends_at > now)

    def expire(self, now: float) -> None:
        """Drop who has not said it again in time."""
        ended = [
            (key, peer)
            for key, known in self._keys.items()
            for peer, entry in known.items()
            if entry.ends_at <= now
        ]
        for key, peer in ended:
            self._remove(key, peer)


class RateLimit:
    """So many events a second of each peer, and as many at once as `burst`."""

    def __init__(self, per_second: float, burst: float, peers: int = 4096) -> None:
        """Of `peers` peers the rate is known; who was not heard of for longest is forgotten."""
        self._per_second = per_second
        self._burst = burst
        self._peers = peers
        self._owed: OrderedDict[PeerId, tuple[float, float]] = OrderedDict()

    def wait(self, peer: PeerId, now: float) -> float:
        """Count one event; the seconds until it is within the rate, 0 if it is."""
        owed, at = self._owed.pop(peer, (0.0, now))
        owed = max(0.0, owed - (now - at) * self._per_second) + 1.0
        self._owed[peer] = (owed, now)
        if len(self._owed) > self._peers:
            self._owed.popitem(last=False)
        return max(0.0, owed - self._burst) / self._per_second

    def allow(self, peer: PeerId, now: float) -> None:
        """Count one event. Raises Busy that names the peer if it is beyond the rate."""
        wait = self.wait(peer, now)
        if wait > 0:
            owed, at = self._owed[peer]
            self._owed[peer] = (owed - 1.0, at)
            raise Busy(f"{peer} stores too much here; {wait:.1f} s")
