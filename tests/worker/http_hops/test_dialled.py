"""The end of a stream at the node that calls, with a called node that is a function."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from tessella.core.errors import (
    BadSignature,
    PeerClosed,
    PeerReset,
    PeerSilent,
    PeerUnreachable,
    RemoteFailure,
    TessellaError,
)
from tessella.core.ids import PeerId
from tessella.worker.http_hops.asks import Act, Ask, End, Said
from tessella.worker.http_hops.dialled import (
    BODY_BYTES,
    MAX_UNREAD,
    QUEUE_BYTES,
    READ_SECONDS,
    DialledStream,
)

PEER = PeerId("the called one")
PATIENCE = 4.0
FULL = RemoteFailure("too_many_hop_bodies", "full", retry=True)


@dataclass
class Called:
    """A node that notes what it is asked, and answers as a test says."""

    stream: DialledStream = field(init=False)
    asked: list[tuple[Act, int, bytes]] = field(default_factory=list)
    says: list[Said] = field(default_factory=list)
    errors: list[TessellaError] = field(default_factory=list)
    """What the next POSTs with something to say are answered with."""
    takes: float = 0.0
    news: trio.Event = field(default_factory=trio.Event)

    async def __call__(self, ask: Ask, body: bytes) -> Said:
        await trio.lowlevel.checkpoint()
        if ask.act is Act.READ:
            with trio.move_on_after(ask.wait):
                while not self.says:
                    await self.news.wait()
                    self.news = trio.Event()
            return self.says.pop(0) if self.says else Said()
        self.asked.append((ask.act, ask.number, body))
        await trio.sleep(self.takes)
        if self.errors:
            raise self.errors.pop(0)
        return Said()

    def say(self, data: bytes, end: End | None = None) -> None:
        self.says.append(Said(data, end))
        self.news.set()

    def written(self) -> list[tuple[int, bytes]]:
        return [(number, body) for act, number, body in self.asked if act.has_body]


@asynccontextmanager
async def a_stream() -> AsyncIterator[Called]:
    called = Called()
    called.stream = DialledStream(PEER, called, PATIENCE)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(called.stream.run)
        yield called
        nursery.cancel_scope.cancel()


async def test_what_is_sent_while_a_post_is_under_way_goes_with_the_next(
    autojump_clock: MockClock,
) -> None:
    async with a_stream() as called:
        called.takes = 1.0
        for piece in (b"a", b"b", b"c"):
            await called.stream.send_all(piece)
            await trio.sleep(0.1)
        await trio.sleep(3.0)
        assert called.written() == [(1, b"a"), (2, b"bc")]


async def test_a_body_has_an_end_and_a_queue_too(autojump_clock: MockClock) -> None:
    async with a_stream() as called:
        called.takes = 1.0
        big = bytes(BODY_BYTES)
        pieces = 1 + QUEUE_BYTES // BODY_BYTES
        for _ in range(pieces):
            await called.stream.send_all(big)
            await wait_all_tasks_blocked()
        began = trio.current_time()
        await called.stream.send_all(big)
        assert trio.current_time() > began
        await trio.sleep(60.0)
        assert [len(body) for _, body in called.written()] == [BODY_BYTES] * (pieces + 1)


async def test_a_frame_longer_than_a_body_goes_alone() -> None:
    async with a_stream() as called:
        await called.stream.send_all(bytes(3 * BODY_BYTES))
        await called.stream.send_all(b"x")
        await called.stream.aclose()
        assert [len(body) for _, body in called.written()] == [3 * BODY_BYTES, 1]


@pytest.mark.parametrize("error", [PeerUnreachable("no way"), PeerClosed("cut"), FULL])
async def test_a_post_that_found_no_way_is_sent_again_under_its_number(
    error: TessellaError, autojump_clock: MockClock
) -> None:
    async with a_stream() as called:
        called.errors = [error] * 3
        await called.stream.send_all(b"a")
        await trio.sleep(PATIENCE)
        await called.stream.aclose()
        assert called.written() == [(1, b"a")] * 4 + [(2, b"")]


@pytest.mark.parametrize(
    ("error", "seen"),
    [
        (PeerUnreachable("no way"), PeerUnreachable),
        (PeerClosed("cut"), PeerClosed),
        (FULL, RemoteFailure),
    ],
)
async def test_patience_ends_and_the_reason_is_received(
    error: TessellaError, seen: type[TessellaError], autojump_clock: MockClock
) -> None:
    async with a_stream() as called:
        called.errors = [error] * 99
        await called.stream.send_all(b"a")
        with pytest.raises(seen) as caught:
            await called.stream.receive_some(9)
        assert trio.current_time() <= PATIENCE
        assert caught.value.code == error.code
        with pytest.raises(PeerReset, match="is lost"):
            await called.stream.send_all(b"b")
        with pytest.raises(seen):
            await called.stream.receive_some(9)


@pytest.mark.parametrize(
    ("error", "seen"),
    [
        (PeerSilent("no answer"), PeerSilent),
        (BadSignature("not by it"), BadSignature),
        (RemoteFailure("bad_signature", "who?", retry=False), RemoteFailure),
        (RemoteFailure("out_of_turn", "no such stream", retry=False), PeerReset),
    ],
)
async def test_what_no_patience_helps_against_ends_the_stream_at_once(
    error: TessellaError, seen: type[TessellaError], autojump_clock: MockClock
) -> None:
    async with a_stream() as called:
        called.errors = [error]
        await called.stream.send_all(b"a")
        with pytest.raises(seen):
            await called.stream.receive_some(9)
        assert trio.current_time() == 0.0


async def test_what_is_said_is_received_in_order_and_in_pieces() -> None:
    async with a_stream() as called:
        called.say(b"abc")
        called.say(b"d")
        assert await called.stream.receive_some(2) == b"ab"
        await wait_all_tasks_blocked()
        assert await called.stream.receive_some(9) == b"cd"
        called.say(b"e", End.FINISH)
        assert await called.stream.receive_some(9) == b"e"
        for _ in range(2):
            assert await called.stream.receive_some(9) == b""
        with pytest.raises(PeerReset, match="reads no more"):
            await called.stream.send_all(b"x")


async def test_a_reset_is_received_after_what_was_said_before_it() -> None:
    async with a_stream() as called:
        called.say(b"e", End.RESET)
        assert await called.stream.receive_some(9) == b"e"
        with pytest.raises(PeerReset, match="reset the stream"):
            await called.stream.receive_some(9)


async def test_a_read_is_repeated_while_nothing_is_said(autojump_clock: MockClock) -> None:
    async with a_stream() as called:
        await trio.sleep(3.5 * READ_SECONDS)
        called.say(b"x")
        assert await called.stream.receive_some(9) == b"x"


async def test_what_is_not_received_is_not_read_on() -> None:
    async with a_stream() as called:
        called.say(bytes(MAX_UNREAD + 1))
        called.say(b"x")
        await wait_all_tasks_blocked()
        assert len(called.says) == 1
        await called.stream.receive_some(2 * MAX_UNREAD)
        await wait_all_tasks_blocked()
        assert called.says == []


async def test_a_close_returns_when_all_has_arrived(autojump_clock: MockClock) -> None:
    async with a_stream() as called:
        called.takes = 1.0
        await called.stream.send_all(b"a")
        await trio.sleep(0.1)
        await called.stream.send_all(b"b")
        await called.stream.aclose()
        assert [each for each in called.asked if each[0].has_body] == [
            (Act.WRITE, 1, b"a"),
            (Act.FINISH, 2, b"b"),
        ]
        with pytest.raises(PeerReset, match="this side"):
            await called.stream.send_all(b"x")


async def test_a_close_that_finds_no_way_says_so(autojump_clock: MockClock) -> None:
    async with a_stream() as called:
        called.errors = [PeerUnreachable("no way")] * 99
        with pytest.raises(PeerReset, match="is lost"):
            await called.stream.aclose()


async def test_a_reset_is_told_and_what_was_queued_is_not(autojump_clock: MockClock) -> None:
    async with a_stream() as called:
        called.takes = 1.0
        await called.stream.send_all(b"a")
        await trio.sleep(0.1)
        await called.stream.send_all(b"b")
        await called.stream.reset()
        await called.stream.reset()
        await trio.sleep(0.1)
        assert [act for act, _, _ in called.asked] == [Act.WRITE, Act.RESET]
        with pytest.raises(PeerReset):
            await called.stream.send_all(b"x")
        with pytest.raises(PeerReset):
            await called.stream.receive_some(9)


async def test_a_stream_that_ended_is_not_reset_there(autojump_clock: MockClock) -> None:
    async with a_stream() as called:
        await called.stream.aclose()
        await called.stream.reset()
        await trio.sleep(1.0)
        assert [act for act, _, _ in called.asked] == [Act.FINISH]


async def test_who_waits_when_the_program_ends_finds_it_reset() -> None:
    async with a_stream() as called:
        await wait_all_tasks_blocked()
    with pytest.raises(PeerReset, match="is over"):
        await called.stream.receive_some(9)


async def test_a_stream_is_never_kept_for_another_conversation() -> None:
    assert not DialledStream(PEER, Called(), PATIENCE).idle
