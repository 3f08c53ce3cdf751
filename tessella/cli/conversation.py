"""What has been said so far, as the requests that it becomes."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field, replace

from tessella.cli.options import SEED_BITS
from tessella.core.completions import ChatMessage, CompletionRequest, Fill
from tessella.core.errors import BadConfig
from tessella.core.ids import ModelId
from tessella.core.sampling import Sampling

SESSION_BYTES = 16
"""Of a session's name, which is a secret: who knows it may go on with the session."""


def new_session() -> str:
    """A name that nobody guesses."""
    return secrets.token_hex(SESSION_BYTES)


def check_utf8(what: str, text: str) -> None:
    """Raise BadConfig for what cannot be sent: Python keeps bytes that it cannot read, as such."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise BadConfig(f"{what} is not UTF-8") from None


@dataclass(slots=True, kw_only=True)
class Conversation:
    """A chat with its history, or (`raw`) texts to continue, each for itself."""

    sampling: Sampling = field(default_factory=Sampling)
    system: str = ""
    raw: bool = False
    turns: list[ChatMessage] = field(default_factory=list)
    """The user's and the assistant's, in turn."""
    session: str = ""
    """The name under which nodes keep what they computed; empty if nobody will come back."""

    def __post_init__(self) -> None:
        self.instruct(self.system)

    def instruct(self, system: str) -> None:
        """Set the system message; empty removes it. Raises BadConfig where none has a place."""
        if self.raw and system:
            raise BadConfig("--raw sends the prompt as it is: --system has no place in it")
        check_utf8("the system message", system)
        self.system = system

    def ask(self, text: str) -> None:
        """The user says something. Raises BadConfig if there is nothing in it."""
        if not text.strip():
            raise BadConfig("the prompt is empty")
        check_utf8("the prompt", text)
        if self.raw:
            self.turns.clear()
        self.turns.append(ChatMessage("user", text))

    def answered(self, text: str) -> None:
        """The assistant's answer, or the part of it that was wanted; without any, no question."""
        if text:
            self.turns.append(ChatMessage("assistant", text))
        else:
            self.take_back()

    def take_back(self) -> None:
        """Forget the question that got no answer."""
        self.turns.pop()

    def forget_oldest(self) -> bool:
        """Drop the oldest question and its answer; False if only the last question is left."""
        if len(self.turns) < 3:
            return False
        del self.turns[:2]
        return True

    def clear(self) -> None:
        """Begin anew, with the same system message."""
        self.turns.clear()
        if self.session:
            self.session = new_session()

    def undo(self) -> str:
        """Take the last question back, with its answer; the question.

        Raises BadConfig if there is none.
        """
        if len(self.turns) < 2:
            raise BadConfig("nothing was said yet")
        question = self.turns[-2].content
        del self.turns[-2:]
        return question

    def reseed(self) -> None:
        """Draw another seed, so that the same question may get another answer."""
        self.sampling = replace(self.sampling, seed=secrets.randbits(SEED_BITS))

    def request(self, model: ModelId) -> CompletionRequest:
        """The request for the next answer."""
        if self.raw:
            return CompletionRequest(
                model=model, prompt=self.turns[-1].content, sampling=self.sampling
            )
        system = (ChatMessage("system", self.system),) if self.system else ()
        return CompletionRequest(
            model=model,
            messages=(*system, *self.turns),
            session=self.session,
            sampling=self.sampling,
        )


def request_to_fill(model: ModelId, fill: Fill, sampling: Sampling) -> CompletionRequest:
    """The request for the text between two others.

    Raises BadRequest if both are empty, BadConfig if they are not UTF-8.
    """
    check_utf8("the prefix", fill.prefix)
    check_utf8("the suffix", fill.suffix)
    return CompletionRequest(model=model, fill=fill, sampling=sampling)
