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
from p2p.testing import MemoryNetwork
from tessella.core.errors import BadTensor, OutOfTurn, PeerGone
from tessella.core.ids import SessionId
from tessella.core.messages import AskStatus, Cancel, End, Hidden, Open, Park, Progress, Token
from tessella.core.progress import PROGRESS_SECONDS
from tessella.core.sampling import Sampling
from tessella.core.session import Lease
from tessella.core.shapes import DType
from tessella.core.tensors import WireTensor, chunk_positions
from tessella.worker import downstream
from tessella.worker.directory import Directory
from tessella.worker.terms import Terms
from tessella.worker.upstream import REPORT_TIMEOUT, Upstream

SESSION = SessionId(b"session of tests")
WIDE = 64
WINDOW = 400
LARGEST = chunk_positions(WIDE, DType.F32)


@pytest.fixture(autouse=True)
def small_window(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of WINDOW positions: the real one would take the time of moving it."""
    monkeypatch.setattr(downstream, "WINDOW_BYTES", WINDOW * WIDE * 4)


def hidden(position: int, count: int, data: bytes | None = None) -> Hidden:
    data = bytes(count * WIDE * 4) if data is None else data
    return Hidden(SESSION, 0, position, WireTensor("f32", (count, WIDE), data), False)


@dataclass
class Scene:
    before: FrameStream
    upstream: Upstream
    blamed: list[tuple[str, str]]


@asynccontextmanager
async def scene(
    an_open: Callable[..., Open], neighbourhood: Callable[..., Any]
) -> AsyncIterator[Scene]:
    """The stream of a session as the stage before has it, and what reads it."""
    net = MemoryNetwork(latency=0.001)
    async with net.host(b"a" * 32) as host:
        before, ours = net.stream_pair()
        peers = [host.address, host.address]
        lease = Lease(SESSION, 0, 64)
        terms = Terms(an_open(peers, 1), lease, DType.F32, [1, 2], Sampling(max_tokens=4))
        blamed: list[tuple[str, str]] = []
        directory = Directory(host, StreamPool(host), terms.opened.model, _nobody)
        yield Scene(before, Upstream(ours, terms, WIDE, neighbourhood(directory, blamed)), blamed)


async def _nobody(model: str) -> list[Any]:
    return []


SceneOf = Callable[..., Any]


@pytest.fixture
def opened(an_open: Callable[..., Open], neighbourhood: Callable[..., Any]) -> SceneOf:
    return lambda: scene(an_open, neighbourhood)


@pytest.mark.parametrize("farewell", [End(SESSION, 0), Cancel(SESSION, 0), Park(SESSION, 0, 5.0)])
async def test_what_comes_is_queued_in_order_until_a_farewell(
    opened: SceneOf, autojump_clock: MockClock, farewell: Any
) -> None:
    async with opened() as s:
        for position in range(3):
            await s.before.send(hidden(position, 1))
        await s.before.send(farewell)
        assert await s.upstream.read() == farewell
        assert [(await s.upstream.next()).position for _ in range(3)] == [0, 1, 2]
        assert s.upstream.received == 3


async def test_a_cancel_behind_a_full_window_is_seen_while_nothing_computes(
    opened: SceneOf, autojump_clock: MockClock
) -> None:
    async with opened() as s, trio.open_nursery() as nursery:

        async def send() -> None:
            for sent in range(0, WINDOW, 100):
                await s.before.send(hidden(sent, 100))
            await s.before.send(hidden(WINDOW, LARGEST))
            await s.before.send(Cancel(SESSION, 0))

        nursery.start_soon(send)
        with trio.fail_after(1.0):
            assert await s.upstream.read() == Cancel(SESSION, 0)


async def test_more_than_the_window_is_refused(opened: SceneOf, autojump_clock: MockClock) -> None:
    async with opened() as s, trio.open_nursery() as nursery:

        async def send() -> None:
            while True:  # again and again the same position: it is memory that counts
                await s.before.send(hidden(0, 100))

        nursery.start_soon(send)
        with pytest.raises(OutOfTurn, match="window"):
            await s.upstream.read()
        nursery.cancel_scope.cancel()


async def test_what_was_computed_makes_room(opened: SceneOf, autojump_clock: MockClock) -> None:
    async with opened() as s, trio.open_nursery() as nursery:

        async def send() -> None:
            for _ in range(50):
                await s.before.send(hidden(0, 100))
                await trio.sleep(0.01)
            await s.before.send(End(SESSION, 0))

        async def compute() -> None:
            while True:
                await s.upstream.next()

        nursery.start_soon(send)
        nursery.start_soon(compute)
        assert await s.upstream.read() == End(SESSION, 0)
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    "message",
    [AskStatus(), End(SESSION, 1), Cancel(SessionId(b"x" * 16), 0), Progress(SESSION, 0, 1, 1)],
)
async def test_what_may_not_come_ends_the_session(
    opened: SceneOf, autojump_clock: MockClock, message: Any
) -> None:
    async with opened() as s:
        await s.before.send(message)
        with pytest.raises(OutOfTurn):
            await s.upstream.read()
        assert s.blamed == []


async def test_a_tensor_that_lies_is_blamed_on_who_sent_it(
    opened: SceneOf, autojump_clock: MockClock
) -> None:
    async with opened() as s:
        await s.before.send(hidden(0, 1, data=b"short"))
        with pytest.raises(BadTensor):
            await s.upstream.read()
        assert [code for _, code in s.blamed] == ["bad_tensor"]


async def test_progress_is_told_each_second_until_all_is_done(
    opened: SceneOf, autojump_clock: MockClock
) -> None:
    async with opened() as s, trio.open_nursery() as nursery:
        done = 0
        nursery.start_soon(s.upstream.read)
        nursery.start_soon(s.upstream.report, lambda: (7, done))
        await s.before.send(hidden(0, 5))
        for reached in (0, 3, 5):
            done = reached
            with trio.fail_after(1.1):
                assert await s.before.receive() == Progress(SESSION, 0, 7, reached)
        with trio.move_on_after(10.0) as quiet:
            await s.before.receive()
        assert quiet.cancelled_caught
        nursery.cancel_scope.cancel()


async def test_a_reader_that_takes_no_report_is_given_up(
    opened: SceneOf, autojump_clock: MockClock
) -> None:
    async with opened() as s, trio.open_nursery() as nursery:
        long = Token(SESSION, 0, 1, 1, "x" * 4000, "", 0.0, ())

        async def fill() -> None:
            with suppress(PeerGone):
                while True:
                    await s.upstream.say(long)

        nursery.start_soon(fill)
        s.upstream.received = 1
        started = trio.current_time()
        with pytest.raises(PeerGone):
            await s.upstream.report(lambda: (7, 0))
        assert trio.current_time() - started == pytest.approx(PROGRESS_SECONDS + REPORT_TIMEOUT)
