"""Which hops are audited: by lot, with a secret that nobody outside knows until it is used up.

share       all of a worker's first hops and of a suspect's, then ever fewer, never below 5 %
late        one that is settled when what was kept of it is gone tells as much as hidden rows
disputed    all, before they are paid; what was found of them is not asked for again
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from musivum.audits.choosing import class_of
from musivum.audits.epochs import Epochs
from musivum.audits.queue import OPEN_SECONDS, OpenAudit
from musivum.audits.standings import Standings
from musivum.clocks import Clocks
from musivum.ledger import Bill, Settlement
from tessella.core.audits import is_drawn
from tessella.core.tickets import START_SECONDS

# A session that began as late as it might, and ran for as long as what is kept of it.
LATE_SECONDS = START_SECONDS + 2 * OPEN_SECONDS


def draw(
    paid: Iterable[Settlement],
    epochs: Epochs,
    standings: Standings,
    clocks: Clocks,
    counters: Counter[str],
) -> list[OpenAudit]:
    """The audits of hops that were paid a moment ago; each is counted for its worker."""
    found = []
    for settlement in paid:
        standing = standings.of(settlement.claim.worker)
        share = standing.share
        standings.put(standing.after_hop())
        if settlement.is_ruled or standings.is_barred(standing.peer_id):
            continue
        if not is_drawn(epochs.secret, settlement.signed.digest, share):
            continue
        klass = class_of(settlement.claim)
        if klass is None:
            counters["undeclared"] += 1
        elif clocks.wall() > settlement.claim.ticket.issued_at + LATE_SECONDS:
            counters["late"] += 1
            standings.put(standings.of(standing.peer_id).after_audit(clocks.wall(), shown=False))
        else:
            counters["drawn"] += 1
            bill = Bill(settlement.claim, settlement.signed)
            found.append(OpenAudit(bill, klass, clocks.now(), clocks.now()))
    return found


def dispute(bill: Bill, clocks: Clocks, counters: Counter[str]) -> OpenAudit | None:
    """The audit that tells whether the rows of a proof are what its worker sent; None of who does
    not declare how it computes."""
    klass = class_of(bill.claim)
    counters["undeclared" if klass is None else "disputed"] += 1
    if klass is None:
        return None
    return OpenAudit(bill, klass, clocks.now(), clocks.now(), decides=True)
