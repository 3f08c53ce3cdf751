"""The proofs that were brought, as they are kept: read for a batch, changed, and written back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Any

from sqlalchemy import Connection, Row, bindparam, insert, select, update

from musivum.store.ledger_tables import PROOFS
from musivum.store.rows import parts
from tessella.core.attesting import NEIGHBOUR_SECONDS, WAIT_SECONDS
from tessella.core.errors import StoreLost, TessellaError
from tessella.core.ids import PeerId
from tessella.core.messages import Proof, Ticket, decode_sealed
from tessella.core.proofs import Claim, SignedProof, proof_hash
from tessella.core.tickets import CLOCK_SECONDS, SETTLE_SECONDS, TICKET_SECONDS, place_of

# One that waits on is not looked at again before: a sweep comes to an end whatever waits.
LEAST_SECONDS = 1.0
# How long a neighbour's proof may come after a proof, and needs its bytes.
KEEP_SECONDS = TICKET_SECONDS + SETTLE_SECONDS + CLOCK_SECONDS


class State(StrEnum):
    """What is kept of what became of a proof."""

    WAITING = "waiting"
    PAID = "paid"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Bill:
    """A proof that holds, as it was read and as it was signed."""

    claim: Claim
    signed: SignedProof


Key = tuple[bytes, PeerId, PeerId]
"""Request id, worker, issuer: for these there is one proof."""


def key_of(claim: Claim) -> Key:
    """What there is one proof for."""
    return claim.request_id, claim.worker, claim.ticket.issuer


@dataclass(eq=False)
class Kept:
    """One proof, and what became of it."""

    key: Key
    digest: bytes
    """Empty for one that another musivum paid."""
    signed: SignedProof
    """Of no bytes once these are gone."""
    received_at: float
    due_at: float
    """When it is looked at for the time that went by, if it waits still."""
    state: State = State.WAITING
    micro: int = 0
    entry: int | None = None
    is_written: bool = False
    is_changed: bool = False

    @property
    def has_bytes(self) -> bool:
        """Whether it can be read."""
        return bool(self.signed.payload)

    @cached_property
    def claim(self) -> Claim:
        """What it claims; it was verified before it was kept."""
        try:
            return read_kept(self.signed)
        except TessellaError as exc:
            raise StoreLost(f"cannot read a proof of {self.key[1]}: {exc}") from exc

    def waits_on(self, now: float) -> None:
        """One time of waiting is over, and it was looked at: the next one ends after a day."""
        self.due_at = max(self.received_at + WAIT_SECONDS, now + LEAST_SECONDS)
        self.is_changed = True

    def become(self, state: State, micro: int = 0, entry: int | None = None) -> None:
        """Settle it."""
        self.state, self.micro, self.entry, self.is_changed = state, micro, entry, True


def read_kept(signed: SignedProof) -> Claim:
    """The claim of a proof that was verified before."""
    proof = decode_sealed(signed.payload, Proof)
    ticket = decode_sealed(proof.ticket, Ticket)
    place, _ = place_of(ticket, proof.worker)
    return Claim(proof_hash(signed.payload), proof, ticket, place)


class Proofs:
    """All proofs of the requests that a batch is about, within a transaction."""

    def __init__(self, connection: Connection, origin: PeerId) -> None:
        self._connection = connection
        self._origin = origin
        self._kept: dict[Key, Kept] = {}
        self._after: dict[tuple[PeerId, bytes], bytes] = {}

    def load(self, claims: Sequence[Claim]) -> None:
        """Read what is kept of the same requests, and after the same proofs."""
        for requests in parts({claim.request_id for claim in claims}):
            asked = select(PROOFS).where(PROOFS.c.request_id.in_(requests))
            for row in self._connection.execute(asked):
                kept = kept_of(row)
                self._kept[kept.key] = kept
        columns = (PROOFS.c.worker, PROOFS.c.previous, PROOFS.c.digest)
        for before in parts({claim.proof.previous for claim in claims if claim.proof.previous}):
            others = select(*columns).where(PROOFS.c.previous.in_(before))
            for worker, previous, digest in self._connection.execute(others):
                self._after[worker, previous] = digest

    def __iter__(self) -> Iterator[Kept]:
        return iter(self._kept.values())

    def get(self, key: Key) -> Kept | None:
        """The proof for that request by that worker."""
        return self._kept.get(key)

    def has_other_after(self, claim: Claim) -> bool:
        """Whether its worker made another proof after the same one before."""
        held = self._after.get((claim.worker, claim.proof.previous))
        return held is not None and held != claim.digest

    def add(self, bill: Bill, now: float) -> Kept:
        """Keep one more."""
        claim = bill.claim
        kept = Kept(key_of(claim), claim.digest, bill.signed, now, now + NEIGHBOUR_SECONDS)
        kept.claim = claim
        self._kept[kept.key] = kept
        if claim.proof.previous:
            self._after[claim.worker, claim.proof.previous] = claim.digest
        return kept

    def chain_of(self, claim: Claim) -> dict[int, Kept]:
        """What the stages of its chain proved, itself among them: by their places, where they came
        and can be read. An issuer may have made two tickets of one request: rows of the one say
        nothing of the other."""
        ticket = claim.ticket
        found = {
            place: self._kept.get((claim.request_id, stage.peer_id, ticket.issuer))
            for place, stage in enumerate(ticket.chain)
        }
        return {
            place: kept
            for place, kept in found.items()
            if kept and kept.has_bytes and kept.claim.proof.ticket == claim.proof.ticket
        }

    def write(self) -> None:
        """Write what was added and what changed."""
        fresh = [self._row(kept) for kept in self if not kept.is_written]
        if fresh:
            self._connection.execute(insert(PROOFS), fresh)
        write_changes(self._connection, self._origin, self)

    def _row(self, kept: Kept) -> dict[str, Any]:
        proof, (request_id, worker, issuer) = kept.claim.proof, kept.key
        return {
            "request_id": request_id,
            "worker": worker,
            "issuer": issuer,
            "digest": kept.digest,
            "previous": proof.previous or None,
            "sequence": proof.sequence,
            "place": kept.claim.place,
            "state": kept.state.value,
            "micro": kept.micro,
            "received_at": kept.received_at,
            "due_at": kept.due_at,
            "keep_until": kept.received_at + KEEP_SECONDS,
            "payload": kept.signed.payload,
            "signature": kept.signed.signature,
            "origin": self._origin if kept.entry is not None else "",
            "entry": kept.entry,
        }


_CHANGE = (
    update(PROOFS)
    .where(
        PROOFS.c.request_id == bindparam("of_request"),
        PROOFS.c.worker == bindparam("of_worker"),
        PROOFS.c.issuer == bindparam("of_issuer"),
    )
    .values(
        state=bindparam("to_state"),
        micro=bindparam("to_micro"),
        origin=bindparam("to_origin"),
        entry=bindparam("to_entry"),
        due_at=bindparam("to_due_at"),
    )
)


def write_changes(connection: Connection, origin: PeerId, proofs: Iterable[Kept]) -> None:
    """Write what became of proofs that were kept before."""
    changed = [
        {
            "of_request": kept.key[0],
            "of_worker": kept.key[1],
            "of_issuer": kept.key[2],
            "to_state": kept.state.value,
            "to_micro": kept.micro,
            "to_origin": origin if kept.entry is not None else "",
            "to_entry": kept.entry,
            "to_due_at": kept.due_at,
        }
        for kept in proofs
        if kept.is_written and kept.is_changed
    ]
    if changed:
        connection.execute(_CHANGE, changed)


def kept_of(row: Row[Any]) -> Kept:
    """A row of the table."""
    return Kept(
        key=(row.request_id, row.worker, row.issuer),
        digest=row.digest,
        signed=SignedProof(row.payload, row.signature),
        received_at=row.received_at,
        due_at=row.due_at,
        state=State(row.state),
        micro=row.micro,
        entry=row.entry,
        is_written=True,
    )


def find_proof(
    connection: Connection, request_id: bytes, worker: PeerId, issuer: PeerId
) -> SignedProof | None:
    """A proof as it was signed, or None: it never came, or its bytes are gone."""
    asked = select(PROOFS.c.payload, PROOFS.c.signature).where(
        PROOFS.c.request_id == request_id, PROOFS.c.worker == worker, PROOFS.c.issuer == issuer
    )
    row = connection.execute(asked).one_or_none()
    return SignedProof(row.payload, row.signature) if row and row.payload else None
