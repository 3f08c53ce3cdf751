"""What is known of one worker by its hops and audits: a value, and what each event makes of it.

    hop        one more that was paid                     shown     whether its rows could be seen
    suspected  all of its next hops are audited           found     a finding goes on record
    barred     let in nowhere, and fined                  appealed  all of that is taken back

Times are seconds since 1970.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from musivum.nodes.reputation import NO_AUDITS, AuditCounts
from tessella.core.audits import SUSPECT_HOPS, Finding, Record, Verdict, share_drawn
from tessella.core.ids import PeerId

# Audits of which is remembered whether the rows that a worker had to keep could be seen.
KEPT_SHOWN = 20
_TOLD = "%Y-%m-%d %H:%M UTC"
# For how long an entry that hides its ids gets no tickets: without, none of its work is paid. Ids
# are small, and kept when rows are not; rows may be gone of a node that only is busy.
HIDING_SECONDS = 24 * 3600.0
SECONDS_A_DAY = 24 * 3600.0
# For how long a culprit is let in nowhere.
BAR_DAYS = 30
# For how long an auditor that two others contradicted is not asked again, the first time. Each
# further time it is four times as long, so that who lies always has few words in a month.
OUTVOTED_DAYS, OUTVOTED_GROWTH = 1.0, 4.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """One worker."""

    peer_id: PeerId
    hops: int = 0
    """That were paid."""
    suspect_left: int = 0
    """Hops until it is no suspect any more."""
    barred_until: float = 0.0
    barred_for: str = ""
    """Why it is barred, in words."""
    owed: int = 0
    """Micro-credits that are to be taken yet, with what a day brought."""
    fined: int = 0
    """Micro-credits that were taken, and not given back."""
    record: Record = field(default_factory=Record)
    shown: tuple[bool, ...] = ()
    """Of its last KEPT_SHOWN audits, oldest first: whether what it had to keep could be seen."""
    ids: tuple[bool, ...] = ()
    """Of its last KEPT_SHOWN audits as an entry, oldest first: whether its ids could be seen."""
    benched_until: float = 0.0
    """Until then no ticket names it, since it hides what it was asked."""
    last_auditor: str = ""
    """Whose word on it was the last that counted."""
    outvoted: int = 0
    """How often two others contradicted what it said as an auditor."""
    unheard_until: float = 0.0
    """Until then its word on others is not asked for."""
    counts: AuditCounts = NO_AUDITS

    @property
    def share(self) -> float:
        """The share of its hops that is audited now."""
        return share_drawn(self.hops, self.suspect_left)

    @property
    def is_suspect(self) -> bool:
        """Whether all of its hops are audited for what was found, and not for being new."""
        return self.suspect_left > 0

    @property
    def is_hiding(self) -> bool:
        """Whether more than half of its last audits could not see what it had to keep."""
        return 2 * self.shown.count(False) > KEPT_SHOWN

    def is_barred(self, now: float) -> bool:
        """Whether it is let in nowhere."""
        return now < self.barred_until

    def is_benched(self, now: float) -> bool:
        """Whether no ticket names it."""
        return now < self.benched_until

    def held_against(self, now: float) -> str:
        """What of all that matters to its owner now, in a sentence; empty for nothing."""
        if self.is_barred(now):
            return f"let in nowhere until {_utc(self.barred_until)}: {self.barred_for}"
        if self.is_benched(now):
            return (
                f"no tickets until {_utc(self.benched_until)}: as an entry it did not show what it "
                "was asked to most of its last auditors"
            )
        if self.is_suspect:
            return f"a suspect: its next {self.suspect_left} hops are all audited"
        return ""

    def is_marked(self, now: float) -> bool:
        """Whether anything is held against it that could be taken back."""
        held = self.fined or self.owed or self.record.findings or self.suspect_left or self.outvoted
        return bool(held) or self.is_barred(now) or self.is_benched(now)

    def after_hop(self) -> Standing:
        """One more hop was paid."""
        return replace(self, hops=self.hops + 1, suspect_left=max(0, self.suspect_left - 1))

    def suspected(self) -> Standing:
        """All of its next hops are audited."""
        return replace(self, suspect_left=SUSPECT_HOPS)

    def after_audit(self, *, shown: bool) -> Standing:
        """What it had to keep for an audit could be seen, or not; who hides is a suspect."""
        known = replace(self, shown=(*self.shown, shown)[-KEPT_SHOWN:])
        return known.suspected() if not shown and known.is_hiding else known

    def after_ids(self, now: float, *, shown: bool) -> Standing:
        """The ids that it was asked as an entry could be seen, or not.

        Whoever hides more than half of them gets no tickets for HIDING_SECONDS.
        """
        known = replace(self, ids=(*self.ids, shown)[-KEPT_SHOWN:])
        if shown or 2 * known.ids.count(False) <= KEPT_SHOWN:
            return known
        return replace(known, benched_until=now + HIDING_SECONDS)

    def after_outvoted(self, now: float) -> Standing:
        """Two other auditors contradicted its word."""
        days = min(BAR_DAYS, OUTVOTED_DAYS * OUTVOTED_GROWTH ** min(self.outvoted, BAR_DAYS))
        until = now + days * SECONDS_A_DAY
        return replace(self, outvoted=self.outvoted + 1, unheard_until=until)

    def found(self, finding: Finding, now: float) -> Standing:
        """A finding goes on record; one that is no pass makes a suspect."""
        has_passed = finding.verdict is Verdict.PASSED
        known = replace(
            self,
            record=self.record.after(finding),
            last_auditor=finding.auditor,
            counts=self.counts.counted(now, passed=has_passed, rejected=not has_passed),
        )
        return known if has_passed else known.suspected()

    def barred(self, reason: str, until: float, now: float, owed: int = 0) -> Standing:
        """Let in nowhere until then, and to be fined so many micro-credits more.

        What was on record is paid for by that, and whoever comes back is looked at closely.
        """
        return replace(
            self,
            record=Record(),
            suspect_left=SUSPECT_HOPS,
            barred_until=max(until, self.barred_until),
            barred_for=reason,
            owed=self.owed + owed,
            counts=self.counts.counted(now, slashes=1),
        )

    def collected(self, taken: int) -> Standing:
        """So much could be taken; the rest of what was owed is let go."""
        return replace(self, owed=0, fined=self.fined + taken)

    def appealed(self, now: float) -> Standing:
        """As if none of what is on record had been; its hops stay, and are sampled as before."""
        return Standing(peer_id=self.peer_id, hops=self.hops, counts=AuditCounts(at=now))


def _utc(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).strftime(_TOLD)
