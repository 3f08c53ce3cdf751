"""What a session may do next, and what its lease becomes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tessella.core.errors import BadFrame, ContextTooLong, OutOfTurn, PositionGap
from tessella.core.ids import SessionId
from tessella.core.messages import Cancel, End, Hidden, Open, Park
from tessella.core.session import (
    TURNS,
    EntryLost,
    Event,
    Expired,
    Lease,
    NeighbourLost,
    State,
    next_state,
)

SESSION = SessionId(b"s" * 16)
EVENTS: list[Event] = [Open, Hidden, Park, End, Cancel, NeighbourLost, EntryLost, Expired]


def lease(capacity: int = 10) -> Lease:
    return Lease(SESSION, 0, capacity)


def test_every_state_is_in_the_table_and_closed_has_no_way_out() -> None:
    assert set(TURNS) == set(State)
    assert TURNS[State.CLOSED] == {}


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("event", EVENTS)
def test_what_the_table_lacks_is_out_of_turn(state: State, event: Event) -> None:
    if event in TURNS[state]:
        assert next_state(state, event) is TURNS[state][event]
    else:
        with pytest.raises(
            OutOfTurn, match=rf"{event.__name__} in a session that is {state.value}"
        ):
            next_state(state, event)


def test_a_parked_session_takes_no_hidden_state_and_only_ends() -> None:
    parked = lease().fill(0, 3).park(NeighbourLost, until=5.0)
    with pytest.raises(OutOfTurn):
        parked.fill(3, 1)
    assert parked.held == 3
    assert parked.close(Expired).state is State.CLOSED
    assert parked.close(Expired).held == 0


@pytest.mark.parametrize(("capacity", "held"), [(10, 3), (3, 3), (2, 2)])
def test_the_next_epoch_goes_on_with_what_its_room_holds(capacity: int, held: int) -> None:
    parked = lease().fill(0, 3).park(Park, until=5.0)
    after = Lease(SESSION, 1, capacity).go_on(parked)
    assert (after.epoch, after.state, after.held) == (1, State.RUNNING, held)
    assert after.fill(held - 1, 1).held == held


@pytest.mark.parametrize(
    ("after", "before"),
    [
        (Lease(SESSION, 2, 10), lease().fill(0, 3).park(Park, until=5.0)),
        (Lease(SESSION, 0, 10), lease().fill(0, 3).park(Park, until=5.0)),
        (Lease(SessionId(b"o" * 16), 1, 10), lease().fill(0, 3).park(Park, until=5.0)),
        (Lease(SESSION, 1, 10), lease().fill(0, 3)),
        (Lease(SESSION, 1, 10), lease().fill(0, 3).park(Park, until=5.0).close(Expired)),
    ],
    ids=["later", "same", "other", "running", "closed"],
)
def test_nothing_goes_on_but_the_epoch_before_that_was_parked(after: Lease, before: Lease) -> None:
    with pytest.raises(OutOfTurn):
        after.go_on(before)


def test_positions_follow_each_other_and_a_lower_one_rolls_back() -> None:
    filled = lease().fill(0, 4).fill(4, 1)
    assert filled.held == 5
    assert filled.fill(2, 1).held == 3


def test_a_position_beyond_what_is_held_is_refused_with_the_length_held() -> None:
    with pytest.raises(PositionGap) as caught:
        lease().fill(0, 4).fill(5, 1)
    assert (caught.value.position, caught.value.held) == (5, 4)


def test_the_capacity_is_the_last_position() -> None:
    assert lease(10).fill(0, 10).held == 10
    with pytest.raises(ContextTooLong, match="11 is beyond the 10"):
        lease(10).fill(0, 10).fill(10, 1)


@pytest.mark.parametrize(
    ("session_id", "epoch", "capacity"), [(b"short", 0, 1), (SESSION, -1, 1), (SESSION, 0, 0)]
)
def test_a_lease_that_makes_no_sense_is_a_bad_frame(
    session_id: bytes, epoch: int, capacity: int
) -> None:
    with pytest.raises(BadFrame):
        Lease(SessionId(session_id), epoch, capacity)


@given(
    st.lists(
        st.tuples(st.integers(0, 12), st.integers(1, 5)),
        max_size=20,
    )
)
def test_what_is_held_is_always_what_the_last_accepted_step_built(
    steps: list[tuple[int, int]],
) -> None:
    current, held = lease(12), 0
    for position, count in steps:
        try:
            current = current.fill(position, count)
        except (PositionGap, ContextTooLong):
            assert position > held or position + count > 12
        else:
            assert position <= held
            held = position + count
        assert current.held == held <= 12
