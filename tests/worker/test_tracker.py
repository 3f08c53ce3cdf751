from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
import trio
from trio.testing import MockClock

from musivum.testing import QUIET, a_registration, clock, running
from p2p.streams import FrameStream
from p2p.testing import MemoryNetwork
from tessella.core.errors import OutOfTurn, PeerGone, PeerUnreachable, RemoteFailure
from tessella.core.identity import Identity
from tessella.core.ids import ModelId
from tessella.core.messages import TRACKER, Accepted, Announce, AskPeers, Assigned, Peers
from tessella.worker.tracker import Tracker, is_away

SEED = b"m" * 32
CONFIG = replace(QUIET, min_vram_mb=0, heartbeat_seconds=5.0, dial_back=False)
NEWS = Announce("Healthy", 0, 0.0)


@asynccontextmanager
async def a_tracker(net: MemoryNetwork) -> AsyncIterator[Tracker]:
    identity = Identity(b"n" * 32)
    async with net.host(identity) as host:
        musivum = next(iter(net.hosts.values())).address
        # musivum's helpers have a clock of their own, and what nodes sign is compared with it.
        yield Tracker(host, identity, [musivum], clock)


async def test_calls_are_signed_and_answered_on_one_stream(autojump_clock: MockClock) -> None:
    net = MemoryNetwork(latency=0.01)
    async with running(net, SEED, CONFIG), a_tracker(net) as tracker:
        assigned = await tracker.call(a_registration())
        assert isinstance(assigned, Assigned)
        started = trio.current_time()
        assert await tracker.call(NEWS) == Accepted()
        assert trio.current_time() - started == pytest.approx(0.02)
        (row,) = await tracker.peers(ModelId("small"))
        assert row.layers == assigned.layers


async def test_a_refusal_keeps_its_code_and_the_stream(autojump_clock: MockClock) -> None:
    net = MemoryNetwork()
    async with running(net, SEED, CONFIG), a_tracker(net) as tracker:
        with pytest.raises(RemoteFailure) as caught:
            await tracker.call(NEWS)
        assert (caught.value.code, caught.value.retry) == ("unknown_worker", False)
        with pytest.raises(RemoteFailure) as caught:
            await tracker.call(replace(a_registration(), claim_mb=1))
        assert caught.value.code == "claim_too_small"
        await tracker.call(a_registration())


async def test_a_connection_that_was_lost_is_made_again(autojump_clock: MockClock) -> None:
    net = MemoryNetwork()
    async with running(net, SEED, CONFIG) as musivum, a_tracker(net) as tracker:
        await tracker.call(a_registration())
        net.cut(musivum.peer_id, Identity(b"n" * 32).peer_id)
        assert await tracker.call(NEWS) == Accepted()


async def test_calls_at_the_same_time_wait_for_each_other(autojump_clock: MockClock) -> None:
    net = MemoryNetwork(latency=0.01)
    async with running(net, SEED, CONFIG), a_tracker(net) as tracker:
        await tracker.call(a_registration())
        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(tracker.call, NEWS)
                nursery.start_soon(tracker.peers, ModelId("small"))


async def test_a_call_that_was_cancelled_does_not_answer_the_next(
    autojump_clock: MockClock,
) -> None:
    net = MemoryNetwork(latency=0.01)
    async with running(net, SEED, CONFIG), a_tracker(net) as tracker:
        await tracker.call(a_registration())
        with trio.move_on_after(0.015):
            await tracker.peers(ModelId("small"))
        assert await tracker.call(NEWS) == Accepted()


async def test_a_silent_musivum_is_waited_for_so_long_and_no_longer(
    autojump_clock: MockClock,
) -> None:
    net = MemoryNetwork()
    async with running(net, SEED, CONFIG) as musivum, a_tracker(net) as tracker:
        await tracker.call(a_registration())
        net.silence(musivum.peer_id, Identity(b"n" * 32).peer_id)
        started = trio.current_time()
        with pytest.raises(PeerGone):
            await tracker.call(NEWS)
        assert trio.current_time() - started <= 20.0


async def test_a_musivum_that_listens_and_does_not_serve_yet_counts_as_away() -> None:
    net = MemoryNetwork()
    async with net.host(SEED), a_tracker(net) as tracker:
        with pytest.raises(PeerUnreachable, match=f"does not speak {TRACKER}") as caught:
            await tracker.call(NEWS)
        assert is_away(caught.value)


async def test_an_answer_that_does_not_belong_to_the_question_is_refused(
    autojump_clock: MockClock,
) -> None:
    async def confused(stream: FrameStream) -> None:
        asked = await stream.receive()
        await stream.send(Accepted() if isinstance(asked, AskPeers) else Peers(b"[]"))

    net = MemoryNetwork()
    async with net.host(SEED) as musivum, a_tracker(net) as tracker:
        musivum.serve(TRACKER, confused, streams=9, per_peer=9)
        with pytest.raises(OutOfTurn, match="Peers from musivum for a call"):
            await tracker.call(NEWS)
    async with net.host(SEED) as musivum, a_tracker(net) as tracker:
        musivum.serve(TRACKER, confused, streams=9, per_peer=9)
        with pytest.raises(OutOfTurn, match="Accepted from musivum for a list"):
            await tracker.peers(ModelId("small"))
