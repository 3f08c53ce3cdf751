"""Work that nobody did: chains of three stages, their tickets and their proofs, for benchmarks."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from tessella.core.commitments import Rows
from tessella.core.identity import Identity
from tessella.core.ids import ModelId, PeerId
from tessella.core.layers import LayerRange
from tessella.core.messages import Commit, Proof, Ticket, TicketStage
from tessella.core.proofs import SignedProof, proof_hash, seal_proof
from tessella.core.tickets import (
    REQUEST_ID_BYTES,
    START_SECONDS,
    TICKET_SECONDS,
    seal_ticket,
)
from tessella.core.vouchers import Sent, crossing_at, vouch

STAGES = 3
LAYERS_EACH = 10
# Prompt and answer of one request.
POSITIONS = 200
WORKERS, CLIENTS = 30, 10


@dataclass
class Worker:
    """A node, and the end of its book."""

    identity: Identity
    sequence: int = 0
    previous: bytes = b""

    def prove(
        self, ticket: Ticket, sealed: tuple[bytes, bytes], place: int, before: Identity | None
    ) -> SignedProof:
        """Its next proof, of rows that `before` sent, or of token ids."""
        layers, inputs = ticket.chain[place].layers, _rows(place)
        crossing = crossing_at(sealed[0], 0, layers.start)
        voucher = vouch(before, crossing, Sent(0, inputs)) if before else b""
        proof = Proof(
            ticket=sealed[0],
            ticket_signature=sealed[1],
            worker=self.identity.peer_id,
            sequence=self.sequence,
            previous=self.previous,
            layers=layers,
            start=0,
            epoch=0,
            inputs=inputs,
            sender=before.peer_id if before else PeerId(""),
            voucher=voucher,
            outputs=_rows(place + 1),
            sketch=b"s" * 256,
            finished_at=ticket.issued_at,
        )
        signed = seal_proof(proof, self.identity)
        self.sequence, self.previous = self.sequence + 1, proof_hash(signed.payload)
        return signed


@lru_cache(maxsize=STAGES + 1)
def _rows(edge: int) -> Commit:
    rows = Rows()
    for position in range(POSITIONS):
        rows.put(position, bytes([edge]) + position.to_bytes(4, "big"), 1)
    return rows.commit()


def some_proofs(issuer: Identity, count: int, now: float) -> Iterator[SignedProof]:
    """Proofs of requests that were all granted at `now`: of each request all stages, in order."""
    workers = [Worker(Identity(secrets.token_bytes(32))) for _ in range(WORKERS)]
    clients = [Identity(secrets.token_bytes(32)).peer_id for _ in range(CLIENTS)]
    for number in range(0, count, STAGES):
        request = number // STAGES
        chain = [workers[(request + stage * 7) % WORKERS] for stage in range(STAGES)]
        ticket = _ticket(issuer, chain, clients[request % CLIENTS], now)
        sealed = seal_ticket(ticket, issuer)
        for place in range(min(STAGES, count - number)):
            before = chain[place - 1].identity if place else None
            yield chain[place].prove(ticket, sealed, place, before)


def _ticket(issuer: Identity, chain: list[Worker], requester: PeerId, now: float) -> Ticket:
    stages = (
        TicketStage(
            worker.identity.peer_id,
            LayerRange(place * LAYERS_EACH, (place + 1) * LAYERS_EACH),
            "bf16/bf16/bf16",
        )
        for place, worker in enumerate(chain)
    )
    return Ticket(
        issuer=issuer.peer_id,
        request_id=secrets.token_bytes(REQUEST_ID_BYTES),
        model=ModelId("Qwen/Qwen2.5-0.5B-Instruct"),
        contract="c" * 64,
        requester=requester,
        tier="standard",
        chain=tuple(stages),
        spares=(),
        max_tokens=POSITIONS,
        issued_at=now,
        start_by=now + START_SECONDS,
        expires_at=now + TICKET_SECONDS,
    )
