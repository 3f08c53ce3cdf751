"""A proof of work: signed by the worker, over a ticket that musivum signed.

Whoever brings it, it speaks for itself: both signatures are under it, and that of the stage before
under the rows that came; and it can be paid once.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Container, Iterable
from dataclasses import dataclass

from tessella.core.commitments import DIGEST_BYTES, check_commit
from tessella.core.errors import BadFrame, BadProof, TicketExpired
from tessella.core.frames import MIB
from tessella.core.identity import SIGNATURE_BYTES, Identity, check_signature
from tessella.core.ids import PeerId
from tessella.core.messages import Proof, Ticket, decode_sealed, seal
from tessella.core.tickets import CLOCK_SECONDS, SETTLE_SECONDS, open_ticket, place_of
from tessella.core.vouchers import Sent, check_voucher, crossing_at

PURPOSE_PROOF = b"proof"
MAX_BATCH = 256
MAX_BATCH_BYTES = MIB
# A ticket, two commits and a sketch; a longer one is none of ours.
MAX_PROOF_BYTES = 32 * 1024
# Of the sketch in it. It travels with the proof and is kept as long: 63 rows are enough to tell
# honest work from any that is not.
MAX_SKETCH = 16 * 1024

_LENGTH = struct.Struct("!I")


@dataclass(frozen=True, slots=True)
class SignedProof:
    """A sealed Proof and its worker's signature."""

    payload: bytes
    signature: bytes

    @property
    def digest(self) -> bytes:
        """What it is known by: 32 bytes."""
        return proof_hash(self.payload)


@dataclass(frozen=True, slots=True)
class Claim:
    """A proof that holds: what its signatures and its ticket bear out, and no more."""

    digest: bytes
    proof: Proof
    ticket: Ticket
    place: int
    """The worker's place in the ticket's chain."""

    @property
    def worker(self) -> PeerId:
        """Who is to be paid."""
        return self.proof.worker

    @property
    def request_id(self) -> bytes:
        """For which request."""
        return self.ticket.request_id


def proof_hash(payload: bytes) -> bytes:
    """BLAKE2b-256 of a sealed proof."""
    return hashlib.blake2b(payload, digest_size=DIGEST_BYTES).digest()


def seal_proof(proof: Proof, identity: Identity) -> SignedProof:
    """A proof as its worker signs it."""
    payload = seal(proof)
    return SignedProof(payload, identity.sign(PURPOSE_PROOF, payload))


def read_claim(signed: SignedProof, issuers: Container[PeerId], now: float) -> Claim:
    """What a proof claims, if it may be claimed at `now`, in seconds since 1970.

    Raises BadFrame, BadSignature, ForeignTicket or BadTicket for a proof that proves nothing,
    BadProof for one that says what its ticket does not, TicketExpired for one that comes too late.
    """
    if len(signed.payload) > MAX_PROOF_BYTES:
        raise BadProof(f"a proof of {len(signed.payload)} bytes, over {MAX_PROOF_BYTES}")
    proof = decode_sealed(signed.payload, Proof)
    check_signature(proof.worker, PURPOSE_PROOF, signed.payload, signed.signature)
    ticket = open_ticket(proof.ticket, proof.ticket_signature, issuers)
    place, stage = place_of(ticket, proof.worker)
    if proof.layers != stage.layers:
        raise BadProof(f"a proof of layers {proof.layers}, the ticket assigns {stage.layers}")
    _check_counts(proof, ticket)
    _check_voucher(proof, ticket)
    if now > ticket.expires_at + SETTLE_SECONDS:
        raise TicketExpired(f"the ticket could be settled until {ticket.expires_at:.0f} + a day")
    if now < ticket.issued_at - CLOCK_SECONDS:
        raise TicketExpired(f"the ticket is of {ticket.issued_at - now:.0f} s from now")
    return Claim(signed.digest, proof, ticket, place)


def _check_counts(proof: Proof, ticket: Ticket) -> None:
    check_commit(proof.inputs)
    check_commit(proof.outputs)
    if proof.sequence < 0 or len(proof.previous) not in (0, DIGEST_BYTES):
        raise BadFrame(f"proof {proof.sequence} after one of {len(proof.previous)} bytes")
    if len(proof.sketch) > MAX_SKETCH:
        raise BadProof(f"a proof with a sketch of {len(proof.sketch)} bytes, over {MAX_SKETCH}")
    stop = proof.outputs.stop
    if not 0 <= proof.start < stop or proof.inputs.stop != stop:
        raise BadProof(
            f"a proof of positions {proof.start} to {stop}, from {proof.inputs.stop} that came"
        )
    if stop > ticket.max_tokens:
        raise BadProof(f"a proof of {stop} positions, the ticket is for {ticket.max_tokens}")


def _check_voucher(proof: Proof, ticket: Ticket) -> None:
    if not proof.layers.start:
        if proof.sender or proof.voucher:
            raise BadProof("a proof of an entry with a voucher: token ids have none")
        return
    before = (*ticket.chain, *ticket.spares)
    if (proof.sender, proof.layers.start) not in {(at.peer_id, at.layers.stop) for at in before}:
        raise BadProof(
            f"a proof of rows from {proof.sender[:64]!r}, which is not before its layers"
        )
    crossing = crossing_at(proof.ticket, proof.epoch, proof.layers.start)
    sent = Sent(proof.start, proof.inputs)
    check_voucher(proof.sender, crossing, sent, proof.voucher)


def pack_batch(proofs: Iterable[SignedProof]) -> bytes:
    """Proofs one after another: u32 length, signature, payload."""
    return b"".join(
        _LENGTH.pack(len(each.payload)) + each.signature + each.payload for each in proofs
    )


def unpack_batch(data: bytes) -> list[SignedProof]:
    """The inverse. Raises BadFrame for torn bytes, or more than a batch may have."""
    if len(data) > MAX_BATCH_BYTES:
        raise BadFrame(f"a batch of {len(data)} bytes, over {MAX_BATCH_BYTES}")
    found: list[SignedProof] = []
    start = 0
    while start < len(data):
        body = start + _LENGTH.size + SIGNATURE_BYTES
        if body > len(data) or len(found) == MAX_BATCH:
            raise BadFrame(f"a batch that is torn, or of more than {MAX_BATCH} proofs")
        (length,) = _LENGTH.unpack_from(data, start)
        if body + length > len(data):
            raise BadFrame("a batch that ends inside a proof")
        signature = data[start + _LENGTH.size : body]
        found.append(SignedProof(data[body : body + length], signature))
        start = body + length
    return found
