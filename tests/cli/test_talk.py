"""Talking at the terminal: what is typed, what comes back, and what interrupts it."""

from __future__ import annotations

import signal

import pytest
import trio
from trio.testing import MockClock

from tessella.cli.signals import Interrupts
from tessella.cli.talk import hold
from tessella.core.messages import Fail
from tessella.ending import EndedBySignal
from tests.cli.scripted import lines, open_node


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


async def test_commands_are_obeyed_and_not_asked(
    capsys: pytest.CaptureFixture[str], autojump_clock: MockClock
) -> None:
    async with open_node() as node:
        node.reply = lambda _: node.says("blue")
        dialogue = node.dialogue()
        typed = lines("the sky?", "/set temperature 1", "/retry", "/undoo", " /etc?", "/quit")
        await hold(dialogue, Interrupts(), typed)
    assert [len(request.messages) for request in node.requests] == [1, 1, 3]
    seeds = [request.sampling.seed for request in node.requests]
    assert seeds[0] != seeds[1]
    assert [request.sampling.temperature for request in node.requests] == [0.0, 1.0, 1.0]
    assert node.requests[2].messages[-1].content == " /etc?"
    assert "bad_config: no command '/undoo'; the nearest is /undo" in capsys.readouterr().err
