"""The room of audits behind both doors: tasks are given, reports heard, and what follows is done.

Opening and closing: `open_audits` reads what is kept; `run` does what time asks for, and holds the
only writing that nobody waits for. Audits that are open, and marks, are forgotten at a restart.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NoReturn

import trio

from musivum.audits.choosing import ACTIVE_SECONDS, Choosing
from musivum.audits.drawing import Lots
from musivum.audits.epochs import Epochs, Writes, open_epochs
from musivum.audits.giving import Giving
from musivum.audits.hearing import Hearing
from musivum.audits.keeping import read_standings, write_standings
from musivum.audits.marks import MarkTable
from musivum.audits.opinions import UNABLE, UNAVAILABLE, WITHHELD, check_report
from musivum.audits.orders import task_of
from musivum.audits.penalties import Penalties, Remove, Slashed
from musivum.audits.queue import OpenAudit, OpenAudits
from musivum.audits.standing import BAR_DAYS
from musivum.audits.standings import Standings
from musivum.clocks import Clocks
from musivum.ledger import Refuted, Settled, Settlement
from musivum.nodes.reputation import Reputations
from musivum.nodes.roster import Roster
from tessella.core.errors import NotAuthorized, StoreUnavailable
from tessella.core.identity import Identity
from tessella.core.ids import PeerId
from tessella.core.messages import AuditReport, AuditTask, Marks
from tessella.core.proofs import Claim

logger = logging.getLogger(__name__)

# How often standings that changed are written, and what is over is looked for.
TICK_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Mesh:
    """Whose audits these are, and of which nodes."""

    identity: Identity
    roster: Roster
    reputations: Reputations
    clocks: Clocks


class Audits:
    """Audits of one musivum. `open_audits` makes it; its methods are for one trio run."""

    def __init__(
        self,
        mesh: Mesh,
        ledger: Writes,
        standings: Standings,
        epochs: Epochs,
        remove: Remove,
    ) -> None:
        self.standings = standings
        """What is known of every worker."""
        self._mesh = mesh
        self._ledger = ledger
        self._epochs = epochs
        self._counters: Counter[str] = Counter()
        self._open = OpenAudits()
        self._marks = MarkTable()
        self._choosing = Choosing(mesh.roster, standings)
        self._penalties = Penalties(ledger, standings, mesh.clocks.wall, remove)
        since = mesh.clocks.wall()
        self._lots = Lots(epochs, standings, mesh.clocks, since, self._counters)
        self._hearing = Hearing(
            self._open,
            standings,
            self._marks,
            self._penalties,
            mesh.clocks,
            self._counters,
        )
        self._giving = Giving(self._open, self._choosing, mesh.roster, self._counters)

    def hear(self, settled: Settled) -> None:
        """What a transaction of the ledger came to. The ledger's `on_settled`."""
        self.settled(settled.paid)
        self.waiting(settled.waiting)
        self.conflicted(settled.conflicts)
        self.refuted(settled.refuted)

    def settled(self, paid: Sequence[Settlement]) -> None:
        """Hops were paid: some of them are to be audited."""
        for audit in self._lots.draw(paid):
            self._add(audit)

    def _add(self, audit: OpenAudit) -> None:
        if self._open.add(audit) is not None:
            self._counters["dropped"] += 1

    def waiting(self, waiting: Sequence[Settlement]) -> None:
        """Hops that are not paid for a while are drawn as those that are."""
        for audit in self._lots.draw_early(waiting):
            self._add(audit)

    def conflicted(self, claims: Sequence[Claim]) -> None:
        """Workers signed two proofs where they may sign one."""
        for claim in claims:
            self._counters["conflicts"] += 1
            self.standings.put(self.standings.of(claim.worker).suspected())

    def refuted(self, refuted: Sequence[Refuted]) -> None:
        """Workers committed to other rows than they vouched for: what the next stage shows counts
        as what an auditor says. Who is guilty by it is punished with the next tick."""
        for each in refuted:
            self._counters["refuted"] += 1
            self._hearing.refuted(each.claim, each.by)

    async def next_task(self, caller: PeerId) -> AuditTask | None:
        """Something that the caller is to audit; None if there is nothing for it."""
        await trio.lowlevel.checkpoint()
        found = self._giving.ask(caller, self._mesh.clocks.now())
        if found is None:
            return None
        audit, given = found
        return task_of(audit, given, self._mesh.identity, self._mesh.roster, self._mesh.clocks)

    async def report(self, caller: PeerId, report: AuditReport) -> None:
        """What an auditor found.

        Raises BadRequest for what is no report, and NotAuthorized for one of an audit that the
        caller does not have, or has no more.
        """
        check_report(report)
        now = self._mesh.clocks.now()
        audit = self._open.named(report.audit_id)
        given = audit.given if audit is not None else None
        if audit is None or given is None or given.auditor != caller or now > given.until:
            raise NotAuthorized("no audit of this name is the caller's")
        self._open.free(audit, now)
        if not self.standings.is_heard(caller):
            self._counters["unheard"] += 1
        elif report.found == UNABLE:
            self._counters[UNABLE] += 1
        elif report.found in (UNAVAILABLE, WITHHELD):
            await self._hearing.in_vain(audit, report.found)
        else:
            await self._hearing.heard(audit, caller, report)

    async def marks(self, caller: PeerId, marks: Marks) -> None:
        """What a node marked. Raises NotAuthorized for a caller that is none here, and BadRequest.

        Which nodes do that is their secret. A mark says nothing by itself: it counts where an audit
        measures that very gain at the one that it names.
        """
        await trio.lowlevel.checkpoint()
        if self._mesh.roster.find(caller) is None:
            raise NotAuthorized(f"{caller} is no node of this mesh")
        self._marks.put(caller, marks, self._mesh.clocks.wall())

    async def slash(
        self, peer_id: PeerId, reason: str, micro: int | None = None, days: float = BAR_DAYS
    ) -> Slashed:
        """Bar a peer and fine it, by an operator's word; without `micro`, of what a day brought it.

        Raises BadRequest for what is no peer, no sum or no number of days, and StoreUnavailable
        where nothing was done.
        """
        slashed = await self._penalties.slash(peer_id, reason, micro, days)
        self._counters["slashed"] += 1
        if days:
            self._hearing.drop(peer_id)
        return slashed

    async def appeal(self, peer_id: PeerId, reason: str = "") -> Slashed:
        """Take back all that is held against a peer.

        Raises Refused where there is nothing, and StoreUnavailable where nothing was done.
        """
        return await self._penalties.appeal(peer_id, reason)

    def barred(self, peer_id: PeerId) -> str | None:
        """Why a peer is let in nowhere; None for one that may come in."""
        return self.standings.barred(peer_id)

    def is_barred(self, peer_id: PeerId) -> bool:
        """Whether a peer is let in nowhere."""
        return self.standings.is_barred(peer_id)

    def suspects(self, peer_id: PeerId) -> bool:
        """Whether all of a peer's hops are audited for what was found of it."""
        return self.standings.is_suspect(peer_id)

    def is_benched(self, peer_id: PeerId) -> bool:
        """Whether no ticket may name a peer, since it hides what it was asked."""
        return self.standings.is_benched(peer_id)

    def held_against(self, peer_id: PeerId) -> str:
        """What audits found of a peer that matters now, in a sentence; empty for nothing."""
        return self.standings.of(peer_id).held_against(self._mesh.clocks.wall())

    def weight(self, peer_id: PeerId) -> float:
        """How many times as dear as it measures a node is to routing: 1 to 2."""
        return self.standings.weight(peer_id)

    def counters(self) -> dict[str, int]:
        """Audits by what became of them since the start, and how many are open now."""
        shown = ("drawn", "passed", "rejected", "unavailable", "expired", "slashed")
        found = dict.fromkeys(shown, 0) | dict(self._counters)
        return {"open": len(self._open), **dict(sorted(found.items()))}

    async def tick(self) -> None:
        """What time asks for: lapsed tasks, closed audits, the next epoch, standings to write.

        Raises StoreUnavailable, and does what is left the next time.
        """
        now, wall = self._mesh.clocks.now(), self._mesh.clocks.wall()
        self._giving.expire(now)
        self._choosing.expire(now)
        self._marks.expire(wall)
        for audit in self._open:
            if audit in self._open:
                await self._look_at(audit, now)
        await self._hearing.punish_refuted()
        await self._epochs.turn()
        await self._penalties.collect_all()
        await self.flush()

    async def _look_at(self, audit: OpenAudit, now: float) -> None:
        if self.standings.is_barred(audit.worker):
            self._hearing.drop(audit.worker)
            return
        self._giving.lapse(audit, now)
        if audit.given is not None:
            return
        is_old = now > audit.closes_at
        is_left = bool(audit.opinions or audit.in_vain) and now - audit.free_since > ACTIVE_SECONDS
        if is_old or (is_left and not self._choosing.has_other(audit, now)):
            await self._hearing.expire(audit)

    async def flush(self) -> None:
        """Write the standings that changed. Raises StoreUnavailable, and they stay changed."""
        changed = self.standings.take_changed()
        if not changed:
            return
        try:
            await self._ledger.write(lambda draft: write_standings(draft.connection, changed))
        except StoreUnavailable:
            self.standings.put_back(changed)
            raise


async def open_audits(mesh: Mesh, ledger: Writes, remove: Remove) -> Audits:
    """Audits as the store kept them; whoever is barred is taken out of the roster.

    `remove` is called for whoever is barred from here on. Raises StoreUnavailable, StoreLost.
    """
    saved = await ledger.write(lambda draft: read_standings(draft.connection))
    standings = Standings(saved, mesh.reputations, mesh.clocks.wall)
    epochs = await open_epochs(ledger, mesh.clocks.wall)
    for standing in saved:
        if standings.is_barred(standing.peer_id):
            mesh.roster.leave(standing.peer_id)
    return Audits(mesh, ledger, standings, epochs, remove)


async def run_audits(audits: Audits, ready: Callable[[], None] = lambda: None) -> NoReturn:
    """Do what time asks for, until cancelled; what changed last is written then. Raises StoreLost.

    `ready` is called once it has been done for the first time.
    """
    try:
        while True:
            try:
                await audits.tick()
            except StoreUnavailable as exc:
                logger.warning("audits are not kept: %s", exc)
            ready()
            ready = _nothing
            await trio.sleep(TICK_SECONDS)
    finally:
        with trio.move_on_after(TICK_SECONDS) as scope:
            scope.shield = True
            await audits.flush()


def _nothing() -> None:
    return None
