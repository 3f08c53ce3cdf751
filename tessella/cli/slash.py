"""Commands in a conversation: a line that begins with a slash.

What is no command is named with the nearest that is one. A space before the slash makes it text.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from tessella.cli.dialogue import Dialogue, chain_told
from tessella.cli.session_file import load_session, save_session
from tessella.cli.voice import note
from tessella.core.errors import BadConfig
from tessella.core.sampling import Sampling

SETTABLE = (
    *("temperature", "max_tokens", "top_p", "top_k", "min_p", "seed", "stop"),
    *("repetition_penalty", "presence_penalty", "frequency_penalty"),
)
NOTHING = "-"
"""Takes a setting back that is a text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a line comes to."""

    question: str = ""
    """What is asked, if anything."""
    ends: bool = False
    """Whether the conversation is over."""


@dataclass(frozen=True, slots=True)
class Command:
    """One command."""

    usage: str
    help: str
    run: Callable[[Dialogue, str], Outcome | None]


def is_command(message: str) -> bool:
    """Whether a message is for us, and not for the model."""
    return message.startswith("/")


def obey(dialogue: Dialogue, line: str) -> Outcome:
    """Do what a command says. Raises BadConfig for one not known, or that cannot be done."""
    name, _, rest = line.strip().partition(" ")
    command = COMMANDS.get(ALIASES.get(name, name))
    if command is None:
        near = _nearest(name, COMMANDS)
        raise BadConfig(f"no command {name!r:.40}; the nearest is {near}, and /help lists all")
    return command.run(dialogue, rest.strip()) or Outcome()


def _nearest(name: str, known: Iterable[str]) -> str:
    return difflib.get_close_matches(name, known, n=1, cutoff=0.0)[0]


def _help(_: Dialogue, __: str) -> None:
    width = max(len(command.usage) for command in COMMANDS.values())
    for command in COMMANDS.values():
        note(f"{command.usage:<{width}}  {command.help}")
    note('a \\ at the end of a line, or """ around several, makes one message of them')


def _clear(dialogue: Dialogue, _: str) -> None:
    dialogue.conversation.clear()
    dialogue.save()
    note("(a new conversation)")


def _system(dialogue: Dialogue, text: str) -> None:
    conversation = dialogue.conversation
    if text:
        conversation.instruct("" if text == NOTHING else text)
        dialogue.save()
    note(f"system: {conversation.system}" if conversation.system else "no system message")


def _model(dialogue: Dialogue, name: str) -> None:
    asking = dialogue.asking
    if name:
        asking.choose(name)
    place = asking.place
    told = asking.way.model or (place.model if place is not None else "")
    note(f"model: {told}" if told else "no model was asked yet")


def _set(dialogue: Dialogue, text: str) -> None:
    name, _, value = text.partition(" ")
    conversation = dialogue.conversation
    if name:
        conversation.sampling = changed(conversation.sampling, name, value.strip())
    for each in [name] if name else SETTABLE:
        note(f"{each} = {getattr(conversation.sampling, each)}")


def changed(sampling: Sampling, name: str, text: str) -> Sampling:
    """Sampling with one value set from text. Raises BadConfig, or BadRequest from its rules."""
    if name not in SETTABLE:
        raise BadConfig(f"no setting {name!r:.40}; the nearest is {_nearest(name, SETTABLE)}")
    if not text:
        return sampling
    if name == "stop":
        return replace(sampling, stop=() if text == NOTHING else (text,))
    kind = type(getattr(Sampling(), name))
    try:
        value = kind(text)
    except ValueError:
        wanted = "a whole number" if kind is int else "a number"
        raise BadConfig(f"{name} must be {wanted}, not {text!r:.40}") from None
    return replace(sampling, **{name: value})


def _undo(dialogue: Dialogue, _: str) -> None:
    dialogue.conversation.undo()
    dialogue.save()
    note("(the last question and its answer are taken back)")


def _retry(dialogue: Dialogue, _: str) -> Outcome:
    question = dialogue.conversation.undo()
    # With the seed of before the answer would be the same.
    dialogue.conversation.reseed()
    return Outcome(question=question)


def _save(dialogue: Dialogue, name: str) -> None:
    if not name:
        raise BadConfig("/save FILE: which file?")
    path = Path(name).expanduser()
    if dialogue.conversation.raw:
        raise BadConfig("what was not said in a chat is not saved")
    # Whatever else is in a file is not written over.
    load_session(path)
    save_session(path, dialogue.conversation, dialogue.asking.place)
    note(f"saved; `tessella chat --session-file {path}` goes on with it")


def _timing(dialogue: Dialogue, _: str) -> None:
    dialogue.timing = not dialogue.timing
    note(f"times are {'told' if dialogue.timing else 'not told'}")


def _chain(dialogue: Dialogue, _: str) -> None:
    note(chain_told(dialogue.chain) if dialogue.chain else "no answer yet, or no chain in it")


def _quit(_: Dialogue, __: str) -> Outcome:
    return Outcome(ends=True)


COMMANDS: dict[str, Command] = {
    command.usage.partition(" ")[0]: command
    for command in (
        Command("/help", "this list", _help),
        Command("/clear", "forget what was said", _clear),
        Command("/system [TEXT]", "set the system message, - for none, or show it", _system),
        Command("/model [NAME]", "ask another model from here on, or show which", _model),
        Command("/set [NAME [VALUE]]", "set temperature, max_tokens, ..., or show them", _set),
        Command("/undo", "take the last question and its answer back", _undo),
        Command("/retry", "ask the last question again, with another seed", _retry),
        Command("/save FILE", "write the conversation to a session file", _save),
        Command("/timing", "tell where the time goes, or stop telling", _timing),
        Command("/chain", "show which nodes answered", _chain),
        Command("/quit", "end the conversation", _quit),
    )
}
ALIASES = {"/exit": "/quit", "/bye": "/quit", "/?": "/help"}
"""What other programs call them."""
