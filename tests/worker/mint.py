"""Tickets as a musivum of a test signs them, and a musivum that gives nothing else.

mint = Mint(Identity(b"m" * 32), wall_clock)
signed = mint.ticket(chain, contract=mesh.contract, requester=client.peer_id)
mint.serve_on(host, lambda caller, asked: mint.ticket(...))
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

import trio

from p2p.peers import Host
from p2p.streams import FrameStream
from tessella.core.errors import TessellaError
from tessella.core.identity import Identity
from tessella.core.ids import ModelId, PeerId
from tessella.core.messages import (
    LEDGER,
    AskGrant,
    Call,
    Fail,
    Granted,
    Signed,
    Stage,
    Ticket,
    TicketStage,
    decode_sealed,
)
from tessella.core.tickets import ANONYMOUS, START_SECONDS, TICKET_SECONDS, seal_ticket
from tessella.worker.tickets import SignedTicket

Draw = Callable[[PeerId, AskGrant], SignedTicket]


@dataclass
class Mint:
    identity: Identity
    clock: Callable[[], float]
    asked: list[AskGrant] = field(default_factory=list)
    """Every question for a ticket, in order."""
    given: list[SignedTicket] = field(default_factory=list)
    """Every ticket that was an answer."""
    refusal: TessellaError | None = None
    addrs: tuple[str, ...] = ()
    """Where the entry is."""
    delay: float = 0.0
    """Seconds until an answer."""
    _numbers: count[int] = field(default_factory=lambda: count(1))

    def ticket(self, chain: Sequence[Stage], **changes: Any) -> SignedTicket:
        """A ticket that is good now, for anybody's request to this chain."""
        now = self.clock()
        made = Ticket(
            issuer=self.identity.peer_id,
            request_id=next(self._numbers).to_bytes(16),
            model=ModelId("toy"),
            contract="contract",
            requester=ANONYMOUS,
            tier="standard",
            chain=tuple(TicketStage(one.peer_id, one.layers, "") for one in chain),
            spares=(),
            max_tokens=256,
            issued_at=now,
            start_by=now + START_SECONDS,
            expires_at=now + TICKET_SECONDS,
        )
        ticket = replace(made, **changes)
        return SignedTicket(ticket, *seal_ticket(ticket, self.identity))

    def serve_on(self, host: Host, draw: Draw) -> None:
        """Answer whoever asks at this host for a ticket."""

        async def answer(stream: FrameStream) -> None:
            while True:
                signed = await stream.receive()
                assert isinstance(signed, Signed)
                call = decode_sealed(signed.payload, Call)
                asked = decode_sealed(call.message, AskGrant)
                self.asked.append(asked)
                await trio.sleep(self.delay)
                await stream.send(self._answer(call.peer_id, asked, draw))

        host.serve(LEDGER, answer, streams=9, per_peer=9)

    def _answer(self, caller: PeerId, asked: AskGrant, draw: Draw) -> Granted | Fail:
        try:
            if self.refusal is not None:
                raise self.refusal
            self.given.append(draw(caller, asked))
        except TessellaError as exc:
            return Fail.of(exc)
        found = self.given[-1]
        return Granted(found.payload, found.signature, self.addrs, "")
