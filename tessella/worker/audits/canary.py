"""A node that answers wrongly on purpose.

    off         every node
    echo        a stage answers its input                   } listed as what it is, and never
    scale       its output, times one constant              } routed through
    watermark   an ordinary node for sessions that are paid. Whoever asks past musivum gets its
                output times a gain that only this node can know: an auditor finds it in the work
                of a copier

A gain is told to musivum before an audit can meet it, so that nobody can say afterwards what it
was. While musivum cannot be told, nothing is marked: entries have no tickets then either.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Awaitable, Callable
from enum import Enum
from typing import TYPE_CHECKING, NoReturn

import trio

from tessella.core.audits import gain_of
from tessella.core.errors import Refused, TessellaError
from tessella.core.identity import Identity
from tessella.core.ids import PeerId, SessionId
from tessella.core.messages import Mark, Marks, Message, Open, Ticket

if TYPE_CHECKING:
    import torch

logger = logging.getLogger(__name__)

SCALE = 1.05
# Marks that wait for musivum, and those that were told of late; beyond them nothing is marked.
MAX_WAITING = 1024
MAX_TOLD = 4096
# An array of a frame has no more.
MARKS_AT_ONCE = 64
# How long after its last answer musivum counts as there: two beats, and one that is late.
REACHED_SECONDS = 30.0
# Marks of one moment are told together, and so soon that no proof is settled before.
GATHER_SECONDS = 0.1
RETRY_SECONDS = 5.0

Bend = Callable[["torch.Tensor", "torch.Tensor"], "torch.Tensor"]
"""What a stage gives, of its input rows and its true output; both `[n, hidden]` of one dtype."""


BendOf = Callable[[Open, "Ticket | None", PeerId], "Bend | None"]
"""What becomes of a session's output, by its `Open`, its checked ticket and who opens it; None for
the truth. Raises Refused."""


def truth(opened: Open, ticket: Ticket | None, owner: PeerId) -> Bend | None:
    """What every node but a canary answers."""
    return None


class CanaryMode(Enum):
    """How a node answers. The value is the word in the configuration."""

    OFF = "off"
    ECHO = "echo"
    SCALE = "scale"
    WATERMARK = "watermark"

    @property
    def is_listed(self) -> bool:
        """Whether others are told to keep away."""
        return self in (CanaryMode.ECHO, CanaryMode.SCALE)


def _echo(taken: torch.Tensor, given: torch.Tensor) -> torch.Tensor:
    return taken


def _scale(taken: torch.Tensor, given: torch.Tensor) -> torch.Tensor:
    return given * SCALE


class Canary:
    """What one node's sessions get in place of the truth."""

    def __init__(
        self, mode: CanaryMode, identity: Identity, clock: Callable[[], float] = time.time
    ) -> None:
        """`clock` gives the seconds since 1970 that marks are made at."""
        self.mode = mode
        self._ourselves = identity.peer_id
        # Nobody without the seed can tell a gain, and a node that is started again has it again.
        self._key = hashlib.blake2b(b"tessella canary", key=identity.seed, digest_size=32).digest()
        self._clock = clock
        self._waiting: dict[SessionId, Mark] = {}
        self._told: dict[SessionId, None] = {}
        self._reached_at = float("-inf")
        self._more = trio.Event()

    def announce(self) -> None:
        """Say in the log, loudly, what this node is; nothing for one like all others."""
        if self.mode is not CanaryMode.OFF:
            logger.warning(
                "THIS NODE IS A CANARY (canary_mode = %s): it answers wrongly on purpose",
                self.mode.value,
            )

    def bend(self, opened: Open, ticket: Ticket | None, owner: PeerId) -> Bend | None:
        """What becomes of the output of a session that begins; None for the truth.

        `ticket` is the one in `opened`, checked; `owner` opens it. Raises Refused for a ticket at a
        node that cannot earn it.
        """
        if self.mode is CanaryMode.OFF:
            return None
        if self.mode is CanaryMode.WATERMARK:
            return self._marked(opened.session_id, ticket, owner)
        if ticket is not None:
            raise Refused(f"a canary, which answers wrongly on purpose: {self.mode.value}")
        return _echo if self.mode is CanaryMode.ECHO else _scale

    def _marked(self, session_id: SessionId, ticket: Ticket | None, owner: PeerId) -> Bend | None:
        if ticket is not None or owner == self._ourselves or not self.is_reached:
            return None
        gain = gain_of(self._key, session_id)
        if session_id not in self._waiting and session_id not in self._told:
            if len(self._waiting) >= MAX_WAITING:
                return None
            self._waiting[session_id] = Mark(session_id, gain, owner, self._clock())
            self._more.set()
            logger.info("marked what %s asked for", owner)
        return lambda _, given: given * gain

    @property
    def is_reached(self) -> bool:
        """Whether musivum was there a moment ago."""
        return trio.current_time() <= self._reached_at + REACHED_SECONDS

    def reached(self) -> None:
        """musivum answered something."""
        self._reached_at = trio.current_time()

    async def run(self, ask: Callable[[Message], Awaitable[Message]]) -> NoReturn:
        """Tell musivum of marks as they are made, until cancelled."""
        while True:
            await self._more.wait()
            await trio.sleep(GATHER_SECONDS)
            self._more = trio.Event()
            while self._waiting:
                marks = tuple(self._waiting.values())[:MARKS_AT_ONCE]
                try:
                    await ask(Marks(marks))
                except TessellaError as exc:
                    logger.warning("%d marks were not taken: %s: %s", len(marks), exc.code, exc)
                    if exc.retry:
                        await trio.sleep(RETRY_SECONDS)
                        continue
                    # Nobody wants them, and it will not be otherwise the next time.
                else:
                    self.reached()
                self._forget(marks)

    def _forget(self, marks: tuple[Mark, ...]) -> None:
        for mark in marks:
            session_id = SessionId(mark.session_id)
            del self._waiting[session_id]
            self._told[session_id] = None
        while len(self._told) > MAX_TOLD:
            del self._told[next(iter(self._told))]
