"""Talking at the terminal: messages and commands, one after the other, whatever becomes of each."""

from __future__ import annotations

import signal

import trio

from tessella.cli.dialogue import Dialogue
from tessella.cli.history import history_kept
from tessella.cli.signals import Interrupts
from tessella.cli.slash import Outcome, is_command, obey
from tessella.cli.terminal import read_line, terminal_restored
from tessella.cli.typed import ReadLine, read_message
from tessella.cli.voice import note
from tessella.core.errors import TessellaError
from tessella.ending import tell

PROGRAM = "tessella"


async def talk(dialogue: Dialogue, interrupts: Interrupts) -> None:
    """Hold a conversation at the terminal, which is left as it was."""
    with terminal_restored(), history_kept():
        await hold(dialogue, interrupts, read_line)


async def hold(dialogue: Dialogue, interrupts: Interrupts, lines: ReadLine) -> None:
    """Talk until the lines end. Ctrl-C stops an answer; twice in a row at the prompt it ends."""
    note("Ctrl-C stops an answer, Ctrl-D ends the conversation, /help lists commands")
    while True:
        message = await _read(interrupts, lines)
        if message is None:
            note("")
            return
        outcome = _outcome(dialogue, message)
        if outcome.ends:
            return
        if outcome.question.strip():
            await _answer_or_stop(dialogue, interrupts, outcome.question)


def _outcome(dialogue: Dialogue, message: str) -> Outcome:
    if not is_command(message):
        return Outcome(question=message)
    try:
        return obey(dialogue, message)
    except TessellaError as exc:
        tell(PROGRAM, exc)
        return Outcome()


async def _read(interrupts: Interrupts, lines: ReadLine) -> str | None:
    pressed = False

    def pressed_at_prompt() -> None:
        nonlocal pressed
        if pressed:
            interrupts.end(signal.SIGINT)
        else:
            note("\n(Ctrl-D, or Ctrl-C once more, ends)")
        pressed = True

    with interrupts.go_to(pressed_at_prompt):
        return await read_message(lines)


async def _answer_or_stop(dialogue: Dialogue, interrupts: Interrupts, question: str) -> None:
    """Answer one question; its errors are told, and end nothing but the answer."""
    try:
        with trio.CancelScope() as scope, interrupts.go_to(scope.cancel):
            dialogue.conclude(await dialogue.answer(question))
    except TessellaError as exc:
        tell(PROGRAM, exc)
    if scope.cancelled_caught:
        note("(stopped)")
