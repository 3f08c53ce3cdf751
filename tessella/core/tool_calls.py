"""Calls of tools as models write them into their answers, and how they are read out of a stream."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from enum import Enum, auto

# Characters. Longer than any call of use; a text that goes on beyond it is given back as content.
MAX_CALL_CHARS = 256 * 1024
# Blank characters in front of what may be a call; a longer run belongs to the text.
MAX_HELD_SPACE = 64


class ToolFormat(Enum):
    """How a family of models writes a call. The value is the text that opens one."""

    HERMES = "<tool_call>"
    """`<tool_call>{"name": …, "arguments": {…}}</tool_call>`, once for each call."""
    LLAMA = "<|python_tag|>"
    """`{"name": …, "parameters": {…}}` as the whole answer, or after the tag."""
    MISTRAL = "[TOOL_CALLS]"
    """`[TOOL_CALLS][{"name": …, "arguments": {…}}, …]`."""

    @property
    def markers(self) -> tuple[str, ...]:
        """The texts around a call: where they are tokens, an answer has to show them."""
        return (self.value, _CLOSING) if self is ToolFormat.HERMES else (self.value,)


_CLOSING = "</tool_call>"
# Formats that share a marker with ours, and write something else than JSON behind it.
_OTHERS = ("<function=", "<arg_key>", "[ARGS]")
_LLAMA_EXAMPLE = re.compile(r'"name":[^\n]{0,60}"parameters":')


def format_of(template: str) -> ToolFormat | None:
    """The format that a chat template teaches or shows; None if it is none of ours."""
    if any(other in template for other in _OTHERS):
        return None
    for known in (ToolFormat.HERMES, ToolFormat.MISTRAL):
        if known.value in template:
            return known
    if ToolFormat.LLAMA.value in template or _LLAMA_EXAMPLE.search(template):
        return ToolFormat.LLAMA
    return None


@dataclass(frozen=True, slots=True)
class Said:
    """A piece of the answer's text; not empty."""

    text: str


@dataclass(frozen=True, slots=True)
class Called:
    """A call: which one of the answer, from 0, whose, and a JSON object as compact text."""

    index: int
    name: str
    arguments: str


class ToolCallReader:
    """Takes calls out of an answer that comes in pieces. No cut between pieces changes the result.

    What cannot be a call is passed on at once. What began like one and is none comes back as text,
    in its place. Blank space, separators and markers around calls are not text.
    """

    def __init__(self, format: ToolFormat, names: Collection[str] = ()) -> None:  # noqa: A002
        """With `names`, only these are called; anything else that looks like a call is text."""
        self._format = format
        self._names = frozenset(names)
        self._state: Callable[[str], None] = self._search
        # Before the first word of an answer a Llama needs no marker.
        self._bare = format is ToolFormat.LLAMA
        self._space = self._marker = self._behind = ""
        self._call: list[str] = []
        self._json: list[str] = []
        self._braces = _Braces()
        self._listed = self._called = False
        self._index = 0
        self._said: list[str] = []
        self._out: list[Said | Called] = []

    def feed(self, text: str) -> list[Said | Called]:
        """What is certain after this piece."""
        for char in text:
            self._state(char)
        return self._take()

    def finish(self) -> list[Said | Called]:
        """What is left when the answer has ended. Nothing may be fed afterwards."""
        if self._marker or not self._called:
            self._say(self._space + self._marker)
        self._give_back()
        self._space = self._marker = self._behind = ""
        return self._take()

    def _take(self) -> list[Said | Called]:
        self._end_text()
        taken, self._out = self._out, []
        return taken

    def _end_text(self) -> None:
        if text := "".join(self._said):
            self._out.append(Said(text))
        self._said = []

    def _say(self, text: str) -> None:
        if text:
            self._said.append(text)
            self._bare = self._called = False

    def _give_back(self) -> None:
        self._say("".join(self._call))
        self._call = []

    def _search(self, char: str) -> None:
        """In text, perhaps with blanks and the beginning of a marker held back."""
        opening = self._format.value
        if opening.startswith(self._marker + char):
            self._marker += char
            if self._marker == opening:
                self._open(self._space + opening)
        elif self._marker:
            # Its first character is nowhere else in a marker: no other one began inside it.
            self._say(self._space + self._marker)
            self._space = self._marker = ""
            self._search(char)
        elif char.isspace() and len(self._space) < MAX_HELD_SPACE:
            self._space += char
        elif char == "{" and self._bare:
            self._open(self._space)
            self._opened(char)
        else:
            self._say(self._space + char)
            self._space = ""

    def _open(self, held: str) -> None:
        self._call, self._space, self._marker, self._behind = [held], "", "", ""
        self._listed = False
        self._state = self._opened

    def _opened(self, char: str) -> None:
        """Before the object of a call."""
        if char == "{":
            self._json, self._braces = [], _Braces()
            self._state = self._inside
            self._inside(char)
        elif len(self._call) <= MAX_HELD_SPACE and self._leads_on(char):
            self._call.append(char)
        else:
            self._give_back()
            self._state = self._search
            self._search(char)

    def _leads_on(self, char: str) -> bool:
        if self._format is ToolFormat.MISTRAL and not self._listed and char == "[":
            self._listed = True
            return True
        return char.isspace()

    def _inside(self, char: str) -> None:
        """In the object of a call."""
        self._call.append(char)
        self._json.append(char)
        if self._braces.close_with(char):
            self._close()
        elif len(self._json) >= MAX_CALL_CHARS:
            self._give_back()
            self._state = self._search

    def _close(self) -> None:
        read = _read_call("".join(self._json), self._format)
        if read is None or (self._names and read[0] not in self._names):
            self._give_back()
            self._state = self._search
            return
        self._end_text()
        self._out.append(Called(self._index, *read))
        self._index += 1
        self._call, self._bare, self._called = [], False, True
        self._state = self._after

    def _after(self, char: str) -> None:
        """Behind a call: its closing marker, or what leads to the next."""
        held, self._behind = self._behind + char, ""
        match _turn(self._format, held):
            case _Turn.MORE if len(held) <= MAX_HELD_SPACE:
                self._behind = held
            case _Turn.OVER:
                self._state = self._search
            case _Turn.NEXT:
                self._open(held.removesuffix("{"))
                self._listed = True
                if char == "{":
                    self._opened(char)
            case _:
                self._state = self._search
                for each in held:
                    self._state(each)


class _Turn(Enum):
    """What the text behind a call is."""

    MORE = auto()
    """Nothing yet: what it is shows later."""
    OVER = auto()
    """The end of the calls."""
    NEXT = auto()
    """The beginning of another."""
    TEXT = auto()


def _turn(format: ToolFormat, held: str) -> _Turn:  # noqa: A002
    if format is ToolFormat.HERMES:
        begun = held.lstrip()
        if begun == _CLOSING:
            return _Turn.OVER
        return _Turn.MORE if _CLOSING.startswith(begun) else _Turn.TEXT
    if format is ToolFormat.MISTRAL:
        turns = {"": _Turn.MORE, "]": _Turn.OVER, ",": _Turn.NEXT}
        return turns.get(held.strip(), _Turn.TEXT)
    # Some write several, with or without a semicolon between them.
    turns = {"": _Turn.MORE, ";": _Turn.MORE, "{": _Turn.NEXT, ";{": _Turn.NEXT}
    return turns.get("".join(held.split()), _Turn.TEXT)


class _Braces:
    """Where a JSON object ends, told by its braces."""

    def __init__(self) -> None:
        self._depth = 0
        self._quoted = self._escaped = False

    def close_with(self, char: str) -> bool:
        """Whether this character closes what the first one opened."""
        if self._quoted:
            self._quoted = self._escaped or char != '"'
            self._escaped = char == "\\" and not self._escaped
            return False
        self._quoted = char == '"'
        self._depth += (char in "{[") - (char in "}]")
        return self._depth == 0


def _read_call(text: str, format: ToolFormat) -> tuple[str, str] | None:  # noqa: A002
    """The name and the compact arguments of a call; None if the text is no call."""
    try:
        # Models write line ends into strings as they are.
        loaded = json.loads(text, strict=False, parse_constant=_refuse)
        arguments = _arguments(loaded, format)
        name = loaded.get("name")
        if arguments is None or not isinstance(name, str) or not name:
            return None
        compact = json.dumps(arguments, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        (name + compact).encode()  # half a surrogate pair is no text that anyone could be sent
    except (ValueError, RecursionError):
        return None
    return name, compact


def _arguments(loaded: dict[str, object], format: ToolFormat) -> dict[str, object] | None:  # noqa: A002
    key = "parameters" if "parameters" in loaded else "arguments"
    if format is ToolFormat.LLAMA and not {"name", key} <= set(loaded) <= {"name", key, "type"}:
        # Without a marker, an object with more or less than that is an answer in JSON.
        return None
    arguments = loaded.get(key, {})
    if isinstance(arguments, str):
        arguments = json.loads(arguments)
    return arguments if isinstance(arguments, dict) else None


def _refuse(constant: str) -> object:
    raise ValueError(f"{constant} is not JSON")
