"""What makes proofs become entries: that they come, and that time goes by.

A proof is kept the first time it comes, and then nobody looks at its bytes again but to bear out a
neighbour. Those that wait are looked at once more whenever a neighbour's comes, or a time of
waiting is over. Each function here is one transaction, of the caller.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from sqlalchemy import Connection

from musivum.ledger.batch import Batch, Refuted, Settlement
from musivum.ledger.kept import Bill, Kept
from tessella.core.errors import ProofConflict, Refused, TessellaError
from tessella.core.ids import PeerId
from tessella.core.proofs import Claim
from tessella.core.settlement import Became, Caps, Outcome


@dataclass(slots=True)
class Settled:
    """What a transaction came to."""

    outcomes: list[Outcome] = field(default_factory=list)
    """Of each bill that was brought, in order."""
    paid: list[Settlement] = field(default_factory=list)
    """Of what was brought, and of what had waited."""
    conflicts: list[Claim] = field(default_factory=list)
    """Proofs whose worker made others in their place; each time that they are brought."""
    refuted: list[Refuted] = field(default_factory=list)
    """Proofs of other rows than their worker vouched for; once, though they were paid before."""
    waiting: list[Settlement] = field(default_factory=list)
    """What goes on waiting for others, and was not paid yet."""


def settle(
    connection: Connection, origin: PeerId, bills: Sequence[Bill], caps: Caps, now: float
) -> Settled:
    """Keep these, and pay what is to be paid at `now`."""
    batch = Batch(connection, origin, caps, now)
    batch.load([bill.claim for bill in bills])
    settled = Settled(paid=batch.paid)
    for bill in bills:
        try:
            settled.outcomes.append(batch.take(bill))
        except Refused as exc:
            settled.outcomes.append(refusal(exc))
            if isinstance(exc, ProofConflict):
                settled.conflicts.append(bill.claim)
    settled.refuted = batch.refuted
    batch.write()
    return settled


def settle_due(
    connection: Connection, origin: PeerId, due: Sequence[Kept], caps: Caps, now: float
) -> Settled:
    """Look again at proofs whose time of waiting is over."""
    batch = Batch(connection, origin, caps, now)
    claims = [kept.claim for kept in due]
    batch.load(claims)
    for claim in claims:
        batch.wait_is_over(claim)
    batch.write()
    return Settled(paid=batch.paid, waiting=batch.waiting)


def refusal(error: TessellaError) -> Outcome:
    """What is said of a proof that was refused."""
    return Outcome(Became.REFUSED, 0, error.code, error.told())
