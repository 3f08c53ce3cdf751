"""How much a peer can make us hold: bytes a frame, streams, connections, seconds.

A stream has two caps, one for each direction, because questions and answers differ in size: a
tracker lists thousands of peers in one answer, and is asked in a few hundred bytes.
"""

from __future__ import annotations

from dataclasses import dataclass

from tessella.core.frames import (
    MAX_CONTROL_FRAME,
    MAX_HOP_FRAME,
    MAX_LIST_FRAME,
    MAX_PROOFS_FRAME,
    MAX_TRACKER_FRAME,
)
from tessella.core.messages import AUDIT, COMPLETE, HOP, LEDGER, STATUS, TOKENS, TRACKER


@dataclass(frozen=True, slots=True)
class Caps:
    """The longest frame each side of a stream may send, in bytes of body."""

    asks: int
    """From the side that opened the stream."""
    answers: int
    """From the side that serves it."""

    def received(self, *, opened: bool) -> int:
        """What the side that opened the stream, or the other, has to accept."""
        return self.answers if opened else self.asks

    def sent(self, *, opened: bool) -> int:
        """What the side that opened the stream, or the other, may send."""
        return self.asks if opened else self.answers


CAPS = {
    HOP: Caps(asks=MAX_HOP_FRAME, answers=MAX_CONTROL_FRAME),
    TOKENS: Caps(asks=MAX_CONTROL_FRAME, answers=MAX_CONTROL_FRAME),
    # A prompt in JSON travels toward the entry, single tokens come back.
    COMPLETE: Caps(asks=MAX_LIST_FRAME, answers=MAX_CONTROL_FRAME),
    STATUS: Caps(asks=MAX_CONTROL_FRAME, answers=MAX_LIST_FRAME),
    TRACKER: Caps(asks=MAX_TRACKER_FRAME, answers=MAX_LIST_FRAME),
    LEDGER: Caps(asks=MAX_PROOFS_FRAME, answers=MAX_LIST_FRAME),
    AUDIT: Caps(asks=MAX_CONTROL_FRAME, answers=MAX_HOP_FRAME),
}
OTHER = Caps(asks=MAX_CONTROL_FRAME, answers=MAX_CONTROL_FRAME)


def caps_of(protocol: str) -> Caps:
    """The caps of a protocol; control frames only where it has no row."""
    return CAPS.get(protocol, OTHER)
