from __future__ import annotations

import math
from contextlib import ExitStack

import pytest
import torch
import trio
from trio.testing import MockClock

from tessella.core.errors import OutOfTurn, TooManySessions
from tessella.core.ids import PeerId, SessionId
from tessella.core.layers import LayerRange
from tessella.core.messages import End, Park
from tessella.core.session import MAX_PARK_SECONDS, Lease, NeighbourLost, State
from tessella.core.shapes import DType
from tessella.core.tiers import Tier
from tessella.engine.compute import ComputeThread
from tessella.engine.shard import Shard
from tessella.worker.counters import Counters
from tessella.worker.proofs.witness import Bill, Ticketing, Witness
from tessella.worker.sessions import SessionLimits, Sessions

LAYERS = LayerRange(2, 4)
OWNER = PeerId("whoever opens it")


def a_lease(name: str, *, epoch: int = 0, capacity: int = 10) -> Lease:
    return Lease(SessionId(name.encode().ljust(16)), epoch, capacity)


def room_for(shard: Shard, positions: int, *, sessions: int = 8) -> Sessions:
    limits = SessionLimits(sessions, shard.kv_bytes(positions, LAYERS))
    return Sessions(shard, ComputeThread(), Counters(), limits)


async def test_a_session_reserves_its_capacity_and_gives_it_back(toy_shard: Shard) -> None:
    sessions = room_for(toy_shard, 10)
    with sessions.open(a_lease("one"), LAYERS, OWNER) as stage:
        assert sessions.kv_bytes == sessions.kv_limit == toy_shard.kv_bytes(10, LAYERS)
        assert sessions.leases() == [stage.lease]
    assert (sessions.kv_bytes, sessions.leases(), stage.cache_bytes) == (0, [], 0)


@pytest.mark.parametrize(("positions", "limit"), [(20, 1), (19, 8)], ids=["sessions", "bytes"])
async def test_what_does_not_fit_is_refused_and_nobody_else_is_touched(
    toy_shard: Shard, positions: int, limit: int
) -> None:
    sessions = room_for(toy_shard, positions, sessions=limit)
    with sessions.open(a_lease("one"), LAYERS, OWNER) as stage:
        with pytest.raises(TooManySessions), sessions.open(a_lease("two"), LAYERS, OWNER):
            pass
        assert sessions.leases() == [stage.lease]
    with sessions.open(a_lease("two"), LAYERS, OWNER):
        pass


async def test_one_session_is_open_once_and_another_epoch_is_another_session(
    toy_shard: Shard,
) -> None:
    sessions = room_for(toy_shard, 40)
    later = a_lease("one", epoch=1)
    with sessions.open(a_lease("one"), LAYERS, OWNER), sessions.open(later, LAYERS, OWNER):
        again = sessions.open(a_lease("one"), LAYERS, OWNER)
        with pytest.raises(OutOfTurn, match="open here already"), again:
            pass
        assert len(sessions.leases()) == 2


@pytest.mark.parametrize(
    ("event", "asked", "kept"),
    [
        (NeighbourLost, 4.0, 4.0),
        (Park, 4.0, 4.0),
        (Park, 1e9, MAX_PARK_SECONDS),
        (Park, math.inf, MAX_PARK_SECONDS),
        (Park, -1.0, 0.0),
        (Park, math.nan, 0.0),
    ],
)
async def test_a_parked_session_holds_its_memory_until_its_deadline(
    toy_shard: Shard, autojump_clock: MockClock, event: type, asked: float, kept: float
) -> None:
    sessions = room_for(toy_shard, 10)
    with sessions.open(a_lease("one"), LAYERS, OWNER) as stage:
        sessions.park(stage, event, asked)
    if kept:
        await trio.sleep(kept - 0.1)
        sessions.expire()
        assert [lease.state for lease in sessions.leases()] == [State.PARKED]
        await trio.sleep(0.1)
    sessions.expire()
    assert sessions.leases() == []
    assert stage.cache_bytes == 0


async def test_nobody_waits_behind_what_is_parked(toy_shard: Shard) -> None:
    sessions = room_for(toy_shard, 20)
    with sessions.open(a_lease("one"), LAYERS, OWNER) as stage:
        assert sessions.at_work == 1
        sessions.park(stage, Park, 5.0)
    with sessions.open(a_lease("two"), LAYERS, OWNER):
        assert (len(sessions.leases()), sessions.at_work) == (2, 1)


async def test_parked_sessions_make_room_the_nearest_to_its_deadline_first(
    toy_shard: Shard,
) -> None:
    sessions = room_for(toy_shard, 30)
    for name, seconds in (("late", 9.0), ("soon", 1.0), ("later", 20.0)):
        with sessions.open(a_lease(name), LAYERS, OWNER) as stage:
            sessions.park(stage, Park, seconds)
    with sessions.open(a_lease("live"), LAYERS, OWNER):
        held = {lease.session_id.decode().strip() for lease in sessions.leases()}
        assert held == {"late", "later", "live"}


@pytest.mark.parametrize("how", ["expired", "evicted"])
async def test_a_session_that_goes_while_its_stream_is_still_being_ended_is_freed_once(
    toy_shard: Shard, how: str
) -> None:
    sessions = room_for(toy_shard, 10)
    with ExitStack() as another, sessions.open(a_lease("one"), LAYERS, OWNER) as stage:
        sessions.park(stage, Park, 0.0)
        if how == "expired":
            sessions.expire()
        else:
            another.enter_context(sessions.open(a_lease("two"), LAYERS, OWNER))
        assert stage.cache_bytes == 0
    assert sessions.leases() == []


async def test_a_session_opened_again_is_not_freed_by_the_end_of_the_first(
    toy_shard: Shard,
) -> None:
    sessions = room_for(toy_shard, 10)
    with ExitStack() as again:
        with sessions.open(a_lease("one"), LAYERS, OWNER) as first:
            sessions.park(first, Park, 0.0)
            sessions.expire()
            second = again.enter_context(sessions.open(a_lease("one"), LAYERS, OWNER))
        assert sessions.leases() == [second.lease]
        second.lease = second.lease.close(End)
    assert sessions.leases() == []


async def test_what_is_parked_can_be_forgotten_and_what_lives_is_not_touched(
    toy_shard: Shard,
) -> None:
    sessions = room_for(toy_shard, 40)
    with sessions.open(a_lease("live"), LAYERS, OWNER) as live:
        with sessions.open(a_lease("parked"), LAYERS, OWNER) as parked:
            sessions.park(parked, NeighbourLost, 100.0)
        assert len(sessions.leases()) == 2
        sessions.forget_parked()
        assert sessions.leases() == [live.lease]
        assert (parked.lease.state, parked.cache_bytes) == (State.CLOSED, 0)
        assert sessions.kv_bytes == live.cache_bytes


def held(sessions: Sessions, shard: Shard, lease: Lease, positions: int) -> None:
    """Park a session that holds so many positions."""
    with sessions.open(lease, LAYERS, OWNER) as stage:
        stage.lease = stage.lease.fill(0, positions)
        cache = stage._cache
        assert cache is not None
        cache.extend(positions)
        sessions.park(stage, Park, 60.0)


async def test_the_next_epoch_goes_on_with_what_was_parked_and_may_be_larger(
    toy_shard: Shard,
) -> None:
    sessions = room_for(toy_shard, 30)
    held(sessions, toy_shard, a_lease("one", capacity=20), 7)
    with sessions.open(a_lease("one", epoch=1, capacity=30), LAYERS, OWNER) as stage:
        assert (stage.lease.state, stage.lease.held) == (State.RUNNING, 7)
        # The old room is not counted beside the new one: both would not fit.
        assert sessions.kv_bytes == sessions.kv_limit
        assert len(sessions.leases()) == 1
    assert sessions.leases() == []


async def test_a_session_has_the_tier_it_was_opened_in_also_where_it_goes_on(
    toy_shard: Shard,
) -> None:
    sessions = room_for(toy_shard, 30)
    with sessions.open(a_lease("one"), LAYERS, OWNER, Tier.VIP) as first:
        sessions.park(first, Park, 60.0)
    with sessions.open(a_lease("one", epoch=1), LAYERS, OWNER, Tier.STANDARD) as second:
        assert (first.tier, second.tier) == (Tier.VIP, Tier.STANDARD)
    with sessions.open(a_lease("two"), LAYERS, OWNER) as other:
        assert other.tier is Tier.LEECH


async def test_a_smaller_room_that_follows_holds_what_fits(toy_shard: Shard) -> None:
    sessions = room_for(toy_shard, 30)
    held(sessions, toy_shard, a_lease("one", capacity=20), 7)
    with sessions.open(a_lease("one", epoch=1, capacity=5), LAYERS, OWNER) as stage:
        assert stage.lease.held == 5


@pytest.mark.parametrize(
    ("name", "epoch", "layers", "owner"),
    [
        ("one", 2, LAYERS, OWNER),
        ("two", 1, LAYERS, OWNER),
        ("one", 1, LayerRange(2, 3), OWNER),
        ("one", 1, LAYERS, PeerId("another")),
    ],
    ids=["epoch", "session", "layers", "owner"],
)
async def test_nobody_goes_on_with_what_another_session_parked(
    toy_shard: Shard, name: str, epoch: int, layers: LayerRange, owner: PeerId
) -> None:
    sessions = room_for(toy_shard, 60)
    held(sessions, toy_shard, a_lease("one"), 7)
    with sessions.open(a_lease(name, epoch=epoch), layers, owner) as stage:
        assert stage.lease.held == 0
        assert len(sessions.leases()) == 2


async def test_what_was_parked_stays_where_there_is_no_room_to_go_on(toy_shard: Shard) -> None:
    sessions = room_for(toy_shard, 20)
    held(sessions, toy_shard, a_lease("one"), 7)
    with sessions.open(a_lease("live"), LAYERS, OWNER):
        larger = sessions.open(a_lease("one", epoch=1, capacity=11), LAYERS, OWNER)
        with pytest.raises(TooManySessions), larger:
            pass
        assert [lease.held for lease in sessions.leases()] == [0, 7]


def a_witness(request: bytes, abandoned: list[Bill] | None = None) -> Witness:
    ticketing = Ticketing(request, b"", request.ljust(16), LAYERS, DType.F32)
    return Witness(ticketing, abandoned=(abandoned if abandoned is not None else []).append)


def see(witness: Witness | None, position: int, count: int) -> None:
    assert witness is not None
    given = torch.ones(count, 2)
    witness.saw(position, count, bytes(4 * count), given.numpy().tobytes(), given)


def park_seen(sessions: Sessions, shard: Shard, witness: Witness | None) -> None:
    """Park a session that holds seven positions, which its witness saw."""
    with sessions.open(a_lease("one", capacity=20), LAYERS, OWNER, witness=witness) as stage:
        assert stage.witness is witness
        stage.lease = stage.lease.fill(0, 7)
        assert stage._cache is not None
        stage._cache.extend(7)
        if witness is not None:
            see(witness, 0, 7)
        sessions.park(stage, Park, 60.0)


async def test_the_rows_of_a_parked_session_go_on_with_its_memory(toy_shard: Shard) -> None:
    sessions = room_for(toy_shard, 60)
    park_seen(sessions, toy_shard, a_witness(b"first"))
    second = a_witness(b"second")
    with sessions.open(a_lease("one", epoch=1, capacity=20), LAYERS, OWNER, witness=second):
        see(second, 7, 3)
        assert (second.bill().start, second.bill().outputs.stop) == (7, 10)


async def test_what_no_witness_saw_is_not_gone_on_with_by_who_is_paid(toy_shard: Shard) -> None:
    sessions = room_for(toy_shard, 60)
    park_seen(sessions, toy_shard, None)
    lease = a_lease("one", epoch=1, capacity=20)
    with sessions.open(lease, LAYERS, OWNER, witness=a_witness(b"second")) as stage:
        assert stage.lease.held == 0


async def test_who_is_not_paid_goes_on_and_what_was_owed_is_billed(toy_shard: Shard) -> None:
    sessions = room_for(toy_shard, 60)
    abandoned: list[Bill] = []
    park_seen(sessions, toy_shard, a_witness(b"first", abandoned))
    with sessions.open(a_lease("one", epoch=1, capacity=20), LAYERS, OWNER) as stage:
        assert (stage.lease.held, stage.witness) == (7, None)
    assert [bill.positions for bill in abandoned] == [7]
