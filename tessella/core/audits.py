"""The rules of audits: who is audited, what an honest answer is, and what another one costs.

A worker has committed to its rows; an auditor recomputes them in f32 from the worker's own input.
For each token `rel = |y - r| / |r|` and `gain = <y, r> / <r, r>`. A few tokens, sinks, carry norms
a hundred times those of the rest: they are left out of both medians, and stay in the maximum.

An honest node passes however its sums are ordered. One rejection makes a suspect, and only a few
of them, by several auditors over several requests, make a culprit: no audit is beyond all doubt.
What needs no tolerance needs no second opinion either: rows that cannot be any layer's answer, or
that are not those committed to.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass
from enum import Enum
from math import sqrt

from tessella.core.numeric import NumericClass, Tolerance, tolerances

# Hops of a fresh worker, and of one after a rejection, that are all audited.
FIRST_HOPS = 20
SUSPECT_HOPS = 20
# The share of hops audited however long a worker has been honest: what is never looked at is free.
LEAST_SHARE = 0.05

# Findings that decide, and how many of them must be rejections.
KEPT_FINDINGS = 5
GUILTY_REJECTIONS = 3
# Whom and what these rejections must come from: one auditor may lie, one request may be odd.
GUILTY_AUDITORS = 2
GUILTY_REQUESTS = 2
# At the least share a hop is caught one time in 20, so 19 times its credit is where cheating
# begins to lose.
FINE_HOPS = 100

# A watermark is far from 1 against what 16 bits do to a gain (0.002), and small against what a
# text can bear; how far from 1, and which way, nobody without the key can say.
LEAST_MARK, MOST_MARK = 0.03, 0.10
# A copied gain was within 0.0011 of the mark, an honest one within 0.0031 of 1.
MARK_ERROR = 0.004
MARK_DISTANCE = 0.02

_DRAW_BYTES = 8
_DRAW_SPAN = 1 << (8 * _DRAW_BYTES)


class Verdict(Enum):
    """What an audit says. The value is the word in wire and HTTP."""

    PASSED = "passed"
    REJECTED = "rejected"
    """Beyond the tolerance: a suspect."""
    MALFORMED = "malformed"
    """No layer answers so: another shape, or values that are not finite."""
    FRAUD = "fraud"
    """Output that does not hash to the commitment; no measurement says it, the hash does."""

    @property
    def proves_fraud(self) -> bool:
        """Whether it stands alone, as anybody can check it without a tolerance."""
        return self in (Verdict.MALFORMED, Verdict.FRAUD)


@dataclass(frozen=True, slots=True)
class Measured:
    """A worker's rows beside the recomputed ones."""

    tokens: int
    """Rows compared; 0 if the worker's were of another shape."""
    median: float
    """Of `rel` over the tokens that are no sinks."""
    worst: float
    """The largest `rel` of all tokens."""
    gain: float
    """The median gain over the tokens that are no sinks: 1 for an honest node."""
    finite: bool
    """Whether every value of the worker is a number."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """A verdict and its reason in words, for reports and logs."""

    verdict: Verdict
    reason: str


def judge(
    measured: Measured, klass: NumericClass, layers: int, tolerance: Tolerance | None = None
) -> Judgement:
    """What follows from a measurement over so many layers; never FRAUD.

    `tolerance` stands in for the table's: a calibrated one, or a wider one.
    """
    if not measured.tokens:
        return Judgement(Verdict.MALFORMED, "the output is not of the shape of its input")
    if not measured.finite:
        return Judgement(Verdict.MALFORMED, "the output holds values that are not finite")
    allowed = tolerance or tolerances(klass)
    figures = (
        ("median error", measured.median, allowed.median_of(layers)),
        ("error of the worst token", measured.worst, allowed.token),
        ("distance of the gain from 1", abs(measured.gain - 1.0), allowed.gain),
    )
    # Of NaN no comparison is true: it is beyond every limit.
    beyond = [
        f"{what} {figure:.2g} is above {limit:.2g}"
        for what, figure, limit in figures
        if not figure <= limit
    ]
    if beyond:
        return Judgement(Verdict.REJECTED, f"{klass} over {layers} layers: {', '.join(beyond)}")
    return Judgement(Verdict.PASSED, f"within {klass} over {layers} layers")


def share_drawn(hops: int, suspect_left: int) -> float:
    """The share of a worker's hops to audit, after so many audited or not.

    `suspect_left` counts down from SUSPECT_HOPS after an audit that did not pass.
    """
    if suspect_left > 0 or hops < FIRST_HOPS:
        return 1.0
    return max(LEAST_SHARE, 1.0 / sqrt(hops))


def is_drawn(secret: bytes, proof_hash: bytes, share: float) -> bool:
    """Whether the proof of that hash is audited.

    A worker that does not know the secret cannot tell beforehand; whoever learns it afterwards
    can check the draw. A larger share draws all that a smaller one does.
    """
    drawn = hashlib.sha256(secret + proof_hash).digest()[:_DRAW_BYTES]
    return int.from_bytes(drawn, "big") < share * _DRAW_SPAN


@dataclass(frozen=True, slots=True)
class Finding:
    """The verdict of one auditor on one request of a worker.

    A verdict that proves fraud is to be checked on its evidence before it becomes a finding.
    """

    verdict: Verdict
    auditor: str
    request_id: bytes


@dataclass(frozen=True, slots=True)
class Record:
    """The last KEPT_FINDINGS findings on a worker, oldest first."""

    findings: tuple[Finding, ...] = ()

    def after(self, finding: Finding) -> Record:
        """The record with one more; an auditor's word on a request replaces its earlier one."""
        said = (finding.auditor, finding.request_id)
        others = [each for each in self.findings if (each.auditor, each.request_id) != said]
        return Record((*others, finding)[-KEPT_FINDINGS:])


def is_guilty(record: Record) -> bool:
    """Whether a worker is to be fined for what is on record."""
    if any(finding.verdict.proves_fraud for finding in record.findings):
        return True
    rejected = [each for each in record.findings if each.verdict is Verdict.REJECTED]
    return (
        len(rejected) >= GUILTY_REJECTIONS
        and len({each.auditor for each in rejected}) >= GUILTY_AUDITORS
        and len({each.request_id for each in rejected}) >= GUILTY_REQUESTS
    )


def fine(hop_micro: int, earned_24h: int) -> int:
    """Micro-credits that a culprit loses: FINE_HOPS times the hop, and what a day brought it."""
    return FINE_HOPS * hop_micro + earned_24h


def gain_of(key: bytes, name: bytes) -> float:
    """The watermark of that name: a canary multiplies by it what nobody should have asked for.

    `1 + g` or `1 - g`, with g even over [LEAST_MARK, MOST_MARK), by HMAC-SHA256.
    """
    drawn = hmac.digest(key, name, "sha256")
    part = int.from_bytes(drawn[:_DRAW_BYTES], "big") / _DRAW_SPAN
    size = LEAST_MARK + (MOST_MARK - LEAST_MARK) * part
    return 1.0 + size if drawn[_DRAW_BYTES] & 1 else 1.0 - size


def accuses(estimated: float, gain: float) -> bool:
    """Whether an estimated gain is the watermark, and no honest node's."""
    return abs(estimated - gain) < MARK_ERROR and abs(estimated - 1.0) > MARK_DISTANCE


# Of a sketch, whose few rows spread wider than all of them.
SKETCH_WIDENED = 1.5
# What rounding its values to 11 bits adds to the error of a row at most.
SKETCH_ROUNDING = 2.0**-11


def sketch_tolerance(tolerance: Tolerance, layers: int) -> Tolerance:
    """What a sketch of such a node is allowed, to be judged over so many layers."""
    wide = tolerance.widened(SKETCH_WIDENED)
    return Tolerance(
        # The rounding does not grow with the layers, as the limit of a median does.
        wide.median + SKETCH_ROUNDING / layers**0.5,
        wide.token + SKETCH_ROUNDING,
        wide.gain + SKETCH_ROUNDING,
    )
