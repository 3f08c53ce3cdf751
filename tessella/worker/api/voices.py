"""One answer as it is heard: its text and calls, the log-probabilities, its end."""

from __future__ import annotations

import secrets
from dataclasses import dataclass

from tessella.core.completions import CompletionRequest
from tessella.core.errors import LocalError
from tessella.core.messages import Alternative, Begun, Delta, Done
from tessella.core.tool_calls import Called, Said, ToolCallReader, ToolFormat

# As many random bits as OpenAI's have characters; a client refers to a call by it.
_CALL_BYTES = 12


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a function, with an id of its own."""

    index: int
    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Mark:
    """A token of the answer. `offset` is in characters of the text: where it was when it came."""

    token_id: int
    logprob: float
    top: tuple[Alternative, ...]
    offset: int


@dataclass(frozen=True, slots=True)
class Part:
    """What can be shown next."""

    text: str = ""
    calls: tuple[Call, ...] = ()
    marks: tuple[Mark, ...] = ()
    """The tokens since the part before."""


class Voice:
    """One choice. Fed with what the entry says, it gives what the client is told.

    A token need not make anything showable: its mark then waits for the part that is.
    """

    def __init__(self, reader: ToolCallReader | None, *, parallel: bool = True) -> None:
        self._reader = reader
        self._parallel = parallel
        self._marks: list[Mark] = []
        self._shown = 0
        self._called = False
        self.opened = False
        """Whether the first token came."""
        self._begun: Begun | None = None
        self._done: Done | None = None

    @property
    def begun(self) -> Begun:
        """How it began. Raises LocalError if it did not."""
        if self._begun is None:
            raise LocalError("an answer that did not begin")
        return self._begun

    @property
    def done(self) -> Done:
        """How it ended. Raises LocalError if it did not."""
        if self._done is None:
            raise LocalError("an answer that did not end")
        return self._done

    @property
    def reason(self) -> str:
        """Why it ended: stop, length or tool_calls."""
        return "tool_calls" if self._called and self.done.reason == "stop" else self.done.reason

    def begin(self, begun: Begun) -> None:
        """It begins, or begins anew."""
        self._begun = begun

    def hear(self, delta: Delta) -> Part | None:
        """A token came: what can be shown, if anything."""
        self.opened = True
        self._marks.append(Mark(delta.token_id, delta.logprob, delta.top, self._shown))
        if self._reader is not None:
            return self._part(self._reader.feed(delta.text))
        return self._part([Said(delta.text)] if delta.text else [])

    def end(self, done: Done) -> Part:
        """It ended: what was still held back."""
        self._done, self.opened = done, True
        left = self._reader.finish() if self._reader is not None else []
        return self._part(left) or Part(marks=self._taken())

    def _part(self, heard: list[Said | Called]) -> Part | None:
        text = "".join(each.text for each in heard if isinstance(each, Said))
        calls = tuple(
            Call(each.index, f"call_{secrets.token_hex(_CALL_BYTES)}", each.name, each.arguments)
            for each in heard
            if isinstance(each, Called) and (self._parallel or each.index == 0)
        )
        self._called = self._called or bool(calls)
        if not text and not calls:
            return None
        self._shown += len(text)
        return Part(text, calls, self._taken())

    def _taken(self) -> tuple[Mark, ...]:
        taken, self._marks = tuple(self._marks), []
        return taken


def voice_for(request: CompletionRequest, form: ToolFormat | None, parallel: bool) -> Voice:
    """A voice that reads calls of the request's functions; with no form, none."""
    if form is None:
        return Voice(None)
    names = [tool["function"]["name"] for tool in request.tools]
    return Voice(ToolCallReader(form, names), parallel=parallel)
