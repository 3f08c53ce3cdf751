"""The streams that are open at a node: whose they are, how many, and how they end."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from p2p.streams import FrameStream
from tessella.core.errors import (
    LocalError,
    OutOfTurn,
    PeerGone,
    PeerReset,
    PeerSilent,
    Refused,
    TooManySessions,
)
from tessella.core.frames import LENGTH_BYTES
from tessella.core.ids import PeerId
from tessella.core.messages import HOP, AskStatus, Fail, Message, Status, decode, encode
from tessella.worker.http_hops.asks import STREAM_BYTES, Act, Ask, End, Said
from tessella.worker.http_hops.table import HttpStreams, StreamLimits

ANNA, BERT = PeerId("anna"), PeerId("bert")
SILENCE = 10.0
NAME = bytes(STREAM_BYTES)


async def no_body() -> bytes:
    raise AssertionError("a body was read")


@dataclass
class Desk:
    """The streams of a node, and what becomes of them."""

    streams: HttpStreams
    served: list[FrameStream]
    ended: list[BaseException | None]
    error: Exception | None = None

    async def ask(
        self, act: Act, number: int = 0, *, peer: PeerId = ANNA, name: bytes = NAME
    ) -> Said:
        return await self.streams.answer(peer, Ask(name, act, number), "", no_body, self.serve)

    async def write(self, number: int, data: bytes, *, finish: bool = False) -> Said:
        async def body() -> bytes:
            return data

        ask = Ask(NAME, Act.FINISH if finish else Act.WRITE, number)
        return await self.streams.answer(ANNA, ask, data.hex(), body, self.serve)

    async def serve(self, stream: FrameStream) -> None:
        """Answers each question with itself; raises `error` at the first."""
        self.served.append(stream)
        try:
            while True:
                message = await stream.receive()
                if self.error is not None:
                    raise self.error
                await stream.send(message)
        except Exception as exc:
            self.ended.append(exc)
            if isinstance(exc, PeerGone):
                return
            raise


@asynccontextmanager
async def a_desk(streams: int = 4, per_peer: int = 3) -> AsyncIterator[Desk]:
    async with trio.open_nursery() as nursery:
        limits = StreamLimits(streams=streams, per_peer=per_peer, silence=SILENCE)
        desk = Desk(HttpStreams(HOP, nursery, limits), [], [])
        nursery.start_soon(desk.streams.run)
        yield desk
        nursery.cancel_scope.cancel()


def said(message: Said) -> list[Message]:
    data, found = message.data, []
    while data:
        end = LENGTH_BYTES + int.from_bytes(data[:LENGTH_BYTES], "big")
        found.append(decode(data[LENGTH_BYTES:end]))
        data = data[end:]
    return found


async def test_a_stream_of_frames_from_its_first_to_its_last() -> None:
    async with a_desk() as desk:
        assert await desk.ask(Act.OPEN) == Said()
        await wait_all_tasks_blocked()
        (stream,) = desk.served
        assert (stream.peer_id, stream.protocol) == (ANNA, HOP)
        await desk.write(1, encode(AskStatus()) + encode(Status(b"{}")))
        await wait_all_tasks_blocked()
        assert said(await desk.ask(Act.READ, 1)) == [AskStatus(), Status(b"{}")]
        await desk.write(2, b"", finish=True)
        await wait_all_tasks_blocked()
        assert len(desk.streams) == 0


async def test_a_frame_may_come_in_two_bodies() -> None:
    async with a_desk() as desk:
        await desk.ask(Act.OPEN)
        frame = encode(Status(b"{}"))
        await desk.write(1, frame[:5])
        await desk.write(2, frame[5:])
        await wait_all_tasks_blocked()
        assert said(await desk.ask(Act.READ, 1)) == [Status(b"{}")]


async def test_an_open_that_comes_again_opens_nothing_else() -> None:
    async with a_desk() as desk:
        for _ in range(3):
            await desk.ask(Act.OPEN)
        await wait_all_tasks_blocked()
        assert len(desk.served) == len(desk.streams) == 1
        await desk.ask(Act.READ, 1)
        with pytest.raises(OutOfTurn, match="open already"):
            await desk.ask(Act.OPEN)


@pytest.mark.parametrize("act", [Act.WRITE, Act.FINISH, Act.READ, Act.RESET])
async def test_a_stream_is_its_callers_alone(act: Act) -> None:
    async with a_desk() as desk:
        await desk.ask(Act.OPEN)
        for peer, name in ((BERT, NAME), (ANNA, bytes(15) + b"\1")):
            with pytest.raises(OutOfTurn, match="no such stream"):
                await desk.ask(act, 1, peer=peer, name=name)
        assert said(await desk.ask(Act.READ, 1)) == []


async def test_streams_are_counted_in_all_and_by_peer() -> None:
    async with a_desk(streams=4, per_peer=3) as desk:
        for number in range(3):
            await desk.ask(Act.OPEN, name=bytes([number]) * 16)
        with pytest.raises(TooManySessions, match="3 streams of one peer"):
            await desk.ask(Act.OPEN, name=b"x" * 16)
        await desk.ask(Act.OPEN, peer=BERT)
        with pytest.raises(TooManySessions, match="all 4 streams"):
            await desk.ask(Act.OPEN, peer=PeerId("carl"))
        await desk.ask(Act.RESET, name=bytes(16))
        await wait_all_tasks_blocked()
        await desk.ask(Act.OPEN, name=b"x" * 16)


@pytest.mark.parametrize(
    ("error", "code", "end"),
    [
        (Refused("no"), "refused", End.FINISH),
        (OutOfTurn("no"), "out_of_turn", End.RESET),
        (LocalError("a bug"), "internal_error", End.RESET),
        (ZeroDivisionError("a bug"), "internal_error", End.RESET),
    ],
)
async def test_what_a_handler_raises_is_the_last_that_is_read(
    error: Exception, code: str, end: End
) -> None:
    async with a_desk() as desk:
        desk.error = error
        await desk.ask(Act.OPEN)
        await desk.write(1, encode(AskStatus()))
        await wait_all_tasks_blocked()
        assert len(desk.streams) == 1
        last = await desk.ask(Act.READ, 1)
        (fail,) = said(last)
        assert isinstance(fail, Fail)
        assert (fail.code, last.end) == (code, end)
        await wait_all_tasks_blocked()
        assert len(desk.streams) == 0
        with pytest.raises(OutOfTurn):
            await desk.ask(Act.READ, 2)


async def test_a_reset_is_one_to_the_handler() -> None:
    async with a_desk() as desk:
        await desk.ask(Act.OPEN)
        await wait_all_tasks_blocked()
        await desk.ask(Act.RESET)
        await wait_all_tasks_blocked()
        assert isinstance(desk.ended[0], PeerReset)
        assert len(desk.streams) == 0


async def test_a_caller_that_asks_nothing_is_gone(autojump_clock: MockClock) -> None:
    async with a_desk() as desk:
        await desk.ask(Act.OPEN)
        for number in (1, 2):
            await trio.sleep(SILENCE - 1)
            await desk.ask(Act.READ, number)
        assert desk.ended == []
        await trio.sleep(SILENCE + 2)
        assert isinstance(desk.ended[0], PeerSilent)
        assert len(desk.streams) == 0


async def test_what_was_said_last_is_not_kept_for_who_is_gone(autojump_clock: MockClock) -> None:
    async with a_desk() as desk:
        desk.error = Refused("no")
        await desk.ask(Act.OPEN)
        await desk.write(1, encode(AskStatus()))
        await trio.sleep(1)
        assert len(desk.streams) == 1
        await trio.sleep(SILENCE + 1)
        assert len(desk.streams) == 0


async def test_streams_end_with_their_nursery() -> None:
    async with a_desk() as desk:
        await desk.ask(Act.OPEN)
        await wait_all_tasks_blocked()
    assert len(desk.streams) == 0
