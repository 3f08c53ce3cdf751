"""Who holds which layers, moved by hand: no clock, no network."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from ipaddress import IPv4Network
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from musivum.config import MusivumConfig
from musivum.nodes.node import Node
from musivum.nodes.registration import Wish, read_registration
from musivum.nodes.roster import Forgotten, Roster, WentOffline
from musivum.testing import HOUSE, a_registration
from tessella.core.addresses import read_ip
from tessella.core.errors import (
    BadFrame,
    ClaimTooSmall,
    Refused,
    TessellaError,
    TooManySessions,
    UnknownWorker,
)
from tessella.core.ids import ModelId, PeerId
from tessella.core.layers import LayerRange
from tessella.core.messages import Announce
from tessella.core.peers import NodeStatus
from tessella.core.plan import reservations
from tessella.core.route import coverage

A, B, C, D = (PeerId(name) for name in "abcd")
WISH = read_registration(a_registration(), HOUSE)
BEAT = Announce("Healthy", 0, 0.0)


def roster(**changes: Any) -> Roster:
    return Roster(replace(MusivumConfig(min_vram_mb=0), **changes))


def joined(state: Roster, *peers: PeerId, wish: Wish = WISH, now: float = 0.0) -> list[str]:
    return [str(state.join(peer, wish, now).row.layers) for peer in peers]


def statuses(state: Roster) -> dict[str, str]:
    return {node.row.peer_id: node.row.status for node in state.nodes()}


def test_three_joins_cover_the_model() -> None:
    state = roster()
    assert joined(state, A, B, C) == ["0:4", "4:10", "10:12"]
    assert set(statuses(state).values()) == {"PendingLoad"}


def test_ready_and_heartbeats_move_a_node() -> None:
    state = roster()
    joined(state, A)
    state.announce(A, Announce("Saturated", 3, 2.5), 1.0)
    assert statuses(state) == {A: "PendingLoad"}
    state.ready(A, LayerRange(0, 4), 2.0)
    assert statuses(state) == {A: "Healthy"}
    state.announce(A, Announce("Saturated", 3, 2.5), 3.0)
    row = state.node(A).row
    assert (row.status, row.queue_depth, row.step_ms) == ("Saturated", 3, 2.5)


def test_another_range_than_the_assigned_is_not_served() -> None:
    state = roster()
    joined(state, A)
    with pytest.raises(Refused, match="layers 0:4 were assigned, not 0:5"):
        state.ready(A, LayerRange(0, 5), 0.0)
    assert statuses(state) == {A: "PendingLoad"}


def test_who_is_not_here_is_told_to_register() -> None:
    state = roster()
    with pytest.raises(UnknownWorker):
        state.ready(A, LayerRange(0, 4), 0.0)
    with pytest.raises(UnknownWorker):
        state.announce(A, BEAT, 0.0)
    state.leave(A)
    state.lost(A, 0.0)


@pytest.mark.parametrize(
    "said",
    [
        Announce("Offline", 0, 0.0),
        Announce("healthy", 0, 0.0),
        Announce("", 0, 0.0),
        Announce("Healthy", -1, 0.0),
        Announce("Healthy", 2_000_000, 0.0),
        Announce("Healthy", 0, -1.0),
        Announce("Healthy", 0, 1e7),
    ],
)
def test_a_heartbeat_that_cannot_be_true_changes_nothing(said: Announce) -> None:
    state = roster()
    joined(state, A)
    before = state.node(A)
    with pytest.raises(BadFrame, match="Announce"):
        state.announce(A, said, 1.0)
    assert state.node(A) == before


def test_no_node_claims_to_be_infinitely_fast() -> None:
    state = roster()
    joined(state, A)
    state.announce(A, Announce("Healthy", 0, 1e-12), 1.0)
    assert state.node(A).row.step_ms == 0.01


def test_registering_again_frees_the_old_range_at_once() -> None:
    state = roster()
    joined(state, A, B, C)
    assert joined(state, B) == ["4:10"]
    assert len(state) == 3


def test_a_refused_registration_leaves_no_row() -> None:
    state = roster()
    joined(state, A)
    with pytest.raises(ClaimTooSmall, match="a claim of 0 MB holds no layer here: 2 MB would"):
        state.join(A, replace(WISH, claim_mb=0), 0.0)
    assert len(state) == 0


def test_a_node_keeps_the_range_it_wants() -> None:
    state = roster()
    wish = replace(WISH, wanted=LayerRange(4, 10))
    assert joined(state, A, B, wish=wish) == ["4:10", "4:10"]
    assert joined(state, C) == ["0:4"]
    with pytest.raises(ClaimTooSmall, match="8 MB does not hold layers 0:12: 20 MB would"):
        state.join(D, replace(WISH, wanted=LayerRange(0, 12)), 0.0)


def test_nodes_of_another_contract_hold_nothing_for_this_one() -> None:
    state = roster()
    joined(state, A)
    assert joined(state, B, wish=replace(WISH, contract="other")) == ["0:4"]
    assert joined(state, C, wish=replace(WISH, model=ModelId("else"))) == ["0:4"]
    assert [node.row.peer_id for node in state.nodes(ModelId("small"))] == [A, B]


def test_three_missed_beats_make_a_node_offline_and_free_its_range() -> None:
    state = roster()
    joined(state, A)
    state.ready(A, LayerRange(0, 4), 0.0)
    state.announce(A, BEAT, 10.0)
    assert state.expire(40.0, {A}) == []
    (gone,) = state.expire(40.5, {A})
    assert isinstance(gone, WentOffline)
    assert statuses(state) == {A: "Offline"}
    assert joined(state, B, now=41.0) == ["0:4"]


def test_an_offline_node_that_speaks_is_back() -> None:
    state = roster()
    joined(state, A)
    state.ready(A, LayerRange(0, 4), 0.0)
    state.lost(A, 1.0)
    assert statuses(state) == {A: "Offline"}
    state.announce(A, BEAT, 2.0)
    assert statuses(state) == {A: "Healthy"}


def test_an_offline_node_is_forgotten_in_the_end() -> None:
    state = roster()
    joined(state, A)
    state.lost(A, 0.0)
    assert state.expire(599.0, ()) == []
    assert state.expire(600.0, ()) == [Forgotten(A)]
    assert len(state) == 0


def test_a_loading_node_lives_by_its_connection_for_so_long() -> None:
    state = roster(load_seconds=100.0)
    joined(state, A, B)
    assert state.expire(29.0, {A}) == []
    assert state.expire(31.0, {A}) == [WentOffline(B, "silent for 31 s")]
    assert state.expire(100.0, {A}) == []
    assert state.expire(101.0, {A}) == [WentOffline(A, "still loading after 101 s")]


def test_a_full_list_makes_room_only_of_nodes_that_are_offline() -> None:
    state = roster(max_nodes=2)
    joined(state, A, B)
    with pytest.raises(TooManySessions, match="all 2 places"):
        joined(state, C)
    state.lost(B, 1.0)
    state.lost(A, 2.0)
    assert joined(state, C) == ["0:4"]
    assert statuses(state) == {A: "Offline", C: "PendingLoad"}


def there(*ips: str) -> Wish:
    """The wish of a node whose key answered there."""
    return replace(WISH, ips=tuple(map(read_ip, ips)))


def test_a_network_has_so_many_places_and_others_have_theirs() -> None:
    state = roster(max_nodes_per_network=2)
    for peer, ip in ((A, "8.8.8.1"), (B, "8.8.8.2"), (C, "8.8.4.1")):
        joined(state, peer, wish=there(ip))
    with pytest.raises(TooManySessions, match=r"2 nodes of 8\.8\.8\.0/24 are listed, and 2 may be"):
        joined(state, D, wish=there("8.8.4.9", "8.8.8.200"))
    assert list(statuses(state)) == [A, B, C]
    joined(state, B, wish=there("8.8.8.3"))
    state.leave(A)
    joined(state, D, wish=there("8.8.8.200"))


def test_a_network_makes_room_only_of_its_own_that_are_offline() -> None:
    state = roster(max_nodes_per_network=1)
    joined(state, A, wish=there("2606:4700::1"))
    joined(state, B, wish=there("8.8.8.1"))
    state.lost(B, 1.0)
    with pytest.raises(TooManySessions, match="2606:4700::/48"):
        joined(state, C, wish=there("2606:4700:0:ff::1"))
    state.lost(A, 2.0)
    joined(state, C, wish=there("2606:4700:0:ff::1"))
    assert list(statuses(state)) == [B, C]
    assert state.expire(2.0, ()) == [Forgotten(A)]


@pytest.mark.parametrize(
    ("changes", "ip"),
    [
        ({}, "127.0.0.1"),
        ({"exempt": (IPv4Network("8.8.8.0/24"),)}, "8.8.8.8"),
        ({"allow_private_addrs": True}, "10.0.0.1"),
        ({"allow_private_addrs": (IPv4Network("10.1.0.0/16"),)}, "10.1.0.1"),
        ({"max_nodes_per_network": 0}, "8.8.8.8"),
    ],
)
def test_where_a_network_does_not_count_it_holds_any_number(
    changes: dict[str, Any], ip: str
) -> None:
    state = roster(**{"max_nodes_per_network": 1, **changes})
    joined(state, A, B, C, D, wish=there(ip))
    assert len(state) == 4


def test_a_restored_node_counts_where_it_was() -> None:
    state, again = roster(max_nodes_per_network=1), roster(max_nodes_per_network=1)
    joined(state, A, wish=there("8.8.8.1"))
    again.restore(state.nodes(), 0.0)
    with pytest.raises(TooManySessions):
        joined(again, B, wish=there("8.8.8.2"))


def test_measured_speed_decides_who_is_strengthened() -> None:
    state = roster()
    joined(state, A, B, C)
    for peer, layers, step_ms in ((A, (0, 4), 1.0), (B, (4, 10), 500.0), (C, (10, 12), 1.0)):
        state.ready(peer, LayerRange(*layers), 0.0)
        state.announce(peer, Announce(NodeStatus.HEALTHY.value, 0, step_ms), 0.0)
    assert joined(state, D) == ["4:10"]


def loads(loaded: int, total: int = 100) -> Announce:
    return Announce("PendingLoad", 0, 0.0, loaded, total)


def test_a_load_that_stands_still_is_given_up_and_its_range_is_free() -> None:
    state = roster(stall_seconds=60.0, heartbeat_seconds=30.0)
    joined(state, A)
    for now in range(0, 61, 10):
        state.announce(A, loads(50), float(now))
    assert state.expire(60.0, {A}) == []
    assert state.expire(61.0, {A}) == [WentOffline(A, "its load stands still for 61 s")]
    assert joined(state, B, now=62.0) == ["0:4"]


def test_a_load_that_advances_a_byte_a_minute_is_not_given_up() -> None:
    state = roster(stall_seconds=60.0)
    joined(state, A)
    for minute in range(10):
        state.announce(A, loads(minute, 1000), minute * 60.0)
        assert state.expire(minute * 60.0, {A}) == []


def test_a_load_of_unknown_size_has_the_time_that_any_load_has() -> None:
    state = roster(stall_seconds=60.0, load_seconds=200.0)
    joined(state, A)
    for now in range(0, 201, 10):
        state.announce(A, loads(0, 0), float(now))
        assert state.expire(float(now), ()) == []
    assert state.expire(201.0, {A}) == [WentOffline(A, "still loading after 201 s")]


def test_a_load_that_was_given_up_comes_back_when_it_is_further_and_not_before() -> None:
    state = roster()
    joined(state, A)
    state.announce(A, loads(50), 0.0)
    state.expire(61.0, ())
    for said in (loads(50), loads(40), BEAT):
        state.announce(A, said, 62.0)
        assert statuses(state) == {A: "Offline"}
    state.announce(A, loads(51), 63.0)
    assert statuses(state) == {A: "PendingLoad"}
    assert state.expire(64.0, ()) == []


def test_a_load_that_fails_frees_its_range_at_once() -> None:
    state = roster()
    assert joined(state, A, B) == ["0:4", "4:10"]
    state.leave(A)
    assert joined(state, C) == ["0:4"]


def test_what_is_being_loaded_is_reserved_and_does_not_serve() -> None:
    state = roster()
    joined(state, A, B, C)
    state.ready(A, LayerRange(0, 4), 0.0)
    state.ready(B, LayerRange(4, 10), 0.0)
    found = coverage([node.row for node in state.nodes()], 12)
    assert (*map(str, found.holes), *map(str, found.loading)) == ("10:12", "10:12")
    assert joined(state, D) == ["4:10"], "all is promised, so the weakest layers are strengthened"


def test_a_moving_node_holds_what_it_leaves_and_where_it_goes() -> None:
    state = roster()
    joined(state, A, B)
    state.ready(A, LayerRange(0, 4), 0.0)
    state.move(A, LayerRange(10, 12))
    assert {str(one.layers) for one in state.holdings(state.node(A).group)} == {
        "0:4",
        "4:10",
        "10:12",
    }
    assert joined(state, C) != ["10:12"]


def test_a_rejoin_with_another_model_leaves_the_old_one() -> None:
    state = roster()
    joined(state, A)
    other = replace(WISH, model=ModelId("else"))
    assert joined(state, A, wish=other) == ["0:4"]
    assert state.nodes(ModelId("small")) == []
    assert state.models() == [ModelId("else")]
    assert joined(state, B) == ["0:4"]


def test_who_made_room_is_told_once_and_not_if_it_is_back() -> None:
    state = roster(max_nodes=1)
    joined(state, A)
    state.lost(A, 0.0)
    joined(state, B, now=1.0)
    assert state.expire(1.0, ()) == [Forgotten(A)]
    assert state.expire(1.0, ()) == []
    state.lost(B, 2.0)
    joined(state, A, now=3.0)
    state.lost(A, 4.0)
    joined(state, B, now=5.0)
    assert state.expire(5.0, ()) == [Forgotten(A)]


# What anybody may call, in any order: each takes a roster, a peer, a range and the time.
Step = Callable[[Roster, PeerId, LayerRange, float], object]
# Two of them from one network, that has place for two.
MODELS = [
    there("8.8.8.1"),
    replace(there("8.8.8.2", "8.8.4.4"), model=ModelId("else"), addrs=(), api_url="https://x"),
    replace(WISH, contract="other"),
]
WORDS = ["PendingLoad", "Healthy", "Saturated", "Paused", "Draining", "Offline"]


def says(word: str, loaded: int) -> Step:
    said = Announce(word, 0, 1.0, loaded, 100)
    return lambda state, peer, layers, now: state.announce(peer, said, now)


def joins(wish: Wish) -> Step:
    return lambda state, peer, layers, now: state.join(peer, wish, now)


STEPS: dict[str, Step] = {
    **{f"join {wish.model} {wish.contract[:5]}": joins(wish) for wish in MODELS},
    "join too small": joins(replace(WISH, claim_mb=0)),
    **{f"say {word} {loaded}": says(word, loaded) for word in WORDS for loaded in (0, 50)},
    "ready": lambda state, peer, layers, now: state.ready(peer, layers, now),
    "ready for its own": lambda state, peer, layers, now: state.ready(
        peer, state.node(peer).row.layers, now
    ),
    "leave": lambda state, peer, layers, now: state.leave(peer),
    "lost": lambda state, peer, layers, now: state.lost(peer, now),
    "move": lambda state, peer, layers, now: state.move(peer, layers),
    "expire": lambda state, peer, layers, now: state.expire(now, {peer}),
    "restart": lambda state, peer, layers, now: state.restore(state.nodes(), now),
}
CALLS = st.tuples(
    st.sampled_from(sorted(STEPS)),
    st.sampled_from([A, B, C, D]),
    st.sampled_from([LayerRange(0, 4), LayerRange(4, 10), LayerRange(10, 12)]),
    st.sampled_from([0.0, 1.0, 31.0, 700.0]),
)


def listing(state: Roster) -> list[tuple[object, ...]]:
    return [
        (node.peer_id, node.row.status, node.row.layers, node.row.addrs, node.group)
        for node in state.nodes()
    ]


def check_state(state: Roster, ready: set[PeerId]) -> None:
    """What holds after every call, whoever made it."""
    nodes = state.nodes()
    assert len(state) == len(nodes) <= 3
    assert sum(bool(node.wish.ips) for node in nodes) <= 2
    by_model = [node for model in state.models() for node in state.nodes(model)]
    assert sorted(by_model, key=lambda node: node.peer_id) == nodes
    for group in state.groups():
        members = state.members(group)
        assert [node for node in nodes if node.group == group] == sorted(members, key=peer_of)
        expected = [one for node in members for one in node.holdings()]
        assert sorted(state.holdings(group), key=str) == sorted(expected, key=str)
        assert state.reservations(group) == reservations(members[0].terms, expected)
    assert {node.peer_id for node in nodes if node.status is NodeStatus.HEALTHY} <= ready


def peer_of(node: Node) -> PeerId:
    return node.peer_id


@settings(max_examples=150, deadline=None)
@given(st.lists(CALLS, max_size=30))
def test_whatever_is_called_the_list_stays_true(
    calls: list[tuple[str, PeerId, LayerRange, float]],
) -> None:
    state, now = roster(max_nodes=3, max_nodes_per_network=2), 0.0
    ready: set[PeerId] = set()
    for name, peer, layers, later in calls:
        now += later
        before, version = listing(state), state.version
        try:
            STEPS[name](state, peer, layers, now)
        except TessellaError:
            assert name.startswith(("join", "say", "ready", "move"))
        else:
            ready |= {peer} if name.startswith("ready") else set()
        if name.startswith("join"):
            ready.discard(peer)
        assert state.version >= version
        if listing(state) != before:
            assert state.version > version
        check_state(state, ready)


def test_layers_that_only_a_canary_holds_are_free_for_others() -> None:
    state = roster()
    assert joined(state, A, wish=replace(WISH, is_canary=True)) == ["0:4"]
    state.ready(A, LayerRange(0, 4), 1.0)
    assert state.has_gaps(state.node(A).group)
    assert joined(state, B, C, D) == ["0:4", "4:10", "10:12"]
    state.leave(A)
    assert not state.has_gaps(state.node(B).group)
