"""A batch of proofs becomes entries, in one transaction.

A proof is kept the first time it comes, and then nobody looks at its bytes again but to bear out a
neighbour. Whenever one comes, those of its neighbours that wait are looked at once more.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from sqlalchemy import Connection

from musivum.ledger.draft import Draft, Movement
from musivum.ledger.kept import Bill, Kept, Proofs, State, key_of
from musivum.ledger.mint import UNATTESTED, Mint
from tessella.core.errors import ProofConflict, Refused, TessellaError, Unattested
from tessella.core.ids import PeerId
from tessella.core.ledger import MINT, Line
from tessella.core.proofs import Claim, SignedProof
from tessella.core.settlement import (
    Became,
    Caps,
    Outcome,
    Payment,
    attest,
    borne_out,
    pay,
    pay_unattested,
    worth,
)
from tessella.core.tickets import ANONYMOUS


@dataclass(frozen=True, slots=True)
class Settlement:
    """A proof that was paid a moment ago."""

    claim: Claim
    signed: SignedProof
    micro: int
    """Micro-credits; may be 0."""


@dataclass(slots=True)
class Settled:
    """What a batch came to."""

    outcomes: list[Outcome] = field(default_factory=list)
    """Of each bill, in order."""
    paid: list[Settlement] = field(default_factory=list)
    """Of the batch, and of neighbours that had waited."""
    conflicts: list[Claim] = field(default_factory=list)


def settle(
    connection: Connection, origin: PeerId, bills: Sequence[Bill], caps: Caps, now: float
) -> Settled:
    """Keep and pay what is to be paid of these, at `now`, within the caller's transaction."""
    batch = _Batch(connection, origin, caps, now)
    claims = [bill.claim for bill in bills]
    batch.proofs.load(claims)
    batch.expect([*claims, *(kept.claim for kept in batch.proofs if _may_be_paid(kept))])
    settled = Settled(paid=batch.paid)
    for bill in bills:
        try:
            settled.outcomes.append(batch.take(bill))
        except Refused as exc:
            settled.outcomes.append(refusal(exc))
            if isinstance(exc, ProofConflict):
                settled.conflicts.append(bill.claim)
    batch.write()
    return settled


def pay_half(
    connection: Connection, origin: PeerId, waiting: Sequence[Kept], caps: Caps, now: float
) -> list[Settlement]:
    """Pay proofs that waited too long: for what the neighbours that spoke saw, where they saw any
    of it, else a share of what they say themselves. It is kept."""
    batch = _Batch(connection, origin, caps, now)
    claims = [kept.claim for kept in waiting]
    batch.proofs.load(claims)
    batch.expect(claims)
    for claim in claims:
        batch.end_waiting(claim)
    batch.write()
    return batch.paid


def refusal(error: TessellaError) -> Outcome:
    """What is said of a proof that was refused."""
    return Outcome(Became.REFUSED, 0, error.code, error.told())


def _may_be_paid(kept: Kept) -> bool:
    return kept.state is State.WAITING and kept.has_bytes


class _Batch:
    """The transaction while it is thought through; nothing is written before `write`."""

    def __init__(self, connection: Connection, origin: PeerId, caps: Caps, now: float) -> None:
        self._caps = caps
        self._now = now
        self._draft = Draft(connection, origin, now)
        self._mint = Mint(connection, now)
        self.proofs = Proofs(connection, origin)
        self.paid: list[Settlement] = []

    def expect(self, claims: Iterable[Claim]) -> None:
        """Read at once what paying these will ask for."""
        pairs = {(claim.worker, claim.ticket.requester) for claim in claims}
        self._mint.load(pairs)
        self._draft.balances.load({requester for _, requester in pairs})

    def take(self, bill: Bill) -> Outcome:
        """What becomes of one proof. Raises ProofConflict, Unattested."""
        claim = bill.claim
        known = self.proofs.get(key_of(claim))
        if known is not None:
            return _told_again(known, claim)
        if self.proofs.has_other_after(claim):
            raise ProofConflict(f"{claim.worker} made two proofs after the same one")
        kept = self.proofs.add(bill, self._now)
        for other in self.proofs.near(claim).values():
            if other.state is State.WAITING:
                self._look_at(other)
        if kept.state is State.REFUSED:
            raise _unattested()
        if kept.state is State.WAITING:
            return Outcome(Became.WAITING)
        return Outcome(Became.PAID, kept.micro)

    def _look_at(self, kept: Kept) -> None:
        """Pay or refuse a proof that waits, if its neighbours said enough."""
        near = self.proofs.near(kept.claim)
        attested = attest(kept.claim, {place: each.claim for place, each in near.items()})
        if attested.is_refuted:
            kept.become(State.REFUSED)
        elif attested.is_settled:
            self.pay(kept, worth(kept.claim, attested.positions))

    def pay(self, kept: Kept, micro: int) -> None:
        """Pay a proof that is worth so much, as far as there is anybody to pay for it."""
        claim, requester = kept.claim, kept.claim.ticket.requester
        payment = pay(
            claim,
            micro,
            0 if requester == ANONYMOUS else self._draft.balances.balance(requester),
            self._mint.minted(claim.worker, requester),
            self._caps,
        )
        self._settle(kept, payment, requester)

    def end_waiting(self, claim: Claim) -> None:
        """Pay a proof for which nobody else is waited for."""
        kept = self.proofs.get(key_of(claim))
        if kept is None or kept.state is not State.WAITING:
            return
        near = self.proofs.near(claim)
        seen = borne_out(claim, {place: each.claim for place, each in near.items()})
        if seen:
            self.pay(kept, worth(claim, seen))
        else:
            minted = self._mint.minted(claim.worker, UNATTESTED)
            self._settle(kept, pay_unattested(claim, minted, self._caps), UNATTESTED)

    def _settle(self, kept: Kept, payment: Payment, requester: str) -> None:
        """Write a payment; `requester` is whom its mint is counted for."""
        claim = kept.claim
        movement = Movement(
            kind="payment",
            lines=_lines(claim, payment),
            issuer=claim.ticket.issuer,
            request_id=claim.request_id,
            worker=claim.worker,
        )
        entry = self._draft.append(movement)
        self._mint.count(claim.worker, requester, payment.from_mint)
        kept.become(State.PAID, payment.total, entry.sequence)
        self.paid.append(Settlement(claim, kept.signed, payment.total))

    def write(self) -> None:
        """Write all of it."""
        self._draft.write()
        self._mint.write()
        self.proofs.write()


def _told_again(known: Kept, claim: Claim) -> Outcome:
    if known.digest not in (b"", claim.digest):
        raise ProofConflict(f"{claim.worker} made two proofs of one request")
    match known.state:
        case State.PAID:
            return Outcome(Became.ALREADY_PAID, known.micro)
        case State.WAITING:
            return Outcome(Became.WAITING)
        case State.REFUSED:
            raise _unattested()


def _unattested() -> Unattested:
    return Unattested("none of its neighbours saw the same rows")


def _lines(claim: Claim, payment: Payment) -> list[Line]:
    amounts = (
        (claim.worker, payment.total),
        (claim.ticket.requester, -payment.from_requester),
        (MINT, -payment.from_mint),
    )
    return [Line(account, amount) for account, amount in amounts if amount]
