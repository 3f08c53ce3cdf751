"""What a POST of a stream says, in its query because that is signed; and what its answer says.

    stream   32 hex digits that the caller drew: the stream is theirs and has this name
    act      open | write | finish | read | reset
    number   of a write or finish, and of a read: each counts from 1 without a gap
    wait     seconds that a read may take where there is nothing to say yet

A number says which POST this is. The last one may come again, when its answer was lost, and is
answered again without being taken again; any other is out of turn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from tessella.core.errors import BadFrame, BadRequest
from tessella.core.frames import KIB, LENGTH_BYTES, MAX_CONTROL_FRAME, MIB

FORWARD_PATH = "/v1/forward"
TOKEN_PATH = "/v1/token_stream/"
"""What the session's id in hex follows."""

MAX_HOP_BODY = 64 * MIB
"""Of a POST to FORWARD_PATH. The longest frame is a quarter of it."""
MAX_TOKEN_BODY = 2 * (MAX_CONTROL_FRAME + LENGTH_BYTES)
"""Of a POST to TOKEN_PATH: a token with all its alternatives is one frame of a few KiB."""
MAX_SAID = 256 * KIB
"""What may wait to be read by the caller, or one frame: seconds of progress, or of tokens."""
MAX_WAIT_SECONDS = 10.0
"""Proxies give up an answer that does not begin for 30 s to 100 s."""

STREAM_BYTES = 16
END = "tessella-end"
"""The header of an answer after which nothing is said any more."""
_MAX_NUMBER = 1 << 53
_PARAMETERS = ("stream", "act", "number", "wait")


class Act(Enum):
    """What a POST does to its stream."""

    OPEN = "open"
    """Begin it. May come again as long as nothing else came."""
    WRITE = "write"
    """Add the body to what the caller said."""
    FINISH = "finish"
    """The same, and the caller says and reads no more."""
    READ = "read"
    """Be told what the called one said since."""
    RESET = "reset"
    """Give it up."""

    @property
    def has_body(self) -> bool:
        """Whether a body may come with it."""
        return self in (Act.WRITE, Act.FINISH)


class End(Enum):
    """How the called one ended its side."""

    FINISH = "finish"
    RESET = "reset"


@dataclass(frozen=True, slots=True)
class Ask:
    """One POST, without its body."""

    stream: bytes
    act: Act
    number: int = 0
    wait: float = 0.0

    def query(self) -> tuple[tuple[str, str], ...]:
        """The parameters, as `read_ask` takes them."""
        found = [("stream", self.stream.hex()), ("act", self.act.value)]
        if self.number:
            found.append(("number", str(self.number)))
        if self.wait:
            found.append(("wait", f"{self.wait:g}"))
        return tuple(found)


@dataclass(frozen=True, slots=True)
class Said:
    """What a POST is answered with: what was said since, and whether that is all."""

    data: bytes = b""
    end: End | None = None

    @property
    def word(self) -> str:
        """The value of the header END; empty where there is none."""
        return self.end.value if self.end else ""


def read_ask(pairs: Sequence[tuple[str, str]]) -> Ask:
    """What the query of a POST says. Raises BadRequest that names the parameter."""
    found = dict(pairs)
    if len(found) != len(pairs) or not set(found) <= set(_PARAMETERS):
        raise BadRequest(f"query: each of {', '.join(_PARAMETERS)} once, and no other")
    return Ask(
        _stream(found.get("stream", "")),
        _act(found.get("act", "")),
        _number(found.get("number", "0")),
        _wait(found.get("wait", "0")),
    )


def read_end(headers: Mapping[str, str]) -> End | None:
    """What an answer says of the end. Raises BadFrame for a word that is none."""
    word = headers.get(END, "")
    try:
        return End(word) if word else None
    except ValueError:
        raise BadFrame(f"header {END}: neither finish nor reset") from None


def _stream(text: str) -> bytes:
    if len(text) != 2 * STREAM_BYTES or not set(text) <= set("0123456789abcdef"):
        raise BadRequest(f"query.stream: {2 * STREAM_BYTES} hex digits")
    return bytes.fromhex(text)


def _act(text: str) -> Act:
    try:
        return Act(text)
    except ValueError:
        words = ", ".join(act.value for act in Act)
        raise BadRequest(f"query.act: one of {words}") from None


def _number(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= 16) or int(text) > _MAX_NUMBER:
        raise BadRequest("query.number: a whole number")
    return int(text)


def _wait(text: str) -> float:
    whole, _, part = text.partition(".")
    digits = text.isascii() and (whole + part).isdecimal() and whole and len(text) <= 16
    if not digits or float(text) > MAX_WAIT_SECONDS:
        raise BadRequest(f"query.wait: 0 to {MAX_WAIT_SECONDS:g} seconds")
    return float(text)
