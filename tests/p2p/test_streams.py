"""FrameStream over memory: order, caps, deadlines, ends."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from p2p.streams import FrameStream, frame_stream
from p2p.testing import MemoryNetwork
from tessella.core.errors import (
    BadFrame,
    FrameTooLarge,
    LocalError,
    PeerClosed,
    PeerReset,
    PeerSilent,
)
from tessella.core.frames import MAX_CONTROL_FRAME, MIB, pack
from tessella.core.ids import SessionId
from tessella.core.messages import (
    HOP,
    STATUS,
    TOKENS,
    Cancel,
    Complete,
    Fail,
    Message,
    Status,
    encode,
)

SESSION = SessionId(bytes(16))


class RecordingStream:
    """A byte stream that answers from a list and remembers what it was asked to do."""

    def __init__(self, *arriving: bytes, stalled: bool = False) -> None:
        self.peer_id = MemoryNetwork().stream_pair()[0].peer_id
        self.idle = True
        self.writes: list[bytes] = []
        self.ends: list[str] = []
        self.room = trio.Event()
        if not stalled:
            self.room.set()
        self._arriving = list(arriving)

    async def send_all(self, data: bytes) -> None:
        self.writes.append(data)
        await self.room.wait()

    async def receive_some(self, max_bytes: int) -> bytes:
        await trio.lowlevel.checkpoint()
        if not self._arriving:
            return b""
        first = self._arriving.pop(0)
        if len(first) > max_bytes:
            self._arriving.insert(0, first[max_bytes:])
        return first[:max_bytes]

    async def aclose(self) -> None:
        self.ends.append("close")

    async def reset(self) -> None:
        self.ends.append("reset")


def number(n: int) -> Cancel:
    """A message that can be told from others."""
    return Cancel(SESSION, n)


async def test_messages_arrive_in_order_both_ways() -> None:
    near, far = MemoryNetwork(latency=0.01).stream_pair()
    sent = [number(n) for n in range(5)]
    for message in sent:
        await near.send(message)
        await far.send(message)
    assert [await far.receive(1) for _ in sent] == sent
    assert [await near.receive(1) for _ in sent] == sent


@pytest.mark.parametrize("size", [1, 3, 7, 10_000])
async def test_a_frame_is_the_same_however_its_bytes_are_cut(size: int) -> None:
    data = encode(number(1)) + encode(Fail("x", "text " * 50, True)) + encode(number(2))
    pieces = [data[at : at + size] for at in range(0, len(data), size)]
    stream = frame_stream(RecordingStream(*pieces), HOP, opened=False)
    assert await stream.receive() == number(1)
    assert await stream.receive() == Fail("x", "text " * 50, True)
    assert await stream.receive() == number(2)
    with pytest.raises(PeerClosed):
        await stream.receive()


async def test_a_clean_end_stays_an_end() -> None:
    near, far = MemoryNetwork().stream_pair()
    await near.send(number(1))
    await near.aclose()
    assert await far.receive(1) == number(1)
    for _ in range(2):
        with pytest.raises(PeerClosed):
            await far.receive(1)


@pytest.mark.parametrize(
    ("bytes_in", "error"),
    [
        (b"\0\0\0\1\xc1", BadFrame),
        (pack([999]), BadFrame),
        (pack(["Cancel"]), BadFrame),
        (encode(number(1))[:-1], BadFrame),
        (b"\0\0", BadFrame),
        ((MAX_CONTROL_FRAME + 1).to_bytes(4, "big"), FrameTooLarge),
    ],
    ids=["not msgpack", "unknown kind", "no kind", "cut body", "cut length", "over the cap"],
)
async def test_bad_bytes_are_the_peers_fault_and_reset_the_stream(
    bytes_in: bytes, error: type[BadFrame]
) -> None:
    below = RecordingStream(bytes_in)
    stream = frame_stream(below, TOKENS, opened=False)
    with pytest.raises(error):
        await stream.receive()
    assert below.ends == ["reset"]


async def test_a_frame_over_the_cap_of_our_side_never_leaves() -> None:
    below = RecordingStream()
    stream = frame_stream(below, STATUS, opened=True)
    with pytest.raises(LocalError, match="over"):
        await stream.send(Status(bytes(MAX_CONTROL_FRAME)))
    assert below.writes == []


async def test_caps_differ_by_direction() -> None:
    near, far = MemoryNetwork().stream_pair(STATUS)
    document = Status(bytes(MIB))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(far.send, document)
        assert await near.receive(1) == document


async def test_receive_may_time_out_and_go_on(autojump_clock: MockClock) -> None:
    near, far = MemoryNetwork(latency=2).stream_pair()
    await near.send(number(1))
    with pytest.raises(PeerSilent):
        await far.receive(1)
    assert await far.receive(2) == number(1)


async def test_a_cancelled_receive_loses_nothing(autojump_clock: MockClock) -> None:
    near, far = MemoryNetwork(latency=0.5).stream_pair()
    got: list[Message] = []
    async with trio.open_nursery() as nursery:

        async def write() -> None:
            for n in range(20):
                await near.send(number(n))
                await trio.sleep(0.3)

        nursery.start_soon(write)
        while len(got) < 20:
            with trio.move_on_after(0.17):
                got.append(await far.receive())
    assert got == [number(n) for n in range(20)]


async def test_frames_that_wait_are_written_in_one_piece_and_in_order() -> None:
    below = RecordingStream(stalled=True)
    stream = frame_stream(below, TOKENS, opened=True)
    async with trio.open_nursery() as nursery:
        for n in range(10):
            nursery.start_soon(stream.send, number(n))
            await wait_all_tasks_blocked()
        below.room.set()
    assert below.writes == [
        encode(number(0)),
        b"".join(encode(number(n)) for n in range(1, 10)),
    ]


async def test_frames_too_long_for_one_piece_are_written_apart() -> None:
    below = RecordingStream(stalled=True)
    stream = frame_stream(below, TOKENS, opened=True)
    long = Complete(bytes(40_000))
    async with trio.open_nursery() as nursery:
        for _ in range(4):
            nursery.start_soon(stream.send, long)
        await wait_all_tasks_blocked()
        below.room.set()
    assert below.writes == [encode(long)] * 4


async def test_a_peer_that_takes_nothing_is_silent_and_the_stream_reset(
    autojump_clock: MockClock,
) -> None:
    below = RecordingStream(stalled=True)
    stream = frame_stream(below, TOKENS, opened=True)
    started = trio.current_time()
    with pytest.raises(PeerSilent):
        await stream.send(number(1), timeout=3)
    assert trio.current_time() - started == pytest.approx(3)
    assert below.ends == ["reset"]
    with pytest.raises(PeerReset):
        await stream.send(number(2))


async def test_backpressure_is_not_an_error(autojump_clock: MockClock) -> None:
    near, far = MemoryNetwork().stream_pair()
    async with trio.open_nursery() as nursery:
        message = Complete(bytes(8 * MIB))
        nursery.start_soon(near.send, message, 60)
        await trio.sleep(50)
        assert await far.receive(1) == message


async def test_a_cancelled_send_resets_the_stream_and_frees_other_senders() -> None:
    near, far = MemoryNetwork().stream_pair()
    errors: list[Exception] = []

    async def second() -> None:
        try:
            await near.send(number(2))
        except PeerReset as exc:
            errors.append(exc)

    async with trio.open_nursery() as nursery:
        with trio.CancelScope() as scope:
            nursery.start_soon(near.send, number(0))
            await wait_all_tasks_blocked()
            async with trio.open_nursery() as inner:
                inner.start_soon(near.send, Complete(bytes(8 * MIB)))
                await wait_all_tasks_blocked()
                nursery.start_soon(second)
                await wait_all_tasks_blocked()
                scope.cancel()
    assert len(errors) == 1
    assert await far.receive(1) == number(0)
    with pytest.raises(PeerReset):
        await far.receive(1)


async def test_what_came_before_a_reset_is_received_first() -> None:
    near, far = MemoryNetwork().stream_pair()
    await far.send(Fail("busy", "full", True))
    await far.reset()
    with pytest.raises(PeerReset):
        await near.send(number(1))
    assert await near.receive(1) == Fail("busy", "full", True)
    with pytest.raises(PeerReset):
        await near.receive(1)


async def test_a_reset_wakes_our_own_reader() -> None:
    near, _far = MemoryNetwork().stream_pair()
    errors: list[PeerReset] = []

    async def read() -> None:
        try:
            await near.receive()
        except PeerReset as exc:
            errors.append(exc)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(read)
        await wait_all_tasks_blocked()
        await near.reset()
    assert len(errors) == 1


async def test_two_readers_are_a_bug_made_loud() -> None:
    near, far = MemoryNetwork().stream_pair()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(near.receive)
        await wait_all_tasks_blocked()
        with pytest.raises(LocalError, match="two tasks"):
            await near.receive()
        await far.send(number(1))


@pytest.mark.parametrize("use", [FrameStream.receive, lambda s: s.send(number(1))])
async def test_use_after_our_own_close_is_a_bug_made_loud(use: object) -> None:
    near, _far = MemoryNetwork().stream_pair()
    await near.aclose()
    await near.aclose()
    with pytest.raises(LocalError, match="closed by this side"):
        await use(near)  # type: ignore[operator]


async def test_the_context_closes_after_success_and_resets_after_an_error() -> None:
    below = RecordingStream()
    async with frame_stream(below, HOP, opened=True):
        pass
    assert below.ends == ["close"]
    below = RecordingStream()
    with pytest.raises(ValueError, match="ours"):
        async with frame_stream(below, HOP, opened=True):
            raise ValueError("ours")
    assert below.ends == ["reset"]


async def test_a_cancelled_context_still_resets() -> None:
    near, far = MemoryNetwork().stream_pair()
    with trio.CancelScope() as scope:
        async with near:
            scope.cancel()
            await trio.sleep_forever()
    with pytest.raises(PeerReset):
        await far.receive(1)


async def test_a_close_that_the_peer_stalls_ends_in_a_reset(
    autojump_clock: MockClock,
) -> None:
    class Stalled(RecordingStream):
        async def aclose(self) -> None:
            await trio.sleep_forever()

    below = Stalled()
    await frame_stream(below, HOP, opened=True).aclose()
    assert below.ends == ["reset"]


async def test_idle_means_nothing_unread_and_both_ways_open() -> None:
    near, far = MemoryNetwork().stream_pair()
    assert near.idle
    assert far.idle
    await near.send(number(1))
    assert not far.idle
    await far.receive(1)
    assert far.idle
    await far.aclose()
    assert not near.idle
    assert not far.idle
