"""A conversation with a node that says what the test wants, on the memory network."""

from __future__ import annotations

import json
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from p2p.streams import FrameStream
from p2p.testing import MemoryHost, MemoryNetwork
from tessella.cli.chat import answer_once
from tessella.cli.conversation import Conversation
from tessella.cli.dialogue import Dialogue, hold
from tessella.cli.discovery import Way
from tessella.cli.signals import Interrupts
from tessella.core.completions import CompletionRequest
from tessella.core.errors import PeerGone, RemoteFailure
from tessella.core.ids import ModelId
from tessella.core.layers import LayerRange
from tessella.core.messages import (
    COMPLETE,
    STATUS,
    TRACKER,
    Begun,
    Delta,
    Done,
    Fail,
    Message,
    Peers,
    Stage,
    Status,
)
from tessella.core.peers import PeerRow, encode_rows
from tessella.ending import EndedBySignal

TOY = ModelId("toy")
LAYERS = LayerRange(0, 2)
TOO_LONG = Fail(
    "context_length_exceeded", "the prompt is 9 tokens, this node's context is 8", False
)


@dataclass
class Node:
    """A musivum and the one node that it lists."""

    host: MemoryHost
    client: MemoryHost
    requests: list[CompletionRequest] = field(default_factory=list)
    left: int = 0
    """Clients that went before their answer was complete."""
    reply: Callable[[CompletionRequest], list[Message]] = lambda _: []

    def serve(self) -> None:
        for protocol, handler in (
            (COMPLETE, self._complete),
            (TRACKER, self._list),
            (STATUS, self._status),
        ):
            self.host.serve(protocol, handler, streams=8, per_peer=8)

    async def _complete(self, stream: FrameStream) -> None:
        request = CompletionRequest.decode((await stream.receive()).request)
        self.requests.append(request)
        try:
            for message in self.reply(request):
                await stream.send(message)
                await trio.sleep(1)
        except PeerGone:
            self.left += 1

    async def _list(self, stream: FrameStream) -> None:
        await stream.receive()
        row = PeerRow(
            peer_id=self.host.address.peer_id,
            model=TOY,
            contract="",
            layers=LAYERS,
            total_layers=2,
            status="Healthy",
            addrs=self.host.address.addrs,
            device="cpu",
            dtype="f32",
            queue_depth=0,
            step_ms=0.0,
        )
        await stream.send(Peers(encode_rows([row])))

    async def _status(self, stream: FrameStream) -> None:
        await stream.receive()
        await stream.send(Status(json.dumps({"model": TOY}).encode()))

    def says(self, *pieces: str) -> list[Message]:
        chain = (Stage(self.host.address.peer_id, LAYERS),)
        return [
            Begun("request", TOY, 5, 0, chain),
            *(Delta(piece, 7, -0.5, ()) for piece in pieces),
            Done("stop", len(pieces), 0.1, 0.5, 0.2, 1.5),
        ]

    def dialogue(self, **conversation: Any) -> Dialogue:
        way = Way(musivum=self.host.address)
        return Dialogue(self.client, way, Conversation(**conversation))


@asynccontextmanager
async def open_node() -> AsyncIterator[Node]:
    net = MemoryNetwork(latency=0.01)
    async with net.host(bytes([1]) * 32) as host, net.host(bytes([2]) * 32) as client:
        node = Node(host, client)
        node.serve()
        yield node


async def test_one_prompt_is_answered_on_stdout(
    capsys: pytest.CaptureFixture[str], autojump_clock: MockClock
) -> None:
    async with open_node() as node:
        node.reply = lambda _: node.says("Par", "is", "")
        await answer_once(node.dialogue(), "capital?", as_json=False)
    shown = capsys.readouterr()
    assert shown.out == "Paris\n"
    assert f"layers 0:2      {node.host.address.peer_id}" in shown.err
    assert "3 tokens, 2.0 tok/s, first after 500 ms (stop)" in shown.err


async def test_json_is_exactly_one_line(
    capsys: pytest.CaptureFixture[str], autojump_clock: MockClock
) -> None:
    async with open_node() as node:
        node.reply = lambda _: node.says("Par\n", "汉")
        await answer_once(node.dialogue(), "capital?", as_json=True)
    (line,) = capsys.readouterr().out.splitlines()
    assert json.loads(line) == {
        "text": "Par\n汉",
        "model": "toy",
        "prompt_tokens": 5,
        "completion_tokens": 2,
        "finish_reason": "stop",
        "tok_s": 1.0,
        "ttft_ms": 500.0,
        "chain": [{"peer_id": node.host.address.peer_id, "layer_range": [0, 2]}],
    }


async def test_a_peer_is_asked_for_the_name_of_its_model(autojump_clock: MockClock) -> None:
    async with open_node() as node:
        node.reply = lambda _: node.says("yes")
        dialogue = Dialogue(node.client, Way(peer=node.host.address), Conversation())
        await dialogue.answer("there?")
    assert node.requests[0].model == TOY


async def test_a_second_question_carries_the_first_and_its_answer(
    autojump_clock: MockClock,
) -> None:
    async with open_node() as node:
        node.reply = lambda _: node.says("blue")
        dialogue = node.dialogue(system="be brief")
        await dialogue.answer("the sky?")
        await dialogue.answer("the sea?")
    assert [(one.role, one.content) for one in node.requests[1].messages] == [
        ("system", "be brief"),
        ("user", "the sky?"),
        ("assistant", "blue"),
        ("user", "the sea?"),
    ]


async def test_beyond_the_context_the_oldest_turns_go_and_it_is_said(
    capsys: pytest.CaptureFixture[str], autojump_clock: MockClock
) -> None:
    async with open_node() as node:
        node.reply = lambda request: [TOO_LONG] if len(request.messages) > 3 else node.says("yes")
        dialogue = node.dialogue()
        for text in ("1?", "2?", "3?"):
            await dialogue.answer(text)
    assert [len(request.messages) for request in node.requests] == [1, 3, 5, 3]
    assert capsys.readouterr().err.count("its oldest turn is dropped") == 1


async def test_a_question_longer_than_the_context_is_refused_and_forgotten(
    autojump_clock: MockClock,
) -> None:
    async with open_node() as node:
        node.reply = lambda request: (
            [TOO_LONG] if "long" in request.messages[-1].content else node.says("yes")
        )
        dialogue = node.dialogue()
        with pytest.raises(RemoteFailure, match="9 tokens"):
            await dialogue.answer("a long one?")
        await dialogue.answer("a short one?")
    assert [one.content for one in node.requests[-1].messages] == ["a short one?"]


def lines(*typed: str | None, pause: float = 0.0) -> Callable[[], Any]:
    waiting = list(typed)

    async def read() -> str | None:
        await trio.sleep(pause)
        return waiting.pop(0)

    return read


async def test_a_conversation_goes_on_after_an_error(
    capsys: pytest.CaptureFixture[str], autojump_clock: MockClock
) -> None:
    async with open_node() as node:
        replies = [[Fail("busy", "full", True)]]
        node.reply = lambda _: replies.pop() if replies else node.says("here")
        await hold(node.dialogue(), Interrupts(), lines("a?", " ", "b?", None))
    shown = capsys.readouterr()
    assert shown.out == "here\n"
    assert "tessella: busy: full" in shown.err


async def test_an_interrupt_stops_the_answer_and_nothing_else(
    capsys: pytest.CaptureFixture[str], autojump_clock: MockClock
) -> None:
    interrupts = Interrupts()

    async def press() -> None:
        await trio.sleep(2.5)
        signal.raise_signal(signal.SIGINT)

    async def main(running: Interrupts) -> None:
        async with open_node() as node, trio.open_nursery() as nursery:
            node.reply = lambda _: node.says(*["word "] * 100)
            nursery.start_soon(press)
            dialogue = node.dialogue()
            await hold(dialogue, running, lines("go on", None))
            await trio.sleep(2)
            assert node.left == 1
            assert [one.role for one in dialogue.conversation.turns] == ["user", "assistant"]

    await interrupts.run(main)
    shown = capsys.readouterr()
    assert 0 < shown.out.count("word") < 10
    assert "(stopped)" in shown.err
    assert trio.current_time() < 10


async def test_at_the_prompt_a_second_interrupt_ends(
    capsys: pytest.CaptureFixture[str], autojump_clock: MockClock
) -> None:
    async def main(interrupts: Interrupts) -> None:
        async with open_node() as node, trio.open_nursery() as nursery:

            async def press_twice() -> None:
                for _ in range(2):
                    await trio.sleep(1)
                    signal.raise_signal(signal.SIGINT)

            nursery.start_soon(press_twice)
            await hold(node.dialogue(), interrupts, lines(None, pause=1000))

    with pytest.raises(EndedBySignal):
        await Interrupts().run(main)
    assert "once more" in capsys.readouterr().err
    assert trio.current_time() < 10
