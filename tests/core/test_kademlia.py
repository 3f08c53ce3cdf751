"""Points, and the lookup: it finds what is nearest, asks nobody twice, and ends."""

from __future__ import annotations

import hashlib
import random
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from libp2p.peer.id import ID

from tessella.core.addresses import PeerAddress
from tessella.core.errors import BadFrame
from tessella.core.identity import peer_id_of
from tessella.core.kademlia import (
    ALPHA,
    BITS,
    MAX_CLOSER,
    MAX_QUERIES,
    K,
    Lookup,
    common_prefix,
    nearest,
    peer_bytes,
    peer_from_bytes,
    peer_point,
    point,
)


@cache
def peer(number: int) -> PeerAddress:
    return PeerAddress(peer_id_of(number.to_bytes(32, "big")), ("/ip4/127.0.0.1/tcp/1",))


OWN = peer(0).peer_id


def test_a_point_is_the_hash_of_the_bytes_that_travel() -> None:
    raw = ID.from_base58(OWN).to_bytes()
    assert peer_bytes(OWN) == raw
    assert peer_from_bytes(raw) == OWN
    assert peer_point(OWN) == point(raw) == int(hashlib.sha256(raw).hexdigest(), 16)


@pytest.mark.parametrize("raw", [b"", bytes(38), bytes.fromhex("1220") + bytes(32)])
def test_a_peer_of_another_key_type_is_refused(raw: bytes) -> None:
    with pytest.raises(BadFrame, match="Ed25519"):
        peer_from_bytes(raw)


def test_a_text_that_is_no_peer_has_no_point() -> None:
    with pytest.raises(BadFrame):
        peer_point(peer(1).peer_id.lower())


def test_prefixes_are_counted_from_the_left() -> None:
    assert common_prefix(0, 0) == BITS
    assert common_prefix(0, 1) == BITS - 1
    assert common_prefix(0, 1 << 255) == 0


class Network:
    """Nodes that each know some others: a bucket's worth for each prefix, as Kademlia has it."""

    def __init__(self, size: int, seed: int) -> None:
        chance = random.Random(seed)
        self.peers = [peer(number) for number in range(1, size + 1)]
        chance.shuffle(self.peers)
        self._k = K
        self.asked: list[PeerAddress] = []

    def known_to(self, one: PeerAddress) -> list[PeerAddress]:
        buckets: dict[int, list[PeerAddress]] = {}
        for other in self.peers:
            prefix = common_prefix(peer_point(one.peer_id), peer_point(other.peer_id))
            if other != one and len(buckets.setdefault(prefix, [])) < self._k:
                buckets[prefix].append(other)
        return [other for bucket in buckets.values() for other in bucket]

    def run(self, lookup: Lookup, dead: frozenset[PeerAddress] = frozenset()) -> None:
        """Answer in an order that is not that of the questions."""
        waiting: list[PeerAddress] = []
        while not lookup.done:
            asks = lookup.next()
            self.asked += asks
            waiting += asks
            assert 0 < len(waiting) <= ALPHA
            one = waiting.pop(len(self.asked) % len(waiting))
            if one in dead:
                lookup.failed(one.peer_id)
            else:
                lookup.answered(one.peer_id, nearest(self.known_to(one), lookup.target))


@settings(max_examples=15, deadline=None)
@given(size=st.integers(1, 120), seed=st.integers(0, 99), target=st.binary(max_size=40))
def test_a_lookup_ends_with_the_nearest_of_all_and_asks_nobody_twice(
    size: int, seed: int, target: bytes
) -> None:
    network = Network(size, seed)
    at = point(target)
    lookup = Lookup(at, network.peers[:1], own=OWN)
    network.run(lookup)
    assert lookup.closest() == nearest(network.peers, at)
    assert len(network.asked) == len(set(network.asked)) == lookup.asked <= MAX_QUERIES


@settings(max_examples=15, deadline=None)
@given(size=st.integers(10, 100), seed=st.integers(0, 99), data=st.data())
def test_the_dead_are_passed_by(size: int, seed: int, data: st.DataObject) -> None:
    network = Network(size, seed)
    dead = frozenset(data.draw(st.sets(st.sampled_from(network.peers[1:]), max_size=size // 2)))
    at = point(b"target")
    lookup = Lookup(at, network.peers[:1], own=OWN)
    network.run(lookup, dead)
    alive = [one for one in network.peers if one not in dead]
    assert not dead & set(lookup.closest())
    assert lookup.closest()[:1] == nearest(alive, at, 1)


def test_lies_end_at_the_most_questions() -> None:
    """Every answer names twenty peers nearer than all before, of whom the best lie again."""
    at = point(b"target")
    crowd = sorted((peer(number) for number in range(1, 3000)), key=lambda p: -_far(p, at))
    lookup = Lookup(at, crowd[:1], own=OWN, most=50)
    place = 1
    while not lookup.done:
        for one in lookup.next():
            lookup.answered(one.peer_id, crowd[place : place + 20])
            place += 20
    assert lookup.asked == 50


def _far(one: PeerAddress, target: int) -> int:
    return peer_point(one.peer_id) ^ target


def test_one_answer_is_heard_up_to_its_limit() -> None:
    lookup = Lookup(0, [peer(1)], own=OWN, k=1000, alpha=1000, most=1000)
    assert lookup.next() == [peer(1)]
    lookup.answered(peer(1).peer_id, [peer(number) for number in range(2, 200)])
    assert len(lookup.next()) == MAX_CLOSER


def test_nobody_known_means_nobody_to_ask() -> None:
    lookup = Lookup(0, [], own=OWN)
    assert lookup.done
    assert lookup.next() == []
    assert lookup.closest() == []


def test_this_node_and_answers_nobody_asked_for_do_not_count() -> None:
    lookup = Lookup(0, [peer(0), peer(1)], own=OWN)
    lookup.answered(peer(1).peer_id, [peer(2)])
    assert lookup.next() == [peer(1)]
    lookup.answered(peer(1).peer_id, [peer(0)])
    lookup.failed(peer(1).peer_id)
    assert lookup.done
    assert lookup.closest() == [peer(1)]
