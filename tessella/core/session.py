"""What may happen next in a session, at one stage.

A session is a stream, and its KV is a lease on this stage's memory. The conversation is the
table `TURNS`: a state and an event give the next state, and what the table lacks is out of turn.

    OPENED   the lease is granted, no position is held
    RUNNING  positions are held, the next may come
    PARKED   the stream is gone and the KV stays until a deadline, unless the next epoch takes it
    CLOSED   the KV is free; no way out

A `Lease` is a value. Whoever holds it asks it what an event would make of it, and only then
touches memory: `worker.sessions` does the touching.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from tessella.core.errors import BadFrame, ContextTooLong, OutOfTurn, PositionGap
from tessella.core.ids import SESSION_ID_BYTES, SessionId
from tessella.core.messages import Cancel, End, Hidden, Open, Park

# A parked session is the first to be evicted; nobody comes back for it after this.
MAX_PARK_SECONDS = 600.0


class State(Enum):
    """Where a session is, at one stage."""

    OPENED = "opened"
    RUNNING = "running"
    PARKED = "parked"
    CLOSED = "closed"


class NeighbourLost:
    """The stream to a neighbour that is not the entry ended without `End` or `Cancel`."""


class EntryLost:
    """The stream to the entry ended: nobody can ask for the rest."""


class Expired:
    """The deadline of a parked session passed."""


Event = type

TURNS: dict[State, dict[Event, State]] = {
    State.OPENED: {
        Hidden: State.RUNNING,
        Park: State.PARKED,
        End: State.CLOSED,
        Cancel: State.CLOSED,
        NeighbourLost: State.PARKED,
        EntryLost: State.CLOSED,
    },
    State.RUNNING: {
        Hidden: State.RUNNING,
        Park: State.PARKED,
        End: State.CLOSED,
        Cancel: State.CLOSED,
        NeighbourLost: State.PARKED,
        EntryLost: State.CLOSED,
    },
    State.PARKED: {
        Open: State.CLOSED,
        End: State.CLOSED,
        Cancel: State.CLOSED,
        EntryLost: State.CLOSED,
        Expired: State.CLOSED,
    },
    State.CLOSED: {},
}


def next_state(state: State, event: Event) -> State:
    """The state after an event. Raises OutOfTurn that names both."""
    try:
        return TURNS[state][event]
    except KeyError:
        raise OutOfTurn(f"{event.__name__} in a session that is {state.value}") from None


@dataclass(frozen=True, slots=True)
class Lease:
    """The right of one session, in one epoch, to `capacity` positions of KV at this stage."""

    session_id: SessionId
    epoch: int
    capacity: int
    state: State = State.OPENED
    held: int = 0
    """Positions of KV held."""
    parked_until: float = 0.0
    """Seconds on the caller's clock; meaningful while PARKED."""

    def __post_init__(self) -> None:
        if len(self.session_id) != SESSION_ID_BYTES:
            raise BadFrame(f"a session id of {len(self.session_id)} bytes")
        if self.capacity < 1 or self.epoch < 0:
            raise BadFrame(f"a session of {self.capacity} positions in epoch {self.epoch}")

    @property
    def key(self) -> tuple[SessionId, int]:
        """What the lease is kept under."""
        return self.session_id, self.epoch

    def fill(self, position: int, count: int) -> Lease:
        """The lease once `count` positions are computed on top of `position`.

        A position below what is held rolls back to it. Raises PositionGap with the length held
        for one above, ContextTooLong beyond the capacity, OutOfTurn in a state that takes none.
        """
        state = next_state(self.state, Hidden)
        if position < 0 or count < 1:
            raise BadFrame(f"{count} positions at {position}")
        if position > self.held:
            raise PositionGap(position, self.held)
        if position + count > self.capacity:
            raise ContextTooLong(
                f"position {position + count} is beyond the {self.capacity} reserved"
            )
        return replace(self, state=state, held=position + count)

    def park(self, event: Event, until: float) -> Lease:
        """The lease while its stream is gone. `event` is Park or NeighbourLost."""
        return replace(self, state=next_state(self.state, event), parked_until=until)

    def go_on(self, parked: Lease) -> Lease:
        """This lease, of the next epoch, with what a parked one holds.

        Raises OutOfTurn if that one is not parked, or is not the epoch before of this session.
        """
        next_state(parked.state, Open)
        if (self.session_id, self.epoch) != (parked.session_id, parked.epoch + 1):
            raise OutOfTurn("a session goes on with the epoch before it")
        return replace(self, state=State.RUNNING, held=min(parked.held, self.capacity))

    def close(self, event: Event) -> Lease:
        """The lease at its end: End, Cancel, EntryLost, Expired, or Open of the next epoch."""
        return replace(self, state=next_state(self.state, event), held=0)
