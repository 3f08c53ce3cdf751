"""One transaction in which proofs become entries, thought through before it is written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection

from musivum.ledger.accounts import read_earned
from musivum.ledger.draft import Draft, Movement
from musivum.ledger.kept import Bill, Disputed, Kept, Key, Proofs, State, key_of
from musivum.ledger.mint import UNATTESTED, Mint
from tessella.core.attesting import Attested, Ruling, Stages, Word
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
    is_contradicted: bool = False
    """Whether a neighbour says that other rows went: then an audit looked already, or could not."""


@dataclass(frozen=True, slots=True)
class _Chain:
    """The proofs of one chain that came in, by their places, and what they make of each other."""

    kept: Mapping[int, Kept]
    stages: Stages


class Batch:
    """Takes, looks at and pays proofs. Nothing is written before `write`, within the caller's
    transaction; what is called about a proof was loaded before."""

    def __init__(self, connection: Connection, origin: PeerId, caps: Caps, now: float) -> None:
        self._caps = caps
        self._now = now
        self._draft = Draft(connection, origin, now)
        self._mint = Mint(connection, now)
        self._proofs = Proofs(connection, origin)
        self._disputed: dict[Key, Disputed] = {}
        self._miscounts: set[tuple[PeerId, PeerId]] = set()
        self.paid: list[Settlement] = []
        self.waiting: list[Settlement] = []
        """What goes on waiting for others, and can be looked at in the meantime."""

    @property
    def disputed(self) -> list[Disputed]:
        """Whose rows audits have to look at before others are paid."""
        return list(self._disputed.values())

    @property
    def miscounts(self) -> list[tuple[PeerId, PeerId]]:
        """Pairs of neighbours of whom one counts wrongly."""
        return sorted(self._miscounts)

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
        self._look_around(claim)
        if kept.state is State.REFUSED:
            raise _unattested()
        if kept.state is State.WAITING:
            return Outcome(Became.WAITING)
        return Outcome(Became.PAID, kept.micro)

    def rule(self, claim: Claim, ruling: Ruling) -> None:
        """An audit found this of the rows that a proof says were sent. Another ruling on the same
        proof changes nothing."""
        kept = self._proofs.get(key_of(claim))
        if kept is not None and kept.has_bytes and kept.ruling is None:
            kept.rule(ruling)
            self._look_around(claim)

    def wait_is_over(self, claim: Claim) -> None:
        """Look again at a proof that waited for a time of waiting."""
        kept = self._proofs.get(key_of(claim))
        if kept is None or kept.state is not State.WAITING:
            return
        attested = self._look_at(kept, self._chain_of(claim))
        if kept.state is State.WAITING:
            kept.waits_on(self._now)
            if not attested.is_contradicted:
                self.waiting.append(Settlement(claim, kept.signed, 0, kept.received_at))

    def _look_around(self, claim: Claim) -> None:
        """A proof says something new: whoever waits in its chain may be paid."""
        chain = self._chain_of(claim)
        for other in chain.kept.values():
            if other.state is State.WAITING:
                # An issuer may have made two tickets of one request, with other chains.
                is_of_it = other.claim.proof.ticket == claim.proof.ticket
                self._look_at(other, chain if is_of_it else self._chain_of(other.claim))

    def _chain_of(self, claim: Claim) -> _Chain:
        kept = self._proofs.chain_of(claim)
        return _Chain(kept, _stages(kept))

    def _look_at(self, kept: Kept, chain: _Chain) -> Attested:
        """Pay or refuse a proof that waits in a chain, if enough was said of it."""
        attested = self._attested(kept, chain)
        match attested.word:
            case Word.BORNE_OUT:
                self._pay(kept, attested)
            case Word.UNATTESTED:
                self._pay_unattested(kept, attested)
            case Word.REFUTED:
                kept.become(State.REFUSED)
            case Word.SILENT | Word.DISPUTED:
                pass
        return attested

    def _attested(self, kept: Kept, chain: _Chain) -> Attested:
        attested = chain.stages.attest(kept.claim.place, self._now - kept.received_at)
        for places in chain.stages.miscounts():
            before, behind = (chain.kept[place].claim.worker for place in places)
            self._miscounts.add((before, behind))
        for place in attested.asks:
            self._disputed[chain.kept[place].key] = chain.kept[place].disputed
        return attested

    def _pay(self, kept: Kept, attested: Attested) -> None:
        """Pay a proof, as far as there is anybody to pay for it."""
        claim, requester = kept.claim, kept.claim.ticket.requester
        payment = pay(
            claim,
            worth(claim, attested.positions),
            0 if requester == ANONYMOUS else self._draft.balances.balance(requester),
            self._mint.minted(claim.worker, requester),
            self._caps,
        )
        self._settle(kept, attested, payment, requester)

    def _pay_unattested(self, kept: Kept, attested: Attested) -> None:
        claim = kept.claim
        minted = self._mint.minted(claim.worker, UNATTESTED)
        since = kept.received_at - SECONDS_A_DAY
        earned = read_earned(self._draft.connection, claim.worker, since)
        micro = worth(claim, attested.positions)
        payment = pay_unattested(claim, micro, earned, minted, self._caps)
        self._settle(kept, attested, payment, UNATTESTED)

    def _settle(self, kept: Kept, attested: Attested, payment: Payment, requester: str) -> None:
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
        is_contradicted = attested.is_contradicted or kept.ruling is not None
        self.paid.append(
            Settlement(claim, kept.signed, payment.total, kept.received_at, is_contradicted)
        )

    def write(self) -> None:
        """Write all of it."""
        self._draft.write()
        self._mint.write()
        self._proofs.write()


def _stages(chain: Mapping[int, Kept]) -> Stages:
    return Stages({place: kept.heard for place, kept in chain.items()})


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
            raise _unattested()


def _unattested() -> Unattested:
    return Unattested("an audit told against it, and for the neighbour that contradicts it")


def _lines(claim: Claim, payment: Payment) -> list[Line]:
    amounts = (
        (claim.worker, payment.total),
        (claim.ticket.requester, -payment.from_requester),
        (MINT, -payment.from_mint),
    )
    return [Line(account, amount) for account, amount in amounts if amount]


def read_disputes(
    connection: Connection, origin: PeerId, waiting: Sequence[Kept]
) -> list[Disputed]:
    """Whose rows audits have to look at, for any of these proofs to be paid."""
    proofs = Proofs(connection, origin)
    proofs.load([kept.claim for kept in waiting])
    found: dict[Key, Disputed] = {}
    for kept in waiting:
        stages = proofs.chain_of(kept.claim)
        for place in _stages(stages).attest(kept.claim.place).asks:
            found[stages[place].key] = stages[place].disputed
    return list(found.values())
