"""What is done once something is said of a hop: suspicion at once, the rest when it is sure."""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import replace

from musivum.audits.marks import MarkTable
from musivum.audits.opinions import (
    SKETCHED,
    UNAVAILABLE,
    WITHHELD,
    Next,
    findings,
    is_split,
    next_after,
    opinion_of,
    ruling_of,
)
from musivum.audits.orders import keepers_of
from musivum.audits.penalties import Penalties
from musivum.audits.queue import OpenAudit, OpenAudits
from musivum.audits.rulings import Rulings
from musivum.audits.standings import Standings
from musivum.clocks import Clocks
from tessella.core.attesting import Ruling
from tessella.core.audits import Finding, Verdict, is_guilty
from tessella.core.ids import PeerId
from tessella.core.messages import AuditReport
from tessella.core.settlement import worth
from tessella.core.tickets import CLOCK_SECONDS

logger = logging.getLogger(__name__)

# Auditors that may find the rows gone before an audit is given up: one of them may be cut off.
MAX_IN_VAIN = 2


class Hearing:
    """Hears auditors about open audits, and closes these."""

    def __init__(
        self,
        audits: OpenAudits,
        standings: Standings,
        marks: MarkTable,
        penalties: Penalties,
        rulings: Rulings,
        clocks: Clocks,
        counters: Counter[str],
    ) -> None:
        self._open = audits
        self._standings = standings
        self._marks = marks
        self._penalties = penalties
        self._rulings = rulings
        self._clocks = clocks
        self._counters = counters

    async def in_vain(
        self, audit: OpenAudit, auditor: PeerId, word: str, *, has_other: bool
    ) -> None:
        """An auditor could not see the rows: another one tries, if there is any."""
        audit.in_vain.append(auditor)
        audit.is_withheld = word == WITHHELD
        if len(audit.in_vain) >= MAX_IN_VAIN or not has_other:
            await self.expire(audit)

    async def _give_up(self, audit: OpenAudit) -> None:
        """What could not be seen speaks against who had to keep it, be that the audited or not."""
        self._counters[WITHHELD if audit.is_withheld else UNAVAILABLE] += 1
        hider = audit.worker if audit.is_withheld else keepers_of(audit.claim).inputs
        self._shown(hider, is_shown=False)
        self._open.close(audit)
        if hider == audit.worker:
            await self._rule(audit, Ruling.WRONG)

    def _shown(self, peer_id: PeerId, *, is_shown: bool) -> None:
        standing = self._standings.of(peer_id)
        self._standings.put(standing.after_audit(self._clocks.wall(), shown=is_shown))

    async def _rule(self, audit: OpenAudit, ruling: Ruling | None) -> None:
        """Tell the ledger what was found of a disputed proof."""
        if not audit.decides or ruling is None:
            return
        if ruling is Ruling.RIGHT:
            self._contradicted(audit)
        self._counters[f"ruled {ruling.value}"] += 1
        await self._rulings.put(audit.claim, ruling)

    def _contradicted(self, audit: OpenAudit) -> None:
        """Rows that were borne out are not those that the stage behind says came.

        It lies, or was sent others than it was told of: nobody else can tell. Who does either does
        it to many, and an honest node meets few that do it. So whichever of the two was at odds
        with more others of late is looked at, and counted as one that hides. Those that are out by
        now speak for themselves: whoever met one of them is no worse for the next.
        """
        now, claim = self._clocks.wall(), audit.claim
        before, behind = audit.worker, claim.ticket.chain[claim.place + 1].peer_id
        odds = {}
        for one, other in ((behind, before), (before, behind)):
            standing = self._standings.of(one).after_dispute(other, now)
            self._standings.put(standing)
            odds[one] = sum(not self._is_out(peer) for peer in standing.at_odds(now))
        blamed = max(odds, key=lambda peer: odds[peer])
        self._shown(blamed, is_shown=False)
        self._standings.put(self._standings.of(blamed).suspected())

    def _is_out(self, peer_id: PeerId) -> bool:
        return self._standings.is_barred(peer_id) or self._standings.is_benched(peer_id)

    async def heard(self, audit: OpenAudit, auditor: PeerId, report: AuditReport) -> None:
        """An auditor says what it saw of a hop."""
        claim = audit.claim
        opinion = opinion_of(auditor, report, audit.klass, len(claim.proof.layers))
        self._open.say(audit, opinion)
        self._shown(audit.worker, is_shown=report.found != SKETCHED)
        if opinion.is_bad:
            logger.info("rejected: %s by %s: %s", audit.worker, auditor, opinion.reason)
            self._suspect(audit, audit.worker)
            canary = self._copied_from(audit)
            if canary is not None:
                await self._copied(audit, canary)
                return
        if len(audit.opinions) == 2 and is_split(audit.opinions):
            self._counters["split"] += 1
            for each in audit.opinions:
                self._suspect(audit, each.auditor)
        if next_after(audit.opinions, decides=audit.decides) is not Next.ASK_ANOTHER:
            await self._close(audit)

    def _suspect(self, audit: OpenAudit, peer_id: PeerId) -> None:
        standing = self._standings.of(peer_id)
        audit.lifted.setdefault(peer_id, standing.suspect_left)
        self._standings.put(standing.suspected())

    def _copied_from(self, audit: OpenAudit) -> PeerId | None:
        """The canary whose mark two auditors measured unknowingly: one might be its friend."""
        bad = [opinion for opinion in audit.opinions if opinion.is_bad]
        if len(bad) < 2:
            return None
        parties = {audit.worker, *(opinion.auditor for opinion in audit.opinions)}
        ticket = audit.claim.ticket
        during = (ticket.issued_at - CLOCK_SECONDS, ticket.expires_at + CLOCK_SECONDS)

        def trusts(canary: PeerId) -> bool:
            return canary not in parties and not self._standings.is_barred(canary)

        found = {self._marks.find(audit.worker, each.gain, during, trusts) for each in bad}
        return found.pop() if len(found) == 1 else None

    async def _copied(self, audit: OpenAudit, canary: PeerId) -> None:
        request_id = audit.claim.request_id
        bad = [each for each in audit.opinions if each.is_bad]
        found = [Finding(Verdict.FRAUD, each.auditor, request_id) for each in bad]
        self._counters["copied"] += 1
        await self._decide(audit, found, f"copied from {canary}")

    async def expire(self, audit: OpenAudit) -> None:
        """Nobody else will look at a hop: what was said of it is all there is."""
        if audit.opinions:
            await self._close(audit)
        elif audit.in_vain:
            await self._give_up(audit)
        else:
            self._counters["expired"] += 1
            self._open.close(audit)

    async def _close(self, audit: OpenAudit) -> None:
        bad = [each.reason for each in audit.opinions if each.is_bad]
        found = findings(audit.opinions, audit.claim.request_id)
        if len(audit.opinions) > 2:
            self._settle_split(audit, is_cleared=len(bad) == 1)
        await self._decide(audit, found, bad[-1] if bad else "")

    def _settle_split(self, audit: OpenAudit, *, is_cleared: bool) -> None:
        """Those whom the majority bears out are suspects no more, if nothing else is against them:
        the auditors of that side, and the worker where it passed. The other one is not asked."""
        right = {each.auditor for each in audit.opinions if each.is_bad != is_cleared}
        for each in audit.opinions:
            if each.auditor not in right:
                known = self._standings.of(each.auditor)
                self._standings.put(known.after_outvoted(self._clocks.wall()))
        for peer_id in right | ({audit.worker} if is_cleared else set()):
            before = audit.lifted.get(peer_id)
            standing = self._standings.of(peer_id)
            others = any(peer_id in each.lifted for each in self._open if each is not audit)
            has_bad = any(each.verdict is not Verdict.PASSED for each in standing.record.findings)
            if before is not None and not others and not has_bad:
                left = min(before, standing.suspect_left)
                self._standings.put(replace(standing, suspect_left=left))

    async def _decide(self, audit: OpenAudit, found: list[Finding], reason: str) -> None:
        """Put findings on record, and punish a worker that is guilty by now."""
        self._open.close(audit)
        standing = self._standings.of(audit.worker)
        for finding in found:
            standing = standing.found(finding, self._clocks.wall())
        if found:
            self._standings.put(standing)
            is_passed = found[-1].verdict is Verdict.PASSED
            self._counters["passed" if is_passed else "rejected"] += 1
        else:
            self._counters["undecided"] += 1
        await self._rule(audit, ruling_of(audit.opinions))
        if is_guilty(standing.record):
            await self._punish(audit, reason)

    async def _punish(self, audit: OpenAudit, reason: str) -> None:
        proof = audit.claim.proof
        hop_micro = worth(audit.claim, proof.outputs.stop - proof.start)
        if await self._penalties.punish(audit.worker, reason, hop_micro):
            self._counters["slashed"] += 1
        await self.drop(audit.worker)

    async def drop(self, peer_id: PeerId) -> None:
        """Look no further at one who is barred, and believe nothing that it says."""
        for audit in self._open.of(peer_id):
            self._open.close(audit)
            await self._rule(audit, Ruling.WRONG)
