"""What is said to whom in one run of `tessella chat`, and how it is shown."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from tessella.cli.asking import Asking, open_asking
from tessella.cli.conversation import Conversation, new_session
from tessella.cli.dialogue import Dialogue
from tessella.cli.discovery import Way
from tessella.cli.session_file import Saved, load_session
from tessella.cli.signals import Interrupts, run_command
from tessella.cli.talk import talk
from tessella.cli.terminal import is_interactive, read_piped
from tessella.cli.voice import PlainVoice, SilentVoice, Voice, note
from tessella.core.errors import BadConfig
from tessella.core.sampling import Sampling
from tessella.tables import console


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatPlan:
    """What flags ask for. Raises BadConfig for what does not go together."""

    way: Way
    sampling: Sampling
    system: str = ""
    raw: bool = False
    """Whether texts are continued, without a chat template."""
    prompt: str | None = None
    """None: what is piped in, or typed."""
    interactive: bool = False
    """Whether a conversation follows the prompt."""
    file: Path | None = None
    """Where the conversation is kept."""
    markdown: bool | None = None
    """None draws answers in a conversation at a terminal."""
    timing: bool = False
    as_json: bool = False

    def __post_init__(self) -> None:
        if self.as_json and self.interactive:
            raise BadConfig("--json answers one prompt: not with --interactive")
        if self.raw and self.file is not None:
            raise BadConfig("--session-file keeps a chat: not with --mode raw")

    @property
    def is_only_a_gap(self) -> bool:
        """Whether nothing is asked but what both kinds of request have."""
        asks = self.prompt is not None or self.interactive or self.raw
        return not (asks or self.system or self.file)


def run_chat(plan: ChatPlan) -> None:
    """Answer a prompt, or hold a conversation, or the one after the other."""
    saved = load_session(plan.file) if plan.file is not None else None
    prompt, talks = plan.prompt, plan.interactive
    if prompt is None and not talks:
        talks = is_interactive() and not plan.as_json
        prompt = None if talks else read_piped()
    conversation = begun(plan, saved, talks=talks)

    async def main(interrupts: Interrupts) -> None:
        async with open_asking(plan.way, saved.place if saved is not None else None) as asking:
            dialogue = dialogue_of(plan, asking, conversation, talks=talks)
            # Before anything is asked: a file that cannot be written is told at once.
            dialogue.save()
            if prompt is not None:
                await answer_once(dialogue, prompt, as_json=plan.as_json)
            if talks:
                if saved is not None:
                    note(f"(going on with {len(saved.turns) // 2} questions of {plan.file})")
                await talk(dialogue, interrupts)

    run_command(main)


def begun(plan: ChatPlan, saved: Saved | None, *, talks: bool) -> Conversation:
    """The conversation as it stands before the first question of this run.

    It has a session wherever somebody will come back to it.
    """
    conversation = Conversation(sampling=plan.sampling, system=plan.system, raw=plan.raw)
    if saved is not None:
        conversation.session = saved.session
        conversation.turns = list(saved.turns)
        conversation.instruct(plan.system or saved.system)
    elif plan.file is not None or (talks and not plan.raw):
        conversation.session = new_session()
    return conversation


def dialogue_of(
    plan: ChatPlan, asking: Asking, conversation: Conversation, *, talks: bool
) -> Dialogue:
    """The conversation with its voice."""
    draws = plan.markdown
    if draws is None:
        draws = talks and not plan.raw and _can_draw()
    voice = voice_of(draws, plan.as_json)
    return Dialogue(
        asking,
        conversation,
        voice=voice,
        file=plan.file,
        timing=plan.timing,
    )


def voice_of(markdown: bool, as_json: bool) -> Voice:
    """How answers are heard."""
    if as_json:
        return SilentVoice()
    if not markdown:
        return PlainVoice()
    # With what highlights code it takes a while to import.
    from tessella.cli.markdown import MarkdownVoice

    return MarkdownVoice(console(sys.stdout))


async def answer_once(dialogue: Dialogue, prompt: str, *, as_json: bool) -> None:
    """Answer one question on stdout: its text as it comes, or one line of JSON at its end."""
    if as_json:
        dialogue.voice = SilentVoice()
    answer = await dialogue.answer(prompt)
    dialogue.conclude(answer)
    if as_json:
        print(json.dumps(answer.document(), ensure_ascii=False), flush=True)


def _can_draw() -> bool:
    return sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"
