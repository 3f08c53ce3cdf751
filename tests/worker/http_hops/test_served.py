"""The two lanes of a stream at the node that is called."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from tessella.core.errors import BadSignature, OutOfTurn, PeerReset, PeerSilent
from tessella.core.ids import PeerId
from tessella.worker.http_hops.asks import MAX_SAID, MAX_WAIT_SECONDS, End, Said
from tessella.worker.http_hops.served import TAKE_SECONDS, ServedStream

PEER = PeerId("a peer")


def body(data: bytes) -> Callable[[], Awaitable[bytes]]:
    async def read() -> bytes:
        await trio.lowlevel.checkpoint()
        return data

    return read


async def refused_body() -> bytes:
    await trio.lowlevel.checkpoint()
    raise BadSignature("another body")


async def write(stream: ServedStream, number: int, data: bytes, *, finish: bool = False) -> None:
    await stream.write(number, data.hex(), body(data), finish=finish)


async def test_what_is_written_is_received_in_order_and_in_pieces() -> None:
    stream = ServedStream(PEER)
    found = b""
    async with trio.open_nursery() as nursery:

        async def all_of_it() -> None:
            await write(stream, 1, b"abcdef")
            await write(stream, 2, b"gh", finish=True)

        nursery.start_soon(all_of_it)
        while piece := await stream.receive_some(4):
            assert len(piece) <= 4
            found += piece
    assert found == b"abcdefgh"
    assert await stream.receive_some(4) == b""


async def test_a_write_is_answered_when_it_was_taken() -> None:
    stream = ServedStream(PEER)
    answered = trio.Event()

    async def written() -> None:
        await write(stream, 1, b"abc")
        answered.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(written)
        await wait_all_tasks_blocked()
        assert not answered.is_set()
        assert await stream.receive_some(2) == b"ab"
        await wait_all_tasks_blocked()
        assert not answered.is_set()
        assert await stream.receive_some(2) == b"c"
        await answered.wait()


async def test_a_write_that_comes_again_is_taken_once() -> None:
    stream = ServedStream(PEER)
    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(write, stream, 1, b"once")
        assert await stream.receive_some(99) == b"once"
        await wait_all_tasks_blocked()
        with trio.move_on_after(0):
            raise AssertionError(await stream.receive_some(99))
    with pytest.raises(OutOfTurn, match="write 1 after 1"):
        await write(stream, 1, b"other")


@pytest.mark.parametrize("number", [0, 2, 7])
async def test_a_write_out_of_turn_is_not_taken(number: int) -> None:
    stream = ServedStream(PEER)
    with pytest.raises(OutOfTurn, match=f"write {number} after 0"):
        await write(stream, number, b"x")
    assert stream.untouched


async def test_nothing_is_written_after_the_last() -> None:
    stream = ServedStream(PEER)
    await write(stream, 1, b"", finish=True)
    await write(stream, 1, b"", finish=True)
    with pytest.raises(OutOfTurn):
        await write(stream, 2, b"x")


async def test_a_body_that_is_refused_leaves_its_number_to_the_next() -> None:
    stream = ServedStream(PEER)
    with pytest.raises(BadSignature):
        await stream.write(1, "d", refused_body, finish=False)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(write, stream, 1, b"x")
        assert await stream.receive_some(9) == b"x"


async def test_a_second_write_waits_for_the_first_and_not_for_ever(
    autojump_clock: MockClock,
) -> None:
    stream = ServedStream(PEER)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(stream.write, 1, "d", trio.sleep_forever, finish=False))
        await wait_all_tasks_blocked()
        began = trio.current_time()
        with pytest.raises(OutOfTurn, match="still on its way"):
            await write(stream, 1, b"x")
        assert trio.current_time() - began == MAX_WAIT_SECONDS
        nursery.cancel_scope.cancel()


async def test_who_takes_nothing_is_not_waited_for(autojump_clock: MockClock) -> None:
    stream = ServedStream(PEER)
    await write(stream, 1, b"left")
    assert trio.current_time() >= TAKE_SECONDS
    assert await stream.receive_some(9) == b"left"
    with pytest.raises(PeerSilent):
        await stream.receive_some(9)


async def test_a_read_is_answered_as_soon_as_there_is_something(autojump_clock: MockClock) -> None:
    stream = ServedStream(PEER)
    began = trio.current_time()
    assert await stream.read(1, 3.0) == Said(b"")
    assert trio.current_time() - began == 3.0
    async with trio.open_nursery() as nursery:

        async def speak() -> None:
            await trio.sleep(1.0)
            await stream.send_all(b"ab")

        nursery.start_soon(speak)
        assert await stream.read(2, 9.0) == Said(b"ab")
        assert trio.current_time() - began == 4.0
    await stream.send_all(b"c")
    await stream.send_all(b"d")
    assert await stream.read(3, 0.0) == Said(b"cd")


async def test_a_read_that_comes_again_is_answered_as_it_was() -> None:
    stream = ServedStream(PEER)
    await stream.send_all(b"ab")
    assert await stream.read(1, 0.0) == Said(b"ab")
    await stream.send_all(b"c")
    assert await stream.read(1, 0.0) == Said(b"ab")
    assert await stream.read(2, 0.0) == Said(b"c")
    for number in (0, 1, 4):
        with pytest.raises(OutOfTurn, match=f"read {number} after 2"):
            await stream.read(number, 0.0)


async def test_a_read_that_is_asked_again_is_answered_to_the_later_one() -> None:
    stream = ServedStream(PEER)
    refused: list[str] = []

    async def first() -> None:
        with pytest.raises(OutOfTurn, match="asked again") as caught:
            await stream.read(1, 9.0)
        refused.append(str(caught.value))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(first)
        await wait_all_tasks_blocked()
        nursery.start_soon(stream.send_all, b"x")
        assert await stream.read(1, 9.0) == Said(b"x")
    assert refused


async def test_what_nobody_reads_is_not_piled_up(autojump_clock: MockClock) -> None:
    stream = ServedStream(PEER)
    await stream.send_all(bytes(2 * MAX_SAID))
    with trio.move_on_after(60) as waiting:
        await stream.send_all(b"x")
    assert waiting.cancelled_caught
    assert len((await stream.read(1, 0.0)).data) == 2 * MAX_SAID
    await stream.send_all(b"x")


@pytest.mark.parametrize(("end", "word"), [("aclose", End.FINISH), ("reset", End.RESET)])
async def test_an_end_is_told_with_what_was_said_before_it(end: str, word: End) -> None:
    stream = ServedStream(PEER)
    await stream.send_all(b"last words")
    await getattr(stream, end)()
    with pytest.raises(PeerReset):
        await stream.send_all(b"x")
    with pytest.raises(PeerReset):
        await stream.receive_some(9)
    await write(stream, 1, b"dropped")
    with trio.move_on_after(0) as untold:
        await stream.until_told()
    assert untold.cancelled_caught
    assert await stream.read(1, 9.0) == Said(b"last words", word)
    await stream.until_told()


async def test_who_finished_reads_no_more() -> None:
    stream = ServedStream(PEER)
    await write(stream, 1, b"", finish=True)
    with pytest.raises(PeerReset, match="reads no more"):
        await stream.send_all(b"x")
    await stream.until_told()
    assert not stream.silent(0.0)


async def test_what_came_before_a_reset_is_received_before_it() -> None:
    stream = ServedStream(PEER)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(write, stream, 1, b"ab")
        await wait_all_tasks_blocked()
        stream.lose(PeerReset("given up"))
        assert await stream.receive_some(9) == b"ab"
        with pytest.raises(PeerReset, match="given up"):
            await stream.receive_some(9)
        with pytest.raises(PeerReset, match="given up"):
            await stream.send_all(b"x")
        await stream.until_told()


async def test_a_caller_is_silent_only_between_its_requests(autojump_clock: MockClock) -> None:
    stream = ServedStream(PEER)
    await trio.sleep(4.0)
    assert stream.silent(4.0)
    with stream.requested():
        await trio.sleep(60.0)
        assert not stream.silent(4.0)
    assert not stream.silent(4.0)
    await trio.sleep(4.0)
    assert stream.silent(4.0)
