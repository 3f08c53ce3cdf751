"""Who holds which layers, moved by hand: no clock, no network."""

from __future__ import annotations

from dataclasses import replace

import pytest

from musivum.config import MusivumConfig
from musivum.registration import Wish, read_registration
from musivum.roster import Forgotten, Roster, WentOffline
from musivum.testing import a_registration
from tessella.core.errors import (
    BadFrame,
    ClaimTooSmall,
    Refused,
    TooManySessions,
    UnknownWorker,
)
from tessella.core.ids import ModelId, PeerId
from tessella.core.layers import LayerRange
from tessella.core.messages import Announce
from tessella.core.peers import NodeStatus

A, B, C, D = (PeerId(name) for name in "abcd")
WISH = read_registration(a_registration(), usable_vram_pct=90, min_vram_mb=0)
BEAT = Announce("Healthy", 0, 0.0)


def roster(**changes: float) -> Roster:
    return Roster(replace(MusivumConfig(min_vram_mb=0), **changes))  # type: ignore[arg-type]


def joined(state: Roster, *peers: PeerId, wish: Wish = WISH, now: float = 0.0) -> list[str]:
    return [str(state.join(peer, wish, now)) for peer in peers]


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


def test_measured_speed_decides_who_is_strengthened() -> None:
    state = roster()
    joined(state, A, B, C)
    for peer, layers, step_ms in ((A, (0, 4), 1.0), (B, (4, 10), 500.0), (C, (10, 12), 1.0)):
        state.ready(peer, LayerRange(*layers), 0.0)
        state.announce(peer, Announce(NodeStatus.HEALTHY.value, 0, step_ms), 0.0)
    assert joined(state, D) == ["4:10"]
