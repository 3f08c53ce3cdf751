"""One transaction in which proofs become entries, thought through before it is written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection

from musivum.ledger.accounts import read_earned
from musivum.ledger.draft import Draft, Movement
from musivum.ledger.kept import Bill, Kept, Proofs, State, key_of
from musivum.ledger.mint import UNATTESTED, Mint
from tessella.core.attesting import Stages, Word
from tessella.core.errors import ProofConflict, Unattested
from tessella.core.ids import PeerId
from tessella.core.ledger import MINT, Line
from tessella.core.proofs import Claim, SignedProof
from tessella.core.settlement import (
    SECONDS_A_DAY,
    Became,
    Caps,
    Outcome,
    Payment,
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
    received_at: float
    """When the proof came, in seconds since 1970; it may have waited since."""


@dataclass(frozen=True, slots=True)
class _Chain:
    """The proofs of one chain that came in, by their places, and what they make of each other."""

    kept: Mapping[int, Kept]
    stages: Stages


@dataclass(frozen=True, slots=True)
class Refuted:
    """Somebody committed to other rows than it vouched for."""

    claim: Claim
    by: PeerId
    """Who took the rows, and brought the voucher."""


class Batch:
    """Takes, looks at and pays proofs. Nothing is written before `write`, within the caller's
    transaction; what is called about a proof was loaded before."""

    def __init__(self, connection: Connection, origin: PeerId, caps: Caps, now: float) -> None:
        self._caps = caps
        self._now = now
        self._draft = Draft(connection, origin, now)
        self._mint = Mint(connection, now)
        self._proofs = Proofs(connection, origin)
        self.paid: list[Settlement] = []
        self.waiting: list[Settlement] = []
        """What goes on waiting for others, and can be looked at in the meantime."""
        self.refuted: list[Refuted] = []
        """Whom what was taken shows to have lied, paid or not; each is told once."""

    def load(self, claims: Sequence[Claim]) -> None:
        """Read at once all that is kept of the same requests, and what paying that asks for."""
        self._proofs.load(claims)
        waiting = (kept.claim for kept in self._proofs if _may_be_paid(kept))
        pairs = {(claim.worker, claim.ticket.requester) for claim in (*claims, *waiting)}
        self._mint.load(pairs)
        self._draft.balances.load({requester for _, requester in pairs})

    def take(self, bill: Bill) -> Outcome:
        """What becomes of one proof. Raises ProofConflict, Unattested."""
        claim = bill.claim
        known = self._proofs.get(key_of(claim))
        if known is not None:
            return _told_again(known, claim)
        if self._proofs.has_other_after(claim):
            raise ProofConflict(f"{claim.worker} made two proofs after the same one")
        kept = self._proofs.add(bill, self._now)
        chain = self._chain_of(claim)
        for other in chain.kept.values():
            if other.state is State.WAITING:
                self._look_at(other, chain)
        self._tell_refuted(claim.place, chain)
        if kept.state is State.REFUSED:
            raise _refuted()
        if kept.state is State.WAITING:
            return Outcome(Became.WAITING)
        return Outcome(Became.PAID, kept.micro)

    def wait_is_over(self, claim: Claim) -> None:
        """Look again at a proof that waited for a time of waiting."""
        kept = self._proofs.get(key_of(claim))
        if kept is None or kept.state is not State.WAITING:
            return
        self._look_at(kept, self._chain_of(claim))
        if kept.state is State.WAITING:
            kept.waits_on(self._now)
            self.waiting.append(Settlement(claim, kept.signed, 0, kept.received_at))

    def _chain_of(self, claim: Claim) -> _Chain:
        kept = self._proofs.chain_of(claim)
        return _Chain(kept, Stages({place: each.claim for place, each in kept.items()}))

    def _tell_refuted(self, taken: int, chain: _Chain) -> None:
        """A proof shows what the one in front of it sent, and the one behind it what it did."""
        for place in (taken - 1, taken):
            if place in chain.stages.refuted:
                behind = chain.kept[place + 1].claim
                self.refuted.append(Refuted(chain.kept[place].claim, behind.worker))

    def _look_at(self, kept: Kept, chain: _Chain) -> None:
        """Pay or refuse a proof that waits in a chain, if enough was said of it."""
        attested = chain.stages.attest(kept.claim.place, self._now - kept.received_at)
        match attested.word:
            case Word.BORNE_OUT:
                self._pay(kept, attested.positions)
            case Word.UNATTESTED:
                self._pay_unattested(kept, attested.positions)
            case Word.REFUTED:
                kept.become(State.REFUSED)
            case Word.SILENT:
                pass

    def _pay(self, kept: Kept, positions: int) -> None:
        """Pay a proof, as far as there is anybody to pay for it."""
        claim, requester = kept.claim, kept.claim.ticket.requester
        payment = pay(
            claim,
            worth(claim, positions),
            0 if requester == ANONYMOUS else self._draft.balances.balance(requester),
            self._mint.minted(claim.worker, requester),
            self._caps,
        )
        self._settle(kept, payment, requester)

    def _pay_unattested(self, kept: Kept, positions: int) -> None:
        claim = kept.claim
        minted = self._mint.minted(claim.worker, UNATTESTED)
        since = kept.received_at - SECONDS_A_DAY
        earned = read_earned(self._draft.connection, claim.worker, since)
        micro = worth(claim, positions)
        payment = pay_unattested(claim, micro, earned, minted, self._caps)
        self._settle(kept, payment, UNATTESTED)

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
        self.paid.append(Settlement(claim, kept.signed, payment.total, kept.received_at))

    def write(self) -> None:
        """Write all of it."""
        self._draft.write()
        self._mint.write()
        self._proofs.write()


def _may_be_paid(kept: Kept) -> bool:
    return kept.state is State.WAITING and kept.has_bytes


def _told_again(known: Kept, claim: Claim) -> Outcome:
    if known.digest not in (b"", claim.digest):
        raise ProofConflict(f"{claim.worker} made two proofs of one request")
    match known.state:
        case State.PAID:
            return Outcome(Became.ALREADY_PAID, known.micro)
        case State.WAITING:
            return Outcome(Became.WAITING)
        case State.REFUSED:
            raise _refuted()


def _refuted() -> Unattested:
    return Unattested("it commits to other rows than its worker vouched for to the next stage")


def _lines(claim: Claim, payment: Payment) -> list[Line]:
    amounts = (
        (claim.worker, payment.total),
        (claim.ticket.requester, -payment.from_requester),
        (MINT, -payment.from_mint),
    )
    return [Line(account, amount) for account, amount in amounts if amount]
