"""Who is remembered: those that live, and of a flood no more than its share."""

from __future__ import annotations

from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tessella.core.addresses import PeerAddress
from tessella.core.buckets import (
    FRESH,
    NotTaken,
    PingFirst,
    RoutingTable,
    Taken,
    address_groups,
)
from tessella.core.identity import peer_id_of
from tessella.core.kademlia import common_prefix, nearest, peer_point, point


@cache
def peer(number: int, addr: str = "/ip4/127.0.0.1/tcp/1") -> PeerAddress:
    return PeerAddress(peer_id_of(number.to_bytes(32, "big")), (addr,))


OWN = peer(0).peer_id
# Peers that share no bit with the own point: all of one bucket.
FAR = [
    one
    for one in map(peer, range(1, 200))
    if common_prefix(peer_point(OWN), peer_point(one.peer_id)) == 0
]


def full_bucket(k: int = 3) -> RoutingTable:
    table = RoutingTable(OWN, k=k)
    for second, one in enumerate(FAR[:k]):
        assert table.offer(one, float(second)) == Taken(known=False)
    return table


def test_this_node_is_never_in_its_own_table() -> None:
    table = RoutingTable(OWN)
    assert isinstance(table.offer(peer(0), 0), NotTaken)
    assert OWN not in table


def test_a_full_bucket_asks_the_longest_silent_before_it_takes_another() -> None:
    table = full_bucket()
    assert table.offer(FAR[3], 2 + FRESH) == PingFirst(FAR[0])
    table.seen(FAR[0].peer_id, 2 + FRESH)
    assert table.offer(FAR[3], 2 + FRESH) == PingFirst(FAR[1])
    table.remove(FAR[1].peer_id)
    assert table.offer(FAR[3], 2 + FRESH) == Taken(known=False)
    assert [one in table for one in (p.peer_id for p in FAR[:4])] == [True, False, True, True]


def test_peers_that_live_are_not_even_asked() -> None:
    table = full_bucket()
    assert isinstance(table.offer(FAR[3], 5.0), NotTaken)


def test_a_known_peer_may_move_and_counts_as_seen() -> None:
    table = full_bucket()
    moved = PeerAddress(FAR[0].peer_id, ("/ip4/127.0.0.1/tcp/2",))
    assert table.offer(moved, 100.0) == Taken(known=True)
    assert table.get(FAR[0].peer_id) == moved
    assert len(table) == 3
    assert table.offer(FAR[3], 100.0) == PingFirst(FAR[1])


def test_removing_whom_nobody_knows_is_no_error() -> None:
    table = full_bucket()
    table.remove(peer(999).peer_id)
    table.seen(peer(999).peer_id, 0)
    assert len(table) == 3
    assert table.get(peer(999).peer_id) is None


def test_the_silent_are_named_longest_first() -> None:
    table = full_bucket()
    assert table.stale(2.0, 10) == FAR[:2]
    assert table.stale(2.0, 1) == FAR[:1]
    assert table.deepest() == 0


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 60), st.booleans()), max_size=200))
def test_no_bucket_and_no_table_grows_beyond_its_limit(steps: list[tuple[int, bool]]) -> None:
    table = RoutingTable(OWN, k=2, cap=7)
    model: set[str] = set()
    for second, (number, comes) in enumerate(steps):
        one = peer(number)
        if comes and isinstance(table.offer(one, float(second)), Taken):
            model.add(one.peer_id)
        elif not comes:
            table.remove(one.peer_id)
            model.discard(one.peer_id)
        known = table.peers()
        assert {p.peer_id for p in known} == model
        assert len(table) == len(known) <= 7
    prefixes = [common_prefix(peer_point(OWN), peer_point(p.peer_id)) for p in table.peers()]
    assert all(prefixes.count(prefix) <= 2 for prefix in prefixes)


@settings(max_examples=25, deadline=None)
@given(st.sets(st.integers(1, 80)), st.binary(max_size=8))
def test_the_nearest_are_the_nearest_of_those_known(numbers: set[int], key: bytes) -> None:
    table = RoutingTable(OWN, k=100)
    for number in numbers:
        table.offer(peer(number), 0.0)
    assert table.nearest(point(key), 5) == nearest(map(peer, numbers), point(key), 5)


def test_one_network_gets_its_share_and_gives_it_back() -> None:
    table = RoutingTable(OWN, groups=address_groups(), per_group=2)
    crowd = [peer(number, f"/ip4/8.8.8.{number}/tcp/1") for number in range(1, 5)]
    assert [type(table.offer(one, 0.0)) for one in crowd] == [Taken, Taken, NotTaken, NotTaken]
    table.offer(crowd[0], 1.0)
    table.remove(crowd[1].peer_id)
    assert isinstance(table.offer(crowd[2], 0.0), Taken)
    assert isinstance(table.offer(crowd[3], 0.0), NotTaken)


@pytest.mark.parametrize(
    ("addr", "groups"),
    [
        ("/ip4/8.8.8.8/tcp/1", ("8.8.8.0/24",)),
        ("/ip6/2001:4860:4860::8888/tcp/1", ("2001:4860:4860::/48",)),
        ("/ip4/10.0.0.1/tcp/1", ()),
        ("/ip4/127.0.0.1/tcp/1", ()),
        ("/dns4/example.org/tcp/1", ()),
        ("/ip4/1.1.1.1/tcp/1", ()),
    ],
)
def test_networks_are_those_of_public_addresses(addr: str, groups: tuple[str, ...]) -> None:
    assert address_groups(exempt=("1.1.1.0/24",))(peer(1, addr)) == groups
