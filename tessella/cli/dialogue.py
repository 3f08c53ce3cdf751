"""A conversation at the terminal: ask, stream the answer, keep the history, go on after errors."""

from __future__ import annotations

import signal
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import trio

from p2p.peers import Host
from tessella.cli.answer import Answer, ask
from tessella.cli.conversation import Conversation
from tessella.cli.discovery import Way, find_door
from tessella.cli.render import chain_lines
from tessella.cli.signals import Interrupts
from tessella.core.errors import ContextTooLong, TessellaError
from tessella.core.messages import Stage
from tessella.core.text import printable
from tessella.ending import tell

PROGRAM = "tessella"

ReadLine = Callable[[], Awaitable[str | None]]


def note(text: str) -> None:
    """A line of the story, on stderr."""
    print(text, file=sys.stderr, flush=True)


def write(text: str) -> None:
    """A piece of the answer, on stdout: as it came, or fit for the eyes if it is a terminal."""
    print(printable(text) if sys.stdout.isatty() else text, end="", flush=True)


@dataclass(slots=True)
class Dialogue:
    """Questions and answers through one host. Every question finds its node anew."""

    host: Host
    way: Way
    conversation: Conversation
    say: Callable[[str], None] = write
    _chain: tuple[Stage, ...] = field(default=())

    async def answer(self, text: str) -> Answer:
        """The answer to one question, streamed through `say`. Raises what asking raises.

        Where the conversation does not fit the context, its oldest turns are dropped until it
        does, and a line says so.
        """
        self.conversation.ask(text)
        answer = Answer()
        try:
            await self._ask_until_it_fits(answer)
        finally:
            # Also of an answer that broke off: what was said is part of the conversation.
            self.conversation.answered(answer.text)
        return answer

    async def _ask_until_it_fits(self, answer: Answer) -> None:
        while True:
            door = await find_door(self.host, self.way)
            request = self.conversation.request(door.model)
            try:
                return await ask(self.host, door, request, answer, self.say)
            except TessellaError as exc:
                if exc.code != ContextTooLong.code or not self.conversation.forget_oldest():
                    raise
                note("the conversation does not fit the context: its oldest turn is dropped")

    def conclude(self, answer: Answer) -> None:
        """End the answer's last line and tell its numbers, and the chain if it is another."""
        if answer.text and not answer.text.endswith("\n"):
            self.say("\n")
        if answer.chain != self._chain:
            note("\n".join(["chain:", *chain_lines(answer.chain)]))
            self._chain = answer.chain
        note(answer.summary())


async def hold(dialogue: Dialogue, interrupts: Interrupts, read_line: ReadLine) -> None:
    """Talk until the line ends. Ctrl-C stops an answer; twice in a row at the prompt it ends."""
    note("Ctrl-C stops an answer, Ctrl-D ends the conversation")
    while True:
        line = await _read(interrupts, read_line)
        if line is None:
            note("")
            return
        if line.strip():
            await _answer_or_stop(dialogue, interrupts, line)


async def _read(interrupts: Interrupts, read_line: ReadLine) -> str | None:
    pressed = False

    def pressed_at_prompt() -> None:
        nonlocal pressed
        if pressed:
            interrupts.end(signal.SIGINT)
        else:
            note("\n(Ctrl-D, or Ctrl-C once more, ends)")
        pressed = True

    with interrupts.go_to(pressed_at_prompt):
        return await read_line()


async def _answer_or_stop(dialogue: Dialogue, interrupts: Interrupts, line: str) -> None:
    """Answer one line; its errors are told, and end nothing but the answer."""
    try:
        with trio.CancelScope() as scope, interrupts.go_to(scope.cancel):
            dialogue.conclude(await dialogue.answer(line))
    except TessellaError as exc:
        note("")
        tell(PROGRAM, exc)
    if scope.cancelled_caught:
        note("\n(stopped)")
