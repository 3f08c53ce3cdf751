"""The libp2p door: `/musivum/tracker/1`, many asks on one stream, one answer each.

    Signed (a Call)     Assigned, Accepted        AskPeers    Peers
    Ask, Operate        Document                  what is refused    Fail

A refusal ends nothing: the node may ask again on the same stream. What breaks a rule of the wire
ends the stream, and nobody else's.
"""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import dataclass

import trio

from musivum.admission import Admission, SignedCall
from musivum.answers import Answers
from musivum.books import Books
from musivum.config import MusivumConfig
from musivum.operator import AdminGate, Operator
from musivum.orchestrator import Orchestrator
from musivum.pages import Pages
from musivum.questions import OPERATOR, PUBLIC, find, framed, read_arguments, render
from p2p.streams import FrameStream
from tessella.core.errors import (
    BadFrame,
    BadSignature,
    LocalError,
    NotAuthorized,
    OutOfTurn,
    PeerClosed,
    PeerSilent,
    RemoteError,
    StoreLost,
    TessellaError,
)
from tessella.core.identity import PURPOSE_TRACKER
from tessella.core.ids import PeerId
from tessella.core.messages import (
    Announce,
    Ask,
    AskPeers,
    Call,
    Deregister,
    Document,
    Fail,
    Message,
    Operate,
    Peers,
    Ready,
    Register,
    ReportFailure,
    Signed,
    decode,
)
from tessella.core.rates import Buckets, Rate

logger = logging.getLogger(__name__)

# A stream that asks nothing for this many heartbeats is finished; its node may open another.
IDLE_BEATS = 6
CALLS = (Register, Ready, Announce, Deregister, ReportFailure)


@dataclass(frozen=True, slots=True)
class Rooms:
    """What both doors lead to."""

    books: Books
    admission: Admission
    orchestrator: Orchestrator
    pages: Pages
    answers: Answers
    operator: Operator
    gate: AdminGate


class Tracker:
    """Answers nodes and whoever looks for them. Holds no resource: serve `answer`, that is all."""

    def __init__(self, config: MusivumConfig, rooms: Rooms) -> None:
        self._config = config
        self._rooms = rooms
        pace = Rate(config.requests_per_second, config.request_burst)
        self._paces = Buckets[PeerId](pace, most=config.max_connections)
        self.received: Counter[str] = Counter()
        """Frames by kind, since the start."""
        self.sent: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        """Refusals by code."""

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
            await self.pace(stream.peer_id)
            reply = await self._reply(message, stream.peer_id)
            self.sent[type(reply).__name__] += 1
            await stream.send(reply)

    async def pace(self, peer_id: PeerId) -> None:
        """Have a peer wait that asks too fast: its own next questions, and nobody else's."""
        # By the clock, and not by an event: a bucket fills by itself.
        while not self._paces.take(peer_id, trio.current_time()):  # noqa: ASYNC110
            await trio.sleep(1 / self._config.requests_per_second)

    async def _reply(self, message: Message, peer_id: PeerId) -> Message:
        try:
            return await self._answered(message, peer_id)
        except (RemoteError, LocalError, StoreLost) as exc:
            if isinstance(exc, BadSignature):
                self.refused[exc.code] += 1
            raise
        except TessellaError as exc:
            logger.info("refused: %s: %s: %s", peer_id, exc.code, exc)
            self.refused[exc.code] += 1
            return Fail.of(exc)

    async def _answered(self, message: Message, peer_id: PeerId) -> Message:
        match message:
            case Signed():
                return await self._called(self._admitted(message, peer_id), peer_id)
            case AskPeers(model):
                return Peers(self._rooms.answers.rows(model))
            case Ask(name, arguments):
                question = find(PUBLIC, name)
                asked = read_arguments(question, arguments)
                return Document(framed(name, self._rooms.answers.json(question, asked)))
            case Operate(token, name, arguments):
                self._rooms.gate.check(token, peer_id, trio.current_time())
                question = find(OPERATOR, name)
                asked = read_arguments(question, arguments)
                done = await question.answer(self._rooms.operator, asked)
                return Document(framed(name, render(question, done)))
        raise OutOfTurn(f"{type(message).__name__} is not what a tracker is asked")

    def _admitted(self, signed: Signed, peer_id: PeerId) -> Message:
        """What a node calls with, once everything in `admission` held."""
        call = decode(signed.payload)
        if not isinstance(call, Call):
            raise BadFrame("what was signed is not a Call")
        message = decode(call.message)
        if not isinstance(message, CALLS):
            raise OutOfTurn(f"{type(message).__name__} is not what a tracker is called with")
        if call.peer_id != peer_id:
            raise NotAuthorized(f"a call of {call.peer_id:.64} on a stream of {peer_id}")
        presented = SignedCall(
            peer_id=peer_id,
            created=call.created,
            nonce=call.nonce,
            purpose=PURPOSE_TRACKER,
            payload=signed.payload,
            signature=signed.signature,
        )
        # Noise says who is at the other end, so nobody else has heard the call.
        self._rooms.admission.admit(presented, self._rooms.books.clocks.wall(), overheard=False)
        return message

    async def _called(self, call: Message, peer_id: PeerId) -> Message:
        room = self._rooms.orchestrator
        match call:
            case Register():
                return await room.register(peer_id, call)
            case Ready(layers):
                return await room.ready(peer_id, layers)
            case Announce():
                return room.announce(peer_id, call)
            case Deregister():
                return await room.deregister(peer_id)
            case _:
                return room.report_failure(peer_id, call)
