from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from p2p.pool import StreamPool
from p2p.streams import FrameStream
from p2p.testing import MemoryHost, MemoryNetwork
from tessella.core.errors import (
    ModelUnavailable,
    PeerGone,
    PeerSilent,
    PeerUnreachable,
    RemoteFailure,
)
from tessella.core.ids import ModelId, SessionId
from tessella.core.layers import LayerRange
from tessella.core.messages import (
    HOP,
    AskStatus,
    Cancel,
    End,
    Fail,
    Hidden,
    Open,
    Progress,
    Token,
)
from tessella.core.peers import PeerRow
from tessella.core.shapes import DType
from tessella.core.tensors import WireTensor
from tessella.worker import downstream
from tessella.worker.directory import Directory
from tessella.worker.downstream import Downstream
from tessella.worker.nurseries import open_conversation

SESSION = SessionId(b"session of tests")
WIDE = 64
TOKEN = Token(SESSION, 0, 2, 7, "x", "", 0.0, ())


def states(count: int) -> WireTensor:
    return WireTensor("f32", (count, WIDE), bytes(count * WIDE * 4))


@dataclass
class Scene:
    net: MemoryNetwork
    ours: MemoryHost
    next: MemoryHost
    onward: Downstream
    directory: Directory
    blamed: list[tuple[str, str]]
    rows: list[PeerRow]
    streams: trio.MemoryReceiveChannel[FrameStream]

    async def connect(self) -> FrameStream:
        """The session open at the next stage; the stream as that stage has it."""
        await self.onward.connect()
        far = await self.streams.receive()
        opened = await far.receive(1)
        assert isinstance(opened, Open)
        return far


@pytest.fixture
def opened(
    an_open: Callable[..., Open],
    a_row: Callable[..., PeerRow],
    neighbourhood: Callable[..., Any],
) -> Callable[..., Any]:
    """A stage, the next one, and the hop between them. `place` is ours in the chain."""

    @asynccontextmanager
    async def scene(place: int = 0) -> AsyncIterator[Scene]:
        net = MemoryNetwork(latency=0.001)
        async with net.host(b"a" * 32) as ours, net.host(b"b" * 32) as after:
            put, streams = trio.open_memory_channel[FrameStream](9)

            async def keep(stream: FrameStream) -> None:
                await put.send(stream)
                await trio.sleep_forever()

            after.serve(HOP, keep, streams=9, per_peer=9)
            rows = [a_row(after.address, LayerRange(0, 6))]

            async def ask(model: ModelId) -> list[PeerRow]:
                return rows

            directory = Directory(ours, StreamPool(ours), ModelId("toy"), ask)
            blamed: list[tuple[str, str]] = []
            peers = [ours.address] * (place + 1) + [after.address]
            onward = Downstream(an_open(peers, place), DType.F32, neighbourhood(directory, blamed))
            yield Scene(net, ours, after, onward, directory, blamed, rows, streams)

    return scene


async def nothing(token: Token) -> None:
    raise AssertionError(f"no token was expected, least of all {token}")


async def test_the_session_moves_on_by_one_place(
    opened: Callable[..., Any], autojump_clock: MockClock
) -> None:
    async with opened(place=1) as s:
        await s.onward.connect()
        far = await s.streams.receive()
        sent = await far.receive(1)
        assert (sent.place, sent.chain[2].peer_id) == (2, s.next.address.peer_id)


async def test_a_stage_that_cannot_be_reached_is_blamed(
    opened: Callable[..., Any], autojump_clock: MockClock
) -> None:
    async with opened() as s:
        s.net.silence(s.ours.address.peer_id, s.next.address.peer_id)
        with pytest.raises(PeerUnreachable):
            await s.onward.connect()
        assert s.blamed == [(s.next.address.peer_id, "peer_unreachable")]
        await s.onward.cancel()


async def test_a_stage_that_nobody_lists_is_not_blamed(
    opened: Callable[..., Any], autojump_clock: MockClock
) -> None:
    async with opened() as s:
        s.rows.clear()
        with pytest.raises(ModelUnavailable):
            await s.onward.connect()
        assert s.blamed == []


async def test_the_death_of_a_stage_is_blamed_once_by_all_who_see_it(
    opened: Callable[..., Any], autojump_clock: MockClock
) -> None:
    async with opened() as s:
        await s.connect()
        with pytest.raises(PeerGone):
            async with open_conversation() as nursery:
                nursery.start_soon(s.onward.listen, nothing)
                nursery.start_soon(s.onward.guard)
                nursery.start_soon(s.onward.send, states(2000), 0, 2000, False)
                await trio.sleep(0.1)
                s.net.cut(s.ours.address.peer_id, s.next.address.peer_id)
        assert [peer for peer, _ in s.blamed] == [s.next.address.peer_id]


async def test_a_local_end_blames_nobody(
    opened: Callable[..., Any], autojump_clock: MockClock
) -> None:
    async with opened() as s:
        await s.connect()
        with trio.move_on_after(0.5):
            async with open_conversation() as nursery:
                nursery.start_soon(s.onward.listen, nothing)
                nursery.start_soon(s.onward.guard)
                nursery.start_soon(s.onward.send, states(2000), 0, 2000, False)
        await s.onward.cancel()
        assert s.blamed == []


async def test_a_slow_stage_that_reads_nothing_for_a_minute_is_waited_for(
    opened: Callable[..., Any], autojump_clock: MockClock
) -> None:
    async with opened() as s, trio.open_nursery() as nursery:
        far = await s.connect()
        nursery.start_soon(s.onward.listen, nothing)
        nursery.start_soon(s.onward.guard)
        nursery.start_soon(s.onward.send, states(2000), 0, 2000, False)
        for counter in range(60):
            await trio.sleep(1.0)
            await far.send(Progress(SESSION, 0, counter, 0))
        hidden = await far.receive(1)
        assert hidden.tensor.shape == (2000, WIDE)
        nursery.cancel_scope.cancel()
    assert s.blamed == []


@pytest.mark.parametrize("said", [None, Progress(SESSION, 0, 7, 0)], ids=["nothing", "standstill"])
async def test_silence_is_named_after_the_hop_timeout(
    opened: Callable[..., Any], autojump_clock: MockClock, said: Progress | None
) -> None:
    async with opened() as s, trio.open_nursery() as nursery:
        far = await s.connect()
        nursery.start_soon(s.onward.listen, nothing)
        await s.onward.send(states(1), 0, 1, True)
        started = trio.current_time()

        async def repeat() -> None:
            while said is not None:
                await far.send(said)
                await trio.sleep(1.0)

        nursery.start_soon(repeat)
        with pytest.raises(PeerSilent, match=s.next.address.peer_id):
            await s.onward.guard()
        assert 4.0 <= trio.current_time() - started <= 6.0
        assert s.blamed == [(s.next.address.peer_id, "peer_silent")]
        nursery.cancel_scope.cancel()


async def test_a_chain_that_says_it_is_done_and_gives_no_token_is_silent(
    opened: Callable[..., Any], autojump_clock: MockClock
) -> None:
    async with opened() as s, trio.open_nursery() as nursery:
        far = await s.connect()
        nursery.start_soon(s.onward.listen, nothing)
        await s.onward.send(states(2), 0, 2, True)
        await far.send(Progress(SESSION, 0, 7, 2))
        with trio.fail_after(6.0), pytest.raises(PeerSilent):
            await s.onward.guard()
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(("place", "sample"), [(1, True), (0, False)])
async def test_where_no_token_is_owed_a_stage_that_is_done_owes_nothing(
    opened: Callable[..., Any], autojump_clock: MockClock, place: int, sample: bool
) -> None:
    async with opened(place=place) as s, trio.open_nursery() as nursery:
        far = await s.connect()
        nursery.start_soon(s.onward.listen, nothing)
        await s.onward.send(states(2), 0, 2, sample)
        await far.send(Progress(SESSION, 0, 7, 2))
        with trio.move_on_after(60.0) as scope:
            await s.onward.guard()
        assert scope.cancelled_caught
        nursery.cancel_scope.cancel()


async def test_after_the_token_late_progress_is_no_new_debt(
    opened: Callable[..., Any], autojump_clock: MockClock
) -> None:
    async with opened() as s, trio.open_nursery() as nursery:
        far = await s.connect()
        nursery.start_soon(s.onward.listen, nothing)
        await s.onward.send(states(2), 0, 2, True)
        s.onward.watch.rest()
        # The stage between us and the tail heard of its end a moment later than we did.
        for done in (1, 2):
            await far.send(Progress(SESSION, 0, 7, done))
        with trio.move_on_after(60.0) as scope:
            await s.onward.guard()
        assert scope.cancelled_caught
        nursery.cancel_scope.cancel()


async def test_no_more_than_the_window_is_under_way(
    opened: Callable[..., Any], autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(downstream, "WINDOW_BYTES", 20 * WIDE * 4)
    async with opened() as s, trio.open_nursery() as nursery:
        far = await s.connect()
        nursery.start_soon(s.onward.listen, nothing)

        async def prefill() -> None:
            for start in range(0, 50, 10):
                await s.onward.send(states(10), start, start + 10, start == 40)

        async def arrived() -> list[int]:
            found: list[int] = []
            with suppress(trio.TooSlowError), trio.fail_after(0.5):
                while True:
                    found.append((await far.receive()).position)
            return found

        nursery.start_soon(prefill)
        assert await arrived() == [0, 10]
        await far.send(Progress(SESSION, 0, 1, 10))
        assert await arrived() == [20]
        await far.send(Progress(SESSION, 0, 2, 30))
        assert await arrived() == [30, 40]
        nursery.cancel_scope.cancel()


async def test_tokens_and_failures_come_up_with_what_they_say(
    opened: Callable[..., Any], autojump_clock: MockClock
) -> None:
    async with opened() as s:
        far = await s.connect()
        other = SessionId(b"the one before  ")
        for stale in (Progress(other, 0, 1, 1), Token(other, 0, 2, 7, "x", "", 0.0, ())):
            await far.send(stale)
        await far.send(TOKEN)
        await far.send(Fail("bad_tensor", "not finite", False))
        heard: list[Token] = []

        async def take(token: Token) -> None:
            heard.append(token)

        with pytest.raises(RemoteFailure, match="not finite") as caught:
            await s.onward.listen(take)
        assert (caught.value.code, caught.value.retry) == ("bad_tensor", False)
        assert heard == [TOKEN]
        assert s.blamed == []


async def test_a_stage_that_breaks_a_rule_is_blamed_and_the_asker_is_not(
    opened: Callable[..., Any], autojump_clock: MockClock
) -> None:
    async with opened() as s:
        far = await s.connect()
        await far.send(AskStatus())
        with pytest.raises(RemoteFailure, match="AskStatus from the next stage") as caught:
            await s.onward.listen(nothing)
        assert (caught.value.code, caught.value.retry) == ("out_of_turn", True)
        assert s.blamed == [(s.next.address.peer_id, "out_of_turn")]


async def test_a_refusal_is_read_where_the_stream_is_shut_on_what_we_say(
    opened: Callable[..., Any], autojump_clock: MockClock
) -> None:
    async with opened() as s:
        far = await s.connect()
        with pytest.raises(RemoteFailure) as caught:
            async with open_conversation() as nursery:
                nursery.start_soon(s.onward.send, states(2000), 0, 2000, False)
                nursery.start_soon(s.onward.listen, nothing)
                await trio.sleep(0.1)
                await far.send(Fail("too_many_sessions", "no room", True))
                await far.aclose()
        assert (caught.value.code, caught.value.retry) == ("too_many_sessions", True)
        assert s.blamed == []


async def test_an_end_keeps_the_stream_for_the_next_session(
    opened: Callable[..., Any], autojump_clock: MockClock
) -> None:
    async with opened() as s:
        far = await s.connect()
        await s.onward.end()
        assert await far.receive(1) == End(SESSION, 0)
        again = await s.directory.stream_to(s.next.address.peer_id, HOP)
        await again.send(AskStatus())
        assert await far.receive(1) == AskStatus()


async def test_a_stage_that_goes_at_the_end_spoils_no_answer(
    opened: Callable[..., Any], autojump_clock: MockClock
) -> None:
    async with opened() as s:
        await s.connect()
        s.net.cut(s.ours.address.peer_id, s.next.address.peer_id)
        await s.onward.end()
        assert s.blamed == []


async def test_a_cancel_is_said_and_the_stream_is_gone(
    opened: Callable[..., Any], autojump_clock: MockClock
) -> None:
    async with opened() as s:
        far = await s.connect()
        with trio.CancelScope() as scope:
            scope.cancel()
            await s.onward.cancel()
        assert await far.receive(1) == Cancel(SESSION, 0)
        with pytest.raises(PeerGone):
            await far.receive(1)


async def test_a_cancel_waits_for_nobody(
    opened: Callable[..., Any], autojump_clock: MockClock
) -> None:
    async with opened() as s, trio.open_nursery() as nursery:
        await s.connect()
        with trio.move_on_after(0.5):
            await s.onward.send(states(2000), 0, 2000, False)
        started = trio.current_time()
        await s.onward.cancel()
        assert trio.current_time() - started <= 0.5
        nursery.cancel_scope.cancel()


async def test_what_was_never_connected_ends_without_a_word(
    opened: Callable[..., Any], autojump_clock: MockClock
) -> None:
    async with opened() as s:
        await s.onward.cancel()
        await s.onward.end()
        assert s.streams.statistics().current_buffer_used == 0


async def test_hidden_states_are_counted_where_they_are_sent(
    opened: Callable[..., Any], autojump_clock: MockClock
) -> None:
    async with opened() as s:
        far = await s.connect()
        await s.onward.send(states(3), 4, 7, True)
        assert await far.receive(1) == Hidden(SESSION, 0, 4, states(3), True)
        counters = s.onward._around.counters
        assert counters.hidden_bytes_sent == {s.next.address.peer_id: 3 * WIDE * 4}
