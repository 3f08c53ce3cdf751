"""Whom a node of the swarm remembers: up to K peers for each length of prefix shared with it.

So it knows its neighbourhood well and the rest of the world in outline. A peer that answers keeps
its place for as long as it does: whoever comes later, and however many, cannot take it.
"""

from __future__ import annotations

import ipaddress
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from tessella.core.addresses import PeerAddress
from tessella.core.ids import PeerId
from tessella.core.kademlia import K, common_prefix, nearest, peer_point

# Peers in a table: K for each of the 30 prefixes that a billion nodes fill, and no more.
MAX_TABLE = 30 * K
# A peer seen within this many seconds keeps its place without being asked.
FRESH = 60.0


@dataclass(frozen=True, slots=True)
class Taken:
    """The peer is in the table."""

    known: bool
    """Whether it was before."""


@dataclass(frozen=True, slots=True)
class PingFirst:
    """The bucket is full, and this peer was not heard of for longest.

    Ask it. If it answers call `seen`, and the offered one is not needed; otherwise `remove` it
    and offer again.
    """

    oldest: PeerAddress


@dataclass(frozen=True, slots=True)
class NotTaken:
    """The peer is not needed, or not wanted."""

    why: str


Offer = Taken | PingFirst | NotTaken


@dataclass(slots=True)
class _Known:
    peer: PeerAddress
    seen_at: float


class RoutingTable:
    """Peers that have answered, in a bucket for each length of the prefix shared with `own`."""

    def __init__(
        self,
        own: PeerId,
        *,
        k: int = K,
        cap: int = MAX_TABLE,
        groups: Callable[[PeerAddress], Iterable[str]] = lambda _: (),
        per_group: int = K,
    ) -> None:
        """`groups` names the networks a peer belongs to: of each, `per_group` peers are taken."""
        self.own = own
        self._point = peer_point(own)
        self._k = k
        self._cap = cap
        self._groups = groups
        self._per_group = per_group
        self._crowd: Counter[str] = Counter()
        self._size = 0
        # Within a bucket: least recently seen first.
        self._buckets: dict[int, OrderedDict[PeerId, _Known]] = {}

    def __len__(self) -> int:
        return self._size

    def __contains__(self, peer: PeerId) -> bool:
        return self._find(peer) is not None

    def peers(self) -> list[PeerAddress]:
        """All of them, the nearest buckets first."""
        buckets = sorted(self._buckets, reverse=True)
        return [known.peer for number in buckets for known in self._buckets[number].values()]

    def get(self, peer: PeerId) -> PeerAddress | None:
        """A peer with its addresses."""
        known = self._find(peer)
        return known.peer if known else None

    def _number(self, peer: PeerId) -> int:
        return common_prefix(self._point, peer_point(peer))

    def _find(self, peer: PeerId) -> _Known | None:
        bucket = self._buckets.get(self._number(peer))
        return bucket.get(peer) if bucket else None

    def offer(self, peer: PeerAddress, now: float) -> Offer:
        """Remember a peer that has answered at `now` (seconds of any steady clock), if it fits."""
        if peer.peer_id == self.own:
            return NotTaken("this node itself")
        bucket = self._buckets.setdefault(self._number(peer.peer_id), OrderedDict())
        if peer.peer_id in bucket:
            self._drop(bucket, peer.peer_id)
            return self._take(bucket, peer, now, known=True)
        crowded = [name for name in self._groups(peer) if self._crowd[name] >= self._per_group]
        if crowded:
            return NotTaken(f"{self._per_group} peers of {crowded[0]} are known")
        if len(bucket) < self._k:
            if self._size >= self._cap:
                return NotTaken(f"all {self._cap} places are taken")
            return self._take(bucket, peer, now, known=False)
        oldest = next(iter(bucket.values()))
        if now - oldest.seen_at < FRESH:
            return NotTaken("its bucket is full of peers that live")
        return PingFirst(oldest.peer)

    def _take(
        self, bucket: OrderedDict[PeerId, _Known], peer: PeerAddress, now: float, *, known: bool
    ) -> Taken:
        bucket[peer.peer_id] = _Known(peer, now)
        self._size += 1
        self._crowd.update(self._groups(peer))
        return Taken(known)

    def _drop(self, bucket: OrderedDict[PeerId, _Known], peer: PeerId) -> None:
        gone = bucket.pop(peer)
        self._size -= 1
        self._crowd.subtract(self._groups(gone.peer))
        self._crowd += Counter()  # forgets the names of networks that have nobody

    def seen(self, peer: PeerId, now: float) -> None:
        """A peer of the table has answered."""
        known = self._find(peer)
        if known is not None:
            known.seen_at = now
            self._buckets[self._number(peer)].move_to_end(peer)

    def remove(self, peer: PeerId) -> None:
        """A peer did not answer. One that is not known is no error."""
        bucket = self._buckets.get(self._number(peer), OrderedDict())
        if peer in bucket:
            self._drop(bucket, peer)

    def nearest(self, target: int, count: int = K) -> list[PeerAddress]:
        """The peers nearest to a point, nearest first."""
        return nearest(self.peers(), target, count)

    def stale(self, before: float, count: int) -> list[PeerAddress]:
        """Up to `count` peers not heard of since `before`, the longest silent first."""
        all_known = (known for bucket in self._buckets.values() for known in bucket.values())
        silent = sorted(
            (known for known in all_known if known.seen_at < before), key=lambda k: k.seen_at
        )
        return [known.peer for known in silent[:count]]

    def deepest(self) -> int:
        """The longest prefix that a known peer shares with this node; 0 if there is none."""
        return max((number for number, bucket in self._buckets.items() if bucket), default=0)


def address_groups(exempt: Sequence[str] = ()) -> Callable[[PeerAddress], tuple[str, ...]]:
    """A function that names the /24 and /48 networks of a peer's public addresses.

    Private addresses and those in the `exempt` networks, as `203.0.113.0/24`, belong to none.
    Raises ValueError for a network that is none.
    """
    free = [ipaddress.ip_network(text) for text in exempt]

    def groups(peer: PeerAddress) -> tuple[str, ...]:
        found: dict[str, None] = {}
        for addr in peer.addrs:
            _, family, host, *_ = addr.split("/")
            if family not in ("ip4", "ip6"):
                continue
            ip = ipaddress.ip_address(host)
            if ip.is_global and not any(ip in network for network in free):
                found[str(ipaddress.ip_network((ip, 24 if ip.version == 4 else 48), False))] = None
        return tuple(found)

    return groups
