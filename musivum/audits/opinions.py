"""What a report says of a worker, and when enough was said of one hop.

    passed                      decided: what is right is seen by one
    rejected                    a second one looks at the same rows
    rejected, rejected          decided: each counts
    rejected, passed            a third one looks; until then, and without one, neither counts
    one against two             decided as the two say

The words `malformed` and `fraud` need no tolerance, and could cost a worker everything at once. We
do not see the rows, so they are believed when a second auditor says one of them of the same hop;
from one alone they are a rejection.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from tessella.core.audits import Finding, Judgement, Measured, Verdict, judge, sketch_tolerance
from tessella.core.commitments import DIGEST_BYTES
from tessella.core.errors import BadRequest
from tessella.core.ids import PeerId
from tessella.core.messages import AuditReport
from tessella.core.numeric import NumericClass, tolerances

MEASURED, SKETCHED = "measured", "sketched"
MALFORMED, FRAUD = "malformed", "fraud"
# The rows that went in are gone; those that came out are, and nothing stands for them.
UNAVAILABLE, WITHHELD = "unavailable", "withheld"
# An auditor that had no time or memory for it, which says nothing of anybody.
UNABLE = "unable"
WORDS = (MEASURED, SKETCHED, MALFORMED, FRAUD, UNAVAILABLE, WITHHELD, UNABLE)
# Positions of one hop at most; figures are for people to read beyond that.
MAX_TOKENS = 1 << 31
# Of a word that we do not know, as much is repeated.
_SHOWN_CHARS = 20


@dataclass(frozen=True, slots=True)
class Opinion:
    """What one auditor says of one hop."""

    auditor: PeerId
    verdict: Verdict
    reason: str
    gain: float
    """The measured gain; 1 where none was."""

    @property
    def is_bad(self) -> bool:
        """Whether it is against the worker."""
        return self.verdict is not Verdict.PASSED


class Next(Enum):
    """What the opinions on a hop call for."""

    PASSED = "passed"
    REJECTED = "rejected"
    ASK_ANOTHER = "ask another"


def check_report(report: AuditReport) -> None:
    """Raises BadRequest for a report out of its rules. Figures may be infinite, or no number."""
    if report.found not in WORDS:
        raise BadRequest(f"found: {report.found[:_SHOWN_CHARS]!r} is none of {', '.join(WORDS)}")
    if not 0 <= report.tokens <= MAX_TOKENS:
        raise BadRequest(f"tokens = {report.tokens}: has to be 0 to {MAX_TOKENS}")
    if report.found in (MEASURED, SKETCHED) and len(report.reference) != DIGEST_BYTES:
        raise BadRequest(f"reference: {len(report.reference)} bytes, a hash has {DIGEST_BYTES}")


def opinion_of(auditor: PeerId, report: AuditReport, klass: NumericClass, layers: int) -> Opinion:
    """What follows from a report that says something, over so many layers of that class."""
    judgement = _judged(report, klass, layers)
    has_gain = report.found in (MEASURED, SKETCHED) and math.isfinite(report.gain)
    gain = report.gain if has_gain else 1.0
    return Opinion(auditor, judgement.verdict, judgement.reason, gain)


def _judged(report: AuditReport, klass: NumericClass, layers: int) -> Judgement:
    match report.found:
        case "malformed":
            return Judgement(Verdict.MALFORMED, "the output is none of any layers")
        case "fraud":
            return Judgement(Verdict.FRAUD, "the output is not the one that was committed to")
    measured = Measured(
        tokens=report.tokens,
        median=report.median,
        worst=report.worst,
        gain=report.gain,
        finite=True,
    )
    allowed = tolerances(klass)
    if report.found == SKETCHED:
        allowed = sketch_tolerance(allowed, layers)
    return judge(measured, klass, layers, allowed)


def next_after(opinions: Sequence[Opinion]) -> Next:
    """What is to be done, after at least one opinion."""
    bad = sum(opinion.is_bad for opinion in opinions)
    good = len(opinions) - bad
    if bad >= 2:
        return Next.REJECTED
    return Next.PASSED if good >= 2 or not bad else Next.ASK_ANOTHER


def is_split(opinions: Sequence[Opinion]) -> bool:
    """Whether there are two sides."""
    return len({opinion.is_bad for opinion in opinions}) > 1


def findings(opinions: Sequence[Opinion], request_id: bytes) -> list[Finding]:
    """What goes on record of a hop that nobody else will look at, in the order it was said.

    Of two sides that is what the larger one said, and nothing where they are equal.
    """
    bad = [opinion for opinion in opinions if opinion.is_bad]
    good = [opinion for opinion in opinions if not opinion.is_bad]
    if len(good) > len(bad):
        return [Finding(Verdict.PASSED, good[-1].auditor, request_id)]
    if len(good) == len(bad):
        return []
    proofs = [opinion.verdict for opinion in bad if opinion.verdict.proves_fraud]
    is_proven = len(proofs) >= 2
    return [
        Finding(
            each.verdict if is_proven and each.verdict.proves_fraud else Verdict.REJECTED,
            each.auditor,
            request_id,
        )
        for each in bad
    ]
