"""Which hops are audited: by lot, with a secret that nobody outside knows until it is used up.

share       all of a worker's first hops and of a suspect's, then ever fewer, never below 5 %
late        a proof that comes when what was kept of it is gone tells as much as hidden rows
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from musivum.audits.choosing import class_of
from musivum.audits.epochs import Epochs
from musivum.audits.queue import OPEN_SECONDS, OpenAudit
from musivum.audits.standings import Standings
from musivum.clocks import Clocks
from musivum.ledger import Settlement
from tessella.core.audits import is_drawn
from tessella.core.tickets import START_SECONDS

# Proofs that were drawn, or not, before they were paid, so that they are not drawn again. Their
# rows are gone before so many more have waited.
MAX_EARLY = 65_536
# A session that began as late as it might, and ran for as long as what is kept of it.
LATE_SECONDS = START_SECONDS + 7200.0


@dataclass(frozen=True, slots=True)
class Lots:
    """What hops are drawn by. `since` is from when on musivum could be told of them."""

    epochs: Epochs
    standings: Standings
    clocks: Clocks
    since: float
    counters: Counter[str]
    early: dict[bytes, None] = field(default_factory=dict)
    """Digests of proofs that were drawn, or not, while they waited; the oldest first."""

    def draw_early(self, waiting: Iterable[Settlement]) -> list[OpenAudit]:
        """The audits of hops that are not paid yet, as they wait for others: later nothing is left
        to look at."""
        found = self.draw(waiting)
        for each in waiting:
            self.early[each.claim.digest] = None
        for digest in list(self.early)[: max(0, len(self.early) - MAX_EARLY)]:
            del self.early[digest]
        return found

    def draw(self, paid: Iterable[Settlement]) -> list[OpenAudit]:
        """The audits of hops that were paid a moment ago; each is counted for its worker."""
        return [audit for each in paid if (audit := self._drawn(each)) is not None]

    def _drawn(self, settlement: Settlement) -> OpenAudit | None:
        standing = self.standings.of(settlement.claim.worker)
        if settlement.claim.digest in self.early or self.standings.is_barred(standing.peer_id):
            return None
        if self._closes_at(settlement) is None:
            # It counts for no trust either: nobody could have looked at it.
            self.counters["stale"] += 1
            return None
        share = standing.share
        self.standings.put(standing.after_hop())
        if not is_drawn(self.epochs.secret, settlement.claim.digest, share):
            return None
        if self._was_held_back(settlement):
            self.counters["late"] += 1
            late = self.standings.of(standing.peer_id).after_audit(shown=False)
            self.standings.put(late)
            return None
        return self._open(settlement)

    def _was_held_back(self, settlement: Settlement) -> bool:
        """Whether a proof came when nobody had to keep anything of it, and might have before."""
        issued_at = settlement.claim.ticket.issued_at
        return issued_at >= self.since and settlement.received_at > issued_at + LATE_SECONDS

    def _open(self, hop: Settlement) -> OpenAudit | None:
        klass, closes_at = class_of(hop.claim), self._closes_at(hop)
        if klass is None:
            self.counters["undeclared"] += 1
        elif closes_at is None:
            self.counters["stale"] += 1
        else:
            self.counters["drawn"] += 1
            now = self.clocks.now()
            return OpenAudit(hop.claim, hop.signed, klass, closes_at, now)
        return None

    def _closes_at(self, hop: Settlement) -> float | None:
        """Until when the rows of a hop have to be there; None where that is over."""
        left = hop.received_at + OPEN_SECONDS - self.clocks.wall()
        return self.clocks.now() + left if left > 0 else None
