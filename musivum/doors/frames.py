"""A libp2p door: many asks on one stream, one answer each, in the order they came.

A refusal ends nothing: the peer may ask again on the same stream. What breaks a rule of the wire
ends the stream, and nobody else's.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections import Counter
from dataclasses import dataclass, field

import trio

from musivum.config import MusivumConfig
from p2p.streams import FrameStream
from tessella.core.errors import (
    BadSignature,
    LocalError,
    PeerClosed,
    PeerSilent,
    RemoteError,
    StoreLost,
    TessellaError,
)
from tessella.core.ids import PeerId
from tessella.core.messages import Fail, Message
from tessella.core.rates import Buckets, Rate

logger = logging.getLogger(__name__)

# A stream that asks nothing for this many heartbeats is finished; its peer may open another.
IDLE_BEATS = 6


@dataclass(frozen=True, slots=True)
class Counts:
    """What passed all the doors of a musivum since it began."""

    received: Counter[str] = field(default_factory=Counter)
    """Frames by kind."""
    sent: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    """Refusals by code."""


class FrameDoor(ABC):
    """Paces who asks, and answers. Holds no resource: serve `answer`, that is all."""

    def __init__(self, config: MusivumConfig, counts: Counts) -> None:
        self._config = config
        self.counts = counts
        pace = Rate(config.requests_per_second, config.request_burst)
        self._paces = Buckets[PeerId](pace, most=config.max_connections)

    async def answer(self, stream: FrameStream) -> None:
        """Serve one stream until its peer finishes it or asks nothing for long.

        Raises RemoteError where the peer broke a rule, and PeerGone.
        """
        idle = max(self._config.load_seconds, IDLE_BEATS * self._config.heartbeat_seconds)
        while True:
            try:
                message = await stream.receive(timeout=idle)
            except (PeerClosed, PeerSilent):
                return
            self.counts.received[type(message).__name__] += 1
            await self.pace(stream.peer_id)
            reply = await self._reply(message, stream.peer_id)
            self.counts.sent[type(reply).__name__] += 1
            await stream.send(reply)

    async def pace(self, peer_id: PeerId) -> None:
        """Have a peer wait that asks too fast: its own next questions, and nobody else's."""
        # By the clock, and not by an event: a bucket fills by itself.
        while not self._paces.take(peer_id, trio.current_time()):  # noqa: ASYNC110
            await trio.sleep(1 / self._config.requests_per_second)

    async def _reply(self, message: Message, peer_id: PeerId) -> Message:
        try:
            return await self.answered(message, peer_id)
        except (RemoteError, LocalError, StoreLost) as exc:
            if isinstance(exc, BadSignature):
                self.counts.refused[exc.code] += 1
            raise
        except TessellaError as exc:
            logger.info("refused: %s: %s: %s", peer_id, exc.code, exc)
            self.counts.refused[exc.code] += 1
            return Fail.of(exc)

    @abstractmethod
    async def answered(self, message: Message, peer_id: PeerId) -> Message:
        """The answer to one ask of a proven peer. Raises the error that it is refused with."""
