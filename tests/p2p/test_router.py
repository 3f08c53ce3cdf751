"""How the errors of a handler end its stream."""

from __future__ import annotations

import logging

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from p2p.router import FAIL_TIMEOUT, Router
from p2p.streams import FrameStream
from p2p.testing import MemoryNetwork
from tessella.core.errors import (
    BadTensor,
    Busy,
    LocalError,
    ModelUnavailable,
    PeerClosed,
    PeerGone,
    PeerReset,
    PeerSilent,
    RemoteFailure,
)
from tessella.core.frames import MIB
from tessella.core.ids import SessionId
from tessella.core.messages import COMPLETE, HOP, STATUS, TOKENS, Cancel, Complete, Fail

HIDDEN = "an internal error; the log of this node has it"


async def ended_by(raised: Exception) -> tuple[Fail, type[PeerGone]]:
    """What the peer of a handler that raises sees: a message, and how the stream ends."""
    near, far = MemoryNetwork().stream_pair()
    router = Router()

    async def handler(stream: FrameStream) -> None:
        raise raised

    router.serve(HOP, handler, streams=1, per_peer=1)
    await router.answer(far)
    answer = await near.receive(1)
    assert isinstance(answer, Fail)
    with pytest.raises(PeerGone) as end:
        await near.receive(1)
    return answer, type(end.value)


@pytest.mark.parametrize(
    ("raised", "fail", "end"),
    [
        (Busy("full"), Fail("busy", "full", True), PeerClosed),
        (PeerSilent("the next"), Fail("peer_silent", "the next", True), PeerClosed),
        (RemoteFailure("odd", "t", retry=False), Fail("odd", "t", False), PeerClosed),
        (BadTensor("nan"), Fail("bad_tensor", "nan", False), PeerReset),
        (LocalError("secret"), Fail("internal_error", HIDDEN, False), PeerReset),
        (ValueError("secret"), Fail("internal_error", HIDDEN, False), PeerReset),
        (ExceptionGroup("g", [Busy("a"), Busy("b")]), Fail("busy", "a", True), PeerClosed),
        (
            ExceptionGroup("g", [ExceptionGroup("h", [ModelUnavailable("[0, 3)")])]),
            Fail("model_unavailable", "[0, 3)", True),
            PeerClosed,
        ),
        (
            ExceptionGroup("g", [Busy("a"), KeyError("secret")]),
            Fail("internal_error", HIDDEN, False),
            PeerReset,
        ),
    ],
)
async def test_errors_become_fail_and_an_end(
    raised: Exception, fail: Fail, end: type[PeerGone]
) -> None:
    assert await ended_by(raised) == (fail, end)


@pytest.mark.parametrize(
    ("raised", "levels"),
    [
        (Busy("full"), ["INFO"]),
        (ValueError("secret"), ["ERROR"]),
        (LocalError("secret"), ["ERROR"]),
    ],
)
async def test_only_bugs_are_logged_as_errors_with_their_traceback(
    caplog: pytest.LogCaptureFixture, raised: Exception, levels: list[str]
) -> None:
    with caplog.at_level(logging.INFO, "p2p.router"):
        await ended_by(raised)
    assert [record.levelname for record in caplog.records] == levels
    assert bool(caplog.records[0].exc_info) == (levels == ["ERROR"])


async def test_a_handler_that_returns_finishes_the_stream() -> None:
    near, far = MemoryNetwork().stream_pair()
    router = Router()

    async def handler(stream: FrameStream) -> None:
        await stream.send(Cancel(SessionId(bytes(16)), 1))

    router.serve(HOP, handler, streams=1, per_peer=1)
    await router.answer(far)
    assert await near.receive(1) == Cancel(SessionId(bytes(16)), 1)
    with pytest.raises(PeerClosed):
        await near.receive(1)


async def test_a_cancelled_handler_resets_the_stream_and_frees_its_place() -> None:
    net = MemoryNetwork()
    router = Router()

    async def handler(stream: FrameStream) -> None:
        await stream.receive()

    router.serve(HOP, handler, streams=1, per_peer=1)
    near, far = net.stream_pair()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(router.answer, far)
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    with pytest.raises(PeerReset):
        await near.receive(1)
    near, far = net.stream_pair()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(router.answer, far)
        await near.aclose()
        await wait_all_tasks_blocked()
    assert isinstance(near, FrameStream)


@pytest.mark.parametrize(("protocol", "taken"), [(STATUS, 64), (COMPLETE, 64), (HOP, 80)])
async def test_one_peer_has_so_many_streams_over_all_protocols_but_those_of_sessions(
    protocol: str, taken: int
) -> None:
    net, router, held = MemoryNetwork(), Router(), []

    async def handler(stream: FrameStream) -> None:
        held.append(stream.protocol)
        await stream.receive()

    for each in (STATUS, COMPLETE, HOP, TOKENS):
        router.serve(each, handler, streams=100, per_peer=80)
    async with trio.open_nursery() as nursery:
        streams = [net.stream_pair(TOKENS) for _ in range(80)]
        streams += [net.stream_pair(STATUS) for _ in range(30)]
        streams += [net.stream_pair(protocol) for _ in range(90)]
        for _, far in streams:
            nursery.start_soon(router.answer, far)
        await wait_all_tasks_blocked()
        assert held.count(TOKENS) == 80
        assert len(held) == 80 + (taken if protocol != HOP else 30 + taken)
        nursery.cancel_scope.cancel()


async def test_a_peer_that_does_not_read_its_fail_is_not_waited_for(
    autojump_clock: MockClock,
) -> None:
    _near, far = MemoryNetwork().stream_pair()
    router = Router()

    async def handler(stream: FrameStream) -> None:
        with trio.move_on_after(0.1):
            await stream._stream.send_all(bytes(8 * MIB))
        raise Busy("full")

    router.serve(HOP, handler, streams=1, per_peer=1)
    await router.answer(far)
    assert trio.current_time() < 0.1 + FAIL_TIMEOUT + 1


async def test_a_handler_that_ended_its_stream_and_failed_has_nobody_to_tell() -> None:
    near, far = MemoryNetwork().stream_pair()
    router = Router()

    async def handler(stream: FrameStream) -> None:
        await stream.aclose()
        raise Busy("too late")

    router.serve(HOP, handler, streams=1, per_peer=1)
    await router.answer(far)
    with pytest.raises(PeerGone):
        await near.receive(1)


async def test_a_failing_handler_is_heard_by_a_peer_in_the_middle_of_sending() -> None:
    near, far = MemoryNetwork().stream_pair()
    router = Router()

    async def handler(stream: FrameStream) -> None:
        raise BadTensor("unasked")

    router.serve(HOP, handler, streams=1, per_peer=1)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(router.answer, far)
        with pytest.raises(PeerReset):
            await near.send(Complete(bytes(8 * MIB)))
    assert await near.receive(1) == Fail("bad_tensor", "unasked", False)
