"""The libp2p door: `/musivum/tracker/1`, many asks on one stream, one answer each.

Signed (a Call)     Assigned, Accepted        AskPeers    Peers
Ask, Operate        Document                  what is refused    Fail
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import trio

from musivum.admission import Admission
from musivum.audit_room import AuditRoom
from musivum.config import MusivumConfig
from musivum.doors.answers import Answers
from musivum.doors.frames import Counts, FrameDoor
from musivum.doors.questions import LEDGER, OPERATOR, PUBLIC, find, framed, read_arguments, render
from musivum.doors.settling import Settling
from musivum.federation.room import Federation
from musivum.ledger import Ledger
from musivum.nodes.books import Books
from musivum.operator import AdminGate, Operator
from musivum.pages.ledger import LedgerPages
from musivum.pages.mesh import Pages
from musivum.placing.grants import Grants
from musivum.placing.orchestrator import Orchestrator
from tessella.core.errors import OutOfTurn
from tessella.core.ids import PeerId
from tessella.core.messages import (
    Announce,
    Ask,
    AskPeers,
    Deregister,
    Document,
    Message,
    Operate,
    Peers,
    Ready,
    Register,
    ReportFailure,
    Signed,
)

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
    ledger: Ledger
    ledger_pages: LedgerPages
    settling: Settling
    grants: Grants
    audits: AuditRoom
    federation: Federation


class Tracker(FrameDoor):
    """Answers nodes and whoever looks for them."""

    def __init__(self, config: MusivumConfig, rooms: Rooms, counts: Counts | None = None) -> None:
        super().__init__(config, counts or Counts())
        self._rooms = rooms

    @property
    def received(self) -> Counter[str]:
        """Frames by kind, since the start, at every door."""
        return self.counts.received

    @property
    def sent(self) -> Counter[str]:
        """Frames by kind."""
        return self.counts.sent

    @property
    def refused(self) -> Counter[str]:
        """Refusals by code."""
        return self.counts.refused

    async def answered(self, message: Message, peer_id: PeerId) -> Message:
        """The answer to one ask. Raises OutOfTurn for what no tracker is asked."""
        match message:
            case Signed():
                now = self._rooms.books.clocks.wall()
                call = self._rooms.admission.admit_frame(message, peer_id, CALLS, now)
                return await self._called(call, peer_id)
            case AskPeers(model):
                return Peers(self._rooms.answers.rows(model))
            case Ask(name, arguments) if name in LEDGER:
                told = await LEDGER[name].answer(
                    self._rooms.ledger_pages, read_arguments(LEDGER[name], arguments)
                )
                return Document(framed(name, render(LEDGER[name], told)))
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
