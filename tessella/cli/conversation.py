"""What has been said so far, as the requests that it becomes."""

from __future__ import annotations

from dataclasses import dataclass, field

from tessella.core.completions import ChatMessage, CompletionRequest
from tessella.core.errors import BadConfig
from tessella.core.ids import ModelId
from tessella.core.sampling import Sampling


@dataclass(slots=True, kw_only=True)
class Conversation:
    """A chat with its history, or (`raw`) texts to continue, each for itself."""

    sampling: Sampling = field(default_factory=Sampling)
    system: str = ""
    raw: bool = False
    turns: list[ChatMessage] = field(default_factory=list)
    """The user's and the assistant's, in turn."""

    def __post_init__(self) -> None:
        if self.raw and self.system:
            raise BadConfig("--raw sends the prompt as it is: --system has no place in it")

    def ask(self, text: str) -> None:
        """The user says something. Raises BadConfig if there is nothing in it."""
        if not text.strip():
            raise BadConfig("the prompt is empty")
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

    def request(self, model: ModelId) -> CompletionRequest:
        """The request for the next answer."""
        if self.raw:
            return CompletionRequest(
                model=model, prompt=self.turns[-1].content, sampling=self.sampling
            )
        system = (ChatMessage("system", self.system),) if self.system else ()
        return CompletionRequest(
            model=model, messages=(*system, *self.turns), sampling=self.sampling
        )
