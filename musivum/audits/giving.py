"""What an auditor that asks is given, and what becomes of a task that it does not report on."""

from __future__ import annotations

from collections import Counter
from functools import partial
from itertools import filterfalse

from musivum.audits.choosing import Choosing, holds
from musivum.audits.orders import keepers_of
from musivum.audits.queue import Given, OpenAudit, OpenAudits
from musivum.nodes.node import Node
from musivum.nodes.roster import Roster
from tessella.core.ids import PeerId

# From the task to the report: rows come within ten minutes, and are computed while they do.
REPORT_SECONDS = 900.0
# Tasks that an auditor may have at once: one, and one whose answer was lost.
MAX_HELD = 2
# Workers that one auditor may have spoken against before others looked at these: each is a suspect
# until then, and is asked about nobody. Who speaks against everybody would soon be the only one.
MAX_ACCUSED = 3
# Who let a task lapse is given no other for so long.
REST_SECONDS = 600.0


class Giving:
    """Gives open audits to those who ask. `now` is seconds of a clock that never goes back."""

    def __init__(
        self, audits: OpenAudits, choosing: Choosing, roster: Roster, counters: Counter[str]
    ) -> None:
        self._open = audits
        self._choosing = choosing
        self._roster = roster
        self._counters = counters
        self._resting: dict[PeerId, float] = {}

    def ask(self, caller: PeerId, now: float) -> tuple[OpenAudit, Given] | None:
        """An audit that the caller has from here on; None if there is nothing for it."""
        node = self._choosing.heard(caller, now)
        if node is None or not self._may_have_more(caller, now):
            return None
        audit = self._chosen(node, now)
        if audit is None:
            return None
        return audit, self._open.give(audit, caller, now + REPORT_SECONDS)

    def _may_have_more(self, caller: PeerId, now: float) -> bool:
        return (
            self._resting.get(caller, 0.0) <= now
            and self._open.held_by(caller) < MAX_HELD
            and self._open.accused_by(caller) < MAX_ACCUSED
        )

    def _chosen(self, node: Node, now: float) -> OpenAudit | None:
        """The first open audit that a node may have; those that were begun come first."""
        free = self._open.free_for(partial(holds, node))
        for audit in (*filter(_is_begun, free), *filterfalse(_is_begun, free)):
            if not self._choosing.may_have(node.peer_id, audit, now):
                continue
            if self._roster.find(keepers_of(audit.claim).inputs) is not None:
                return audit
        return None

    def lapse(self, audit: OpenAudit, now: float) -> None:
        """Whoever has it for too long has it no more, and rests. Of a free one this is no error."""
        if audit.given is not None and now > audit.given.until:
            self._counters["unreported"] += 1
            self._resting[audit.given.auditor] = now + REST_SECONDS
            self._open.free(audit, now)

    def expire(self, now: float) -> None:
        """Forget who rested."""
        self._resting = {peer: until for peer, until in self._resting.items() if until > now}


def _is_begun(audit: OpenAudit) -> bool:
    return bool(audit.asked)
