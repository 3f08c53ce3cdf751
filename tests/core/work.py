"""Chains that served a request, and the proofs of their stages, for tests of what they are paid."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tessella.core.commitments import Rows
from tessella.core.identity import Identity
from tessella.core.ids import ModelId, PeerId
from tessella.core.layers import LayerRange
from tessella.core.messages import Proof, Ticket, TicketStage
from tessella.core.proofs import SignedProof, seal_proof
from tessella.core.tickets import ANONYMOUS, START_SECONDS, TICKET_SECONDS, seal_ticket
from tessella.core.vouchers import Sent, crossing_at, vouch

MUSIVUM = Identity(b"m" * 32)
NOW = 1_800_000_000.0


def identity(number: int) -> Identity:
    """The key of worker or client `number`."""
    return Identity(number.to_bytes(32, "big"))


def committed(edge: int, count: int, salt: bytes = b"") -> Rows:
    """The rows that cross one edge of a chain."""
    made = Rows()
    for position in range(count):
        made.put(position, bytes([edge]) + position.to_bytes(4, "big") + salt, 1)
    return made


@dataclass
class Work:
    """One request: its ticket, and what its stages may prove."""

    workers: list[Identity]
    requester: str = ANONYMOUS
    layers_each: int = 10
    max_tokens: int = 100
    request_id: bytes = b"r" * 16
    issuer: Identity = MUSIVUM
    issued_at: float = NOW
    changes: dict[str, Any] = field(default_factory=dict)
    """Fields of the ticket that are other than they would be."""

    def __post_init__(self) -> None:
        stages = [
            TicketStage(
                worker.peer_id,
                LayerRange(place * self.layers_each, (place + 1) * self.layers_each),
                "f32/f32/f32",
            )
            for place, worker in enumerate(self.workers)
        ]
        fields: dict[str, Any] = {
            "issuer": self.issuer.peer_id,
            "request_id": self.request_id,
            "model": ModelId("m"),
            "contract": "c",
            "requester": self.requester,
            "tier": "leech",
            "chain": tuple(stages),
            "spares": (),
            "max_tokens": self.max_tokens,
            "issued_at": self.issued_at,
            "start_by": self.issued_at + START_SECONDS,
            "expires_at": self.issued_at + TICKET_SECONDS,
        }
        self.ticket = Ticket(**{**fields, **self.changes})
        self.payload, self.signature = seal_ticket(self.ticket, self.issuer)

    def proof(
        self,
        place: int,
        count: int = 50,
        *,
        start: int = 0,
        salt: tuple[bytes, bytes] = (b"", b""),
        epoch: int = 0,
        sender: Identity | None = None,
        by: Identity | None = None,
        **changes: Any,
    ) -> SignedProof:
        """The proof of one stage; a salt makes its input or output rows other than its neighbour's.

        `sender` vouches for what came in place of the stage before, and `by` signs the proof in
        place of the stage's own worker.
        """
        worker = self.workers[place]
        stage = self.ticket.chain[place]
        inputs = committed(place, count, salt[0]).commit()
        before = (sender or self.workers[place - 1]) if place else None
        crossing = crossing_at(self.payload, epoch, stage.layers.start)
        fields: dict[str, Any] = {
            "ticket": self.payload,
            "ticket_signature": self.signature,
            "worker": PeerId(worker.peer_id),
            "sequence": 1,
            "previous": b"",
            "layers": stage.layers,
            "start": start,
            "epoch": epoch,
            "inputs": inputs,
            "sender": before.peer_id if before else "",
            "voucher": vouch(before, crossing, Sent(start, inputs)) if before else b"",
            "outputs": committed(place + 1, count, salt[1]).commit(),
            "sketch": b"",
            "finished_at": self.issued_at + 10,
        }
        return seal_proof(Proof(**{**fields, **changes}), by or worker)
