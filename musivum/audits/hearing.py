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
)
from musivum.audits.orders import keepers_of
from musivum.audits.penalties import Penalties
from musivum.audits.queue import OpenAudit, OpenAudits
from musivum.audits.standings import Standings
from musivum.clocks import Clocks
from tessella.core.audits import Finding, Verdict, is_guilty
from tessella.core.ids import PeerId
from tessella.core.messages import AuditReport
from tessella.core.proofs import Claim
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
        clocks: Clocks,
        counters: Counter[str],
    ) -> None:
        self._open = audits
        self._standings = standings
        self._marks = marks
        self._penalties = penalties
        self._clocks = clocks
        self._counters = counters
        # Of each worker that is guilty by what others showed, one of these hops.
        self._guilty: dict[PeerId, Claim] = {}

    async def in_vain(self, audit: OpenAudit, word: str) -> None:
        """An auditor could not see the rows: another one tries."""
        audit.in_vain.append(word)
        if len(audit.in_vain) >= MAX_IN_VAIN:
            await self.expire(audit)

    def _give_up(self, audit: OpenAudit) -> None:
        """What two auditors could not see speaks against who had to keep it; one may be cut off."""
        words = set(audit.in_vain)
        word = words.pop() if len(words) == 1 else UNAVAILABLE
        self._counters[word] += 1
        if not words and len(audit.in_vain) >= MAX_IN_VAIN:
            keeper = audit.worker if word == WITHHELD else keepers_of(audit.claim).inputs
            self._shown(keeper, is_shown=False)
            if word == UNAVAILABLE and keeper == audit.worker:
                self._shown_ids(keeper, are_shown=False)
        self._open.close(audit)

    def _shown(self, peer_id: PeerId, *, is_shown: bool) -> None:
        self._standings.put(self._standings.of(peer_id).after_audit(shown=is_shown))

    def _shown_ids(self, peer_id: PeerId, *, are_shown: bool) -> None:
        standing = self._standings.of(peer_id)
        self._standings.put(standing.after_ids(self._clocks.wall(), shown=are_shown))

    async def heard(self, audit: OpenAudit, auditor: PeerId, report: AuditReport) -> None:
        """An auditor says what it saw of a hop."""
        claim = audit.claim
        opinion = opinion_of(auditor, report, audit.klass, len(claim.proof.layers))
        self._open.say(audit, opinion)
        self._shown(audit.worker, is_shown=report.found != SKETCHED)
        if audit.claim.place == 0:
            self._shown_ids(audit.worker, are_shown=True)
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
        if next_after(audit.opinions) is not Next.ASK_ANOTHER:
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
            self._give_up(audit)
        else:
            self._counters["expired"] += 1
            self._open.close(audit)

    async def _close(self, audit: OpenAudit) -> None:
        bad = [each.reason for each in audit.opinions if each.is_bad]
        found = findings(audit.opinions, audit.claim.request_id)
        good = len(audit.opinions) - len(bad)
        if len(audit.opinions) > 2 and bad and good and len(bad) != good:
            self._settle_split(audit, is_cleared=good > len(bad))
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
        if is_guilty(standing.record):
            await self._punish(audit.claim, reason)

    def refuted(self, claim: Claim, by: PeerId) -> None:
        """The next stage showed that a worker vouched for other rows than it committed to."""
        finding = Finding(Verdict.REJECTED, by, claim.request_id)
        standing = self._standings.of(claim.worker).found(finding, self._clocks.wall())
        self._standings.put(standing)
        if is_guilty(standing.record):
            self._guilty[claim.worker] = claim

    async def punish_refuted(self) -> None:
        """Punish those who are guilty by what was shown of them."""
        while self._guilty:
            _, claim = self._guilty.popitem()
            await self._punish(claim, "it committed to other rows than it vouched for")

    async def _punish(self, claim: Claim, reason: str) -> None:
        hop_micro = worth(claim, claim.proof.outputs.stop - claim.proof.start)
        if await self._penalties.punish(claim.worker, reason, hop_micro):
            self._counters["slashed"] += 1
        self.drop(claim.worker)

    def drop(self, peer_id: PeerId) -> None:
        """Look no further at one who is barred, and believe nothing that it says."""
        for audit in self._open.of(peer_id):
            self._open.close(audit)
