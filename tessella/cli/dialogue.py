"""A conversation: ask, say the answer as it comes, keep what was said."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from tessella.cli.answer import Answer
from tessella.cli.asking import Asking
from tessella.cli.conversation import Conversation
from tessella.cli.render import chain_lines
from tessella.cli.session_file import save_session
from tessella.cli.voice import PlainVoice, Voice, note
from tessella.core.errors import ContextTooLong, TessellaError
from tessella.core.messages import Stage


@dataclass(slots=True)
class Dialogue:
    """Questions and answers of one conversation."""

    asking: Asking
    conversation: Conversation
    voice: Voice = field(default_factory=PlainVoice)
    file: Path | None = None
    """Where the conversation is kept after every answer, if anywhere."""
    timing: bool = False
    """Whether each answer is followed by its times and its chain."""
    chain: tuple[Stage, ...] = ()
    """That of the last answer."""

    async def answer(self, text: str) -> Answer:
        """The answer to one question, said as it comes. Raises what asking raises.

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
            self.voice.end()
            self.save()
        return answer

    async def _ask_until_it_fits(self, answer: Answer) -> None:
        while True:
            try:
                return await self.asking.ask(self.conversation.request, answer, self.voice.say)
            except TessellaError as exc:
                if exc.code != ContextTooLong.code or not self.conversation.forget_oldest():
                    raise
                note("the conversation does not fit the context: its oldest turn is dropped")

    def save(self) -> None:
        """Keep the conversation in its file, if it has one. Raises BadConfig."""
        if self.file is not None:
            save_session(self.file, self.conversation, self.asking.place)

    def conclude(self, answer: Answer) -> None:
        """Tell the answer's numbers, and the chain if it is another."""
        is_another, self.chain = answer.chain != self.chain, answer.chain
        tell_numbers(answer, chain=is_another, timing=self.timing)


def tell_numbers(answer: Answer, *, chain: bool, timing: bool) -> None:
    """What an answer took, on stderr; with `timing` also where the time went, and the chain."""
    if answer.chain and (chain or timing):
        note(chain_told(answer.chain))
    note(answer.summary())
    if timing:
        note(answer.timing())


def chain_told(chain: tuple[Stage, ...]) -> str:
    """A chain, a line a stage."""
    return "\n".join(["chain:", *chain_lines(chain)])
