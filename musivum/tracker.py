"""The conversation with nodes: `/musivum/tracker/1`, many asks on one stream, one answer each.

    Register    Assigned      Ready, Announce, Deregister, ReportFailure    Accepted
    AskPeers    Peers         what is refused                               Fail

A refusal ends nothing: the node may ask again on the same stream. What breaks a rule of the wire
ends the stream, and nobody else's.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable

import trio

from musivum.admission import Nonces, admit
from musivum.config import MusivumConfig
from musivum.probes import Probes
from musivum.registration import read_registration
from musivum.roster import Roster
from p2p.streams import FrameStream
from tessella.core.errors import (
    LocalError,
    OutOfTurn,
    PeerClosed,
    PeerSilent,
    RemoteError,
    TessellaError,
)
from tessella.core.frames import KIB, MAX_LIST_FRAME
from tessella.core.ids import ModelId, PeerId
from tessella.core.messages import (
    Accepted,
    Announce,
    AskPeers,
    Assigned,
    Deregister,
    Fail,
    Message,
    Peers,
    Ready,
    Register,
    ReportFailure,
    Signed,
)
from tessella.core.peers import PeerRow, encode_rows

logger = logging.getLogger(__name__)

Clock = Callable[[], float]
"""Seconds since 1970."""

# A stream that asks nothing for this many heartbeats is finished; its node may open another.
# While it loads a node says nothing, so a load is waited for as well.
IDLE_BEATS = 6
# What stands around the rows in their frame.
_LIST_BYTES = MAX_LIST_FRAME - KIB


class Tracker:
    """Answers nodes and whoever looks for them. Holds no resource: serve `answer`, that is all."""

    def __init__(
        self, config: MusivumConfig, roster: Roster, probes: Probes, *, clock: Clock
    ) -> None:
        self._config = config
        self._roster = roster
        self._probes = probes
        self._clock = clock
        self._nonces = Nonces()
        self.received: Counter[str] = Counter()
        """Frames by kind, since the start."""
        self.sent: Counter[str] = Counter()

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
            self.received[type(message).__name__] += 1
            reply = self._reply(message, stream.peer_id)
            self.sent[type(reply).__name__] += 1
            await stream.send(reply)

    def _reply(self, message: Message, peer_id: PeerId) -> Message:
        try:
            if isinstance(message, AskPeers):
                return self._peers(message.model)
            if isinstance(message, Signed):
                call = admit(message, peer_id, self._clock(), self._nonces)
                return self._called(call, peer_id)
        except (RemoteError, LocalError):
            raise
        except TessellaError as exc:
            logger.info("refused: %s: %s: %s", peer_id, exc.code, exc)
            return Fail.of(exc)
        raise OutOfTurn(f"{type(message).__name__} is not what a tracker is asked")

    def _called(self, call: Message, peer_id: PeerId) -> Message:
        now = trio.current_time()
        if isinstance(call, Register):
            return self._register(call, peer_id, now)
        if isinstance(call, Ready):
            self._roster.ready(peer_id, call.layers, now)
            logger.info("ready: %s: layers %s", peer_id, call.layers)
        elif isinstance(call, Announce):
            self._roster.announce(peer_id, call, now)
        elif isinstance(call, Deregister):
            self._roster.leave(peer_id)
            logger.info("left: %s", peer_id)
        elif isinstance(call, ReportFailure):
            self._probes.report(peer_id, call.peer_id, now)
        return Accepted()

    def _register(self, call: Register, peer_id: PeerId, now: float) -> Assigned:
        wish = read_registration(
            call,
            usable_vram_pct=self._config.usable_vram_pct,
            min_vram_mb=self._config.min_vram_mb,
        )
        layers = self._roster.join(peer_id, wish, now)
        logger.info("joined: %s: layers %s of %s", peer_id, layers, wish.model)
        return Assigned(layers, self._config.heartbeat_seconds)

    def _peers(self, model: ModelId) -> Peers:
        nodes = self._roster.nodes(model or None)
        return Peers(list_of((node.row for node in nodes), _LIST_BYTES))


def list_of(rows: Iterable[PeerRow], limit: int) -> bytes:
    """Rows as a peer list of at most `limit` bytes: those that serve stay, if not all fit."""
    kept = sorted(rows, key=lambda row: (not row.serves, row.peer_id))
    data = encode_rows(kept)
    while kept and len(data) > limit:
        logger.warning("peer list cut: %s rows are %s bytes", len(kept), len(data))
        # In proportion, and one less, so that this ends.
        kept = kept[: max(0, len(kept) * limit // len(data) - 1)]
        data = encode_rows(kept)
    return data
