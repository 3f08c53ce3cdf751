"""The first stage, with a puppet for all the others."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from p2p import memory
from p2p.pool import StreamPool
from p2p.streams import FrameStream
from p2p.testing import MemoryHost, MemoryNetwork
from tessella.core.completions import CompletionRequest
from tessella.core.errors import ModelUnavailable, PeerReset, RemoteFailure
from tessella.core.identity import Identity
from tessella.core.ids import ModelId
from tessella.core.layers import LayerRange
from tessella.core.messages import (
    HOP,
    Alternative,
    Begun,
    Cancel,
    Delta,
    Done,
    End,
    Hidden,
    Open,
    Token,
)
from tessella.core.peers import PeerRow
from tessella.core.sampling import Sampling
from tessella.core.shapes import DType
from tessella.engine.device import Device
from tessella.engine.shard import Shard, load_shard
from tessella.engine.weights import open_checkpoint
from tessella.worker.counters import Counters
from tessella.worker.directory import Directory
from tessella.worker.entry import Entry
from tessella.worker.limits import DECLARED, InputLimits
from tessella.worker.prompts import Prompts
from tessella.worker.sessions import SessionLimits, Sessions
from tessella.worker.stage import Compute
from tessella.worker.terms import Served
from tessella.worker.tokens import TokenDesk

MODEL = ModelId("toy")
PROMPT = "a prompt of a few chunks"
Play = Callable[["Scene", FrameStream, Open], Awaitable[None]]


@dataclass
class Scene:
    net: MemoryNetwork
    ours: MemoryHost
    next: MemoryHost
    entry: Entry
    rows: list[PeerRow]
    blamed: list[tuple[str, str]]
    asked: list[str] = field(default_factory=list)
    said: list[Any] = field(default_factory=list)
    seen: list[Any] = field(default_factory=list)

    async def say(self, message: Any) -> None:
        self.said.append(message)

    async def answer(self, say: Any = None, **sampling: Any) -> None:
        chosen = Sampling(**{"max_tokens": 4, **sampling})
        request = CompletionRequest(model=MODEL, prompt=PROMPT, sampling=chosen)
        await self.entry.answer(request, say or self.say)


@pytest.fixture(scope="module")
def front_shard(toy_weights: Path) -> Shard:
    with closing(open_checkpoint(toy_weights)) as checkpoint:
        return load_shard(checkpoint, LayerRange(0, 3), device=Device.CPU, dtype=DType.F32)


@pytest.fixture
def scene(
    front_shard: Shard,
    toy_weights: Path,
    inline_compute: Compute,
    a_row: Callable[..., PeerRow],
    neighbourhood: Callable[..., Any],
) -> Callable[..., Any]:
    """An entry, and one peer behind it that does as it is told."""

    @asynccontextmanager
    async def opened(play: Play, shard: Shard = front_shard) -> AsyncIterator[Scene]:
        net = MemoryNetwork(latency=0.001)
        identity = Identity(b"a" * 32)
        async with net.host(identity) as ours, net.host(b"b" * 32) as after:
            rows = [
                a_row(ours.address, shard.layers),
                a_row(after.address, LayerRange(3, 6)),
            ]
            blamed: list[tuple[str, str]] = []
            asked: list[str] = []

            async def ask(model: ModelId) -> list[PeerRow]:
                asked.append(model)
                return list(rows)

            directory = Directory(ours, StreamPool(ours), MODEL, ask)
            limits = SessionLimits(9, shard.kv_bytes(256, shard.layers))
            entry = Entry(
                host=ours,
                served=Served(MODEL, "contract", 64, 2, shard),
                sessions=Sessions(shard, inline_compute, Counters(), limits),
                around=neighbourhood(directory, blamed),
                desk=TokenDesk(identity),
                prompts=Prompts(
                    open_checkpoint(toy_weights).tokenizer(),
                    shard.shape.vocab,
                    InputLimits(context_size=64, max_input_tokens=48, source=DECLARED),
                ),
                eos_ids=frozenset(),
                prefill_chunk=8,
            )
            s = Scene(net, ours, after, entry, rows, blamed, asked)

            async def serve(stream: FrameStream) -> None:
                while True:
                    session = await stream.receive()
                    s.seen.append(session)
                    await play(s, stream, session)

            after.serve(HOP, serve, streams=9, per_peer=9)
            yield s

    return opened


def token(opened: Open, position: int, token_id: int = 65, reason: str = "") -> Token:
    return Token(opened.session_id, 0, position, token_id, "A", reason, 0.0, ())


async def honest(s: Scene, stream: FrameStream, opened: Open) -> None:
    """Answer `A` until four are said."""
    count = 0
    while isinstance(message := await stream.receive(), Hidden):
        s.seen.append(message)
        if message.sample:
            count += 1
            upto = message.position + message.tensor.shape[0]
            await stream.send(token(opened, upto, reason="length" if count == 4 else ""))
    s.seen.append(message)


async def test_an_answer_is_begun_told_token_by_token_and_done(
    scene: Callable[..., Any], autojump_clock: MockClock
) -> None:
    async with scene(honest) as s:
        await s.answer()
        assert [type(message) for message in s.said] == [Begun, *[Delta] * 4, Done]
        assert (s.said[-1].reason, s.said[-1].completion_tokens) == ("length", 4)
        opened = s.seen[0]
        assert opened.capacity == len(PROMPT) + 4
        assert [m.position for m in s.seen if isinstance(m, Hidden)] == [0, 8, 16, 24, 25, 26]
        assert [m.sample for m in s.seen if isinstance(m, Hidden)] == [False] * 2 + [True] * 4
        await trio.sleep(0.1)
        assert isinstance(s.seen[-1], End)
        assert s.entry.around.counters.answers == 1


async def test_the_room_of_an_answer_is_free_before_it_is_done(
    scene: Callable[..., Any], autojump_clock: MockClock
) -> None:
    async with scene(honest) as s:
        held: list[int] = []

        async def say(message: Any) -> None:
            held.append(len(s.entry.sessions.leases()))

        await s.answer(say)
        assert held == [1] * 5 + [0]


async def test_a_chain_that_ends_with_the_answer_spoils_nothing(
    scene: Callable[..., Any], autojump_clock: MockClock
) -> None:
    async with scene(honest) as s:

        async def say(message: Any) -> None:
            s.said.append(message)
            if len(s.said) == 5:
                s.net.cut(s.ours.address.peer_id, s.next.address.peer_id)

        await s.answer(say)
        assert isinstance(s.said[-1], Done)
        assert s.blamed == []


@pytest.mark.parametrize(
    ("position", "token_id"),
    [(23, 65), (25, 65), (0, 65), (24, 260), (24, -1), (24, 10**9)],
)
async def test_a_token_that_cannot_be_is_the_chains_fault_not_the_clients(
    scene: Callable[..., Any], autojump_clock: MockClock, position: int, token_id: int
) -> None:
    async def lie(s: Scene, stream: FrameStream, opened: Open) -> None:
        await stream.send(token(opened, position, token_id))
        while not isinstance(await stream.receive(), Cancel):
            pass
        s.seen.append("cancelled")

    async with scene(lie) as s:
        with pytest.raises(RemoteFailure, match="the tail answered") as caught:
            await s.answer()
        assert (caught.value.code, caught.value.retry) == ("out_of_turn", True)
        assert s.entry.sessions.leases() == []
        await trio.sleep(0.1)
        assert s.seen[-1] == "cancelled"


@pytest.mark.parametrize(
    "change",
    [{"reason": "because"}, {"top": (Alternative(-1, 0.0),)}, {"top": (Alternative(260, 0.0),)}],
    ids=repr,
)
async def test_what_no_tail_says_is_not_passed_on(
    scene: Callable[..., Any], autojump_clock: MockClock, change: dict[str, Any]
) -> None:
    async def lie(s: Scene, stream: FrameStream, opened: Open) -> None:
        await stream.send(replace(token(opened, 24), **change))
        while not isinstance(await stream.receive(), Cancel):
            pass

    async with scene(lie) as s:
        with pytest.raises(RemoteFailure, match="the tail answered"):
            await s.answer()


async def test_an_answer_without_end_is_the_chains_fault(
    scene: Callable[..., Any], autojump_clock: MockClock
) -> None:
    async def endless(s: Scene, stream: FrameStream, opened: Open) -> None:
        while isinstance(message := await stream.receive(), Hidden):
            if message.sample:
                await stream.send(token(opened, message.position + message.tensor.shape[0]))

    async with scene(endless) as s:
        with pytest.raises(RemoteFailure, match="the tail answered"):
            await s.answer()
        assert sum(isinstance(message, Delta) for message in s.said) == 3


async def test_a_token_twice_is_blamed_on_the_chain(
    scene: Callable[..., Any], autojump_clock: MockClock
) -> None:
    async def twice(s: Scene, stream: FrameStream, opened: Open) -> None:
        await stream.send(token(opened, 24))
        await stream.send(token(opened, 24))
        await stream.receive()

    async with scene(twice) as s:
        s.entry.sessions._compute.pace = 1.0
        with pytest.raises(RemoteFailure, match="position 24 after 24") as caught:
            await s.answer()
        assert caught.value.retry
        assert s.blamed == [(s.next.address.peer_id, "out_of_turn")]


async def test_a_client_that_leaves_during_the_prefill_is_not_a_failure_of_a_stage(
    scene: Callable[..., Any], autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def deaf(s: Scene, stream: FrameStream, opened: Open) -> None:
        await trio.sleep_forever()

    monkeypatch.setattr(memory, "WINDOW_BYTES", 1024)
    async with scene(deaf) as s:

        async def say(message: Any) -> None:
            if not isinstance(message, Begun):
                raise PeerReset("the client left")

        with pytest.raises(PeerReset, match="the client left"):
            await s.answer(say)
        assert s.blamed == []


async def test_a_client_that_reads_nothing_holds_a_cancelled_answer_for_seconds_only(
    scene: Callable[..., Any], autojump_clock: MockClock
) -> None:
    async def silent(s: Scene, stream: FrameStream, opened: Open) -> None:
        await trio.sleep_forever()

    async with scene(silent) as s:

        async def say(message: Any) -> None:
            if not isinstance(message, Begun):
                await trio.sleep_forever()

        with trio.fail_after(10.0):
            with trio.move_on_after(1.5):
                await s.answer(say)
        assert s.entry.sessions.leases() == []


async def test_after_a_failure_the_next_request_asks_who_serves(
    scene: Callable[..., Any], autojump_clock: MockClock
) -> None:
    async def die(s: Scene, stream: FrameStream, opened: Open) -> None:
        s.net.cut(s.ours.address.peer_id, s.next.address.peer_id)
        await trio.sleep_forever()

    async with scene(die) as s:
        with pytest.raises(PeerReset):
            await s.answer()
        s.rows.pop()
        with pytest.raises(ModelUnavailable, match="3:6"):
            await s.answer()
        assert len(s.asked) == 2


@pytest.mark.parametrize("changes", [{"contract": "other"}, {"status": "Paused"}])
async def test_a_node_that_does_not_fit_is_not_routed_through(
    scene: Callable[..., Any], autojump_clock: MockClock, changes: dict[str, str]
) -> None:
    async with scene(honest) as s:
        s.rows[1] = replace(s.rows[1], **changes)
        with pytest.raises(ModelUnavailable, match="3:6"):
            await s.answer()
        assert s.seen == []


async def test_an_entry_alone_answers_without_a_hop(
    scene: Callable[..., Any], toy_shard: Shard, autojump_clock: MockClock
) -> None:
    async with scene(honest, toy_shard) as s:
        await s.answer(ignore_eos=True)
        assert [type(message) for message in s.said] == [Begun, *[Delta] * 4, Done]
        assert s.seen == []
