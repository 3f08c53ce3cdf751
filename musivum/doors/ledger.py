"""The libp2p door `/musivum/ledger/1`: tickets before the work, pay after it.

    Settle                  Settled           Signed (a Call with)
    what is refused         Fail                  AskGrant        Granted
                                                  AskCredits      Document
                                                  AskAudit        AuditTask, Accepted
                                                  AuditReport, Marks        Accepted

Whoever has a key may call, be it a node or a client, unless the mesh is a private one.
"""

from __future__ import annotations

from musivum.config import MusivumConfig
from musivum.doors.frames import Counts, FrameDoor
from musivum.doors.tracker import Rooms
from musivum.pages.ledger import credits_json
from tessella.core.errors import OutOfTurn
from tessella.core.ids import PeerId
from tessella.core.messages import (
    Accepted,
    AskAudit,
    AskCredits,
    AskGrant,
    AuditReport,
    Document,
    Marks,
    Message,
    Settle,
    Settled,
    Signed,
)
from tessella.core.proofs import unpack_batch
from tessella.core.settlement import encode_outcomes

CALLS = (AskGrant, AskCredits, AskAudit, AuditReport, Marks)


class LedgerDoor(FrameDoor):
    """Answers whoever asks for a ticket, or brings what one was worked for."""

    def __init__(self, config: MusivumConfig, rooms: Rooms, counts: Counts | None = None) -> None:
        """`counts` is where frames are counted, with those of other doors."""
        super().__init__(config, counts or Counts())
        self._rooms = rooms

    async def answered(self, message: Message, peer_id: PeerId) -> Message:
        """The answer to one ask. Raises OutOfTurn for what no ledger is asked."""
        match message:
            case Settle(proofs):
                brought = unpack_batch(proofs)
                outcomes = await self._rooms.settling.of_peer(peer_id, brought)
                return Settled(encode_outcomes(outcomes))
            case Signed():
                now = self._rooms.books.clocks.wall()
                call = self._rooms.admission.admit_frame(message, peer_id, CALLS, now)
                return await self._called(call, peer_id)
        raise OutOfTurn(f"{type(message).__name__} is not what a ledger is asked")

    async def _called(self, call: Message, peer_id: PeerId) -> Message:
        rooms = self._rooms
        match call:
            case AskGrant():
                return await rooms.grants.grant(peer_id, call)
            case AskCredits():
                held = rooms.audits.held_against(peer_id)
                return Document(await credits_json(rooms.ledger, peer_id, held))
            case AskAudit():
                return await rooms.audits.next_task(peer_id) or Accepted()
            case AuditReport():
                await rooms.audits.report(peer_id, call)
            case Marks():
                await rooms.audits.marks(peer_id, call)
        return Accepted()
