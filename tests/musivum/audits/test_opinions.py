"""From reports to findings: nobody's word alone proves fraud, and a split counts for nobody."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from musivum.audits.opinions import (
    Next,
    Opinion,
    findings,
    is_split,
    next_after,
    opinion_of,
)
from tessella.core.audits import Record, Verdict, is_guilty
from tessella.core.ids import PeerId
from tessella.core.numeric import NumericClass
from tessella.core.shapes import DType
from tests.musivum.audits.room import BAD, GOOD, SAYS_FRAUD, SAYS_MALFORMED, said

KLASS = NumericClass(DType.BF16, "bf16", DType.BF16)
AUDITOR = PeerId("a")
P, R, M, F = Verdict.PASSED, Verdict.REJECTED, Verdict.MALFORMED, Verdict.FRAUD
NAN, INF = float("nan"), float("inf")


def opinions(*verdicts: Verdict) -> list[Opinion]:
    return [Opinion(PeerId(str(at)), each, "", 1.0) for at, each in enumerate(verdicts)]


@pytest.mark.parametrize(
    ("report", "verdict"),
    [
        (GOOD, P),
        (BAD, R),
        (said(gain=1.01), R),
        (said(median=NAN), R),
        (replace(GOOD, worst=INF), R),
        (replace(GOOD, tokens=0), M),
        (SAYS_MALFORMED, M),
        (SAYS_FRAUD, F),
        (said("sketched"), P),
        (said("sketched", median=0.5), R),
    ],
)
def test_a_report_is_judged_by_its_figures(report: object, verdict: Verdict) -> None:
    assert opinion_of(AUDITOR, report, KLASS, 6).verdict is verdict  # type: ignore[arg-type]


def test_a_sketch_is_allowed_half_as_much_again() -> None:
    beyond = said(median=0.03)
    assert opinion_of(AUDITOR, beyond, KLASS, 6).is_bad
    assert not opinion_of(AUDITOR, replace(beyond, found="sketched"), KLASS, 6).is_bad


def test_only_a_measured_gain_is_one() -> None:
    assert opinion_of(AUDITOR, said(gain=0.95), KLASS, 6).gain == 0.95
    assert opinion_of(AUDITOR, replace(SAYS_FRAUD, gain=0.95), KLASS, 6).gain == 1.0
    assert opinion_of(AUDITOR, said(gain=NAN), KLASS, 6).gain == 1.0


@pytest.mark.parametrize(
    ("said_so_far", "then", "on_record"),
    [
        ([P], Next.PASSED, [P]),
        ([R], Next.ASK_ANOTHER, [R]),
        ([F], Next.ASK_ANOTHER, [R]),
        ([M], Next.ASK_ANOTHER, [R]),
        ([R, R], Next.REJECTED, [R, R]),
        ([F, R], Next.REJECTED, [R, R]),
        ([F, F], Next.REJECTED, [F, F]),
        ([F, M], Next.REJECTED, [F, M]),
        ([R, P], Next.ASK_ANOTHER, []),
        ([F, P], Next.ASK_ANOTHER, []),
        ([R, P, P], Next.PASSED, [P]),
        ([R, P, R], Next.REJECTED, [R, R]),
        ([F, P, M], Next.REJECTED, [F, M]),
        ([F, P, R], Next.REJECTED, [R, R]),
    ],
)
def test_what_was_said_calls_for(
    said_so_far: list[Verdict], then: Next, on_record: list[Verdict]
) -> None:
    heard = opinions(*said_so_far)
    assert next_after(heard) is then
    assert [each.verdict for each in findings(heard, b"1")] == on_record
    assert is_split(heard) == (P in said_so_far and said_so_far != [P])


@pytest.mark.parametrize("count", [1, 2, 3])
def test_no_hop_convicts_by_fewer_than_two_voices(count: int) -> None:
    for verdicts in itertools.product(Verdict, repeat=count):
        record = Record(tuple(findings(opinions(*verdicts), b"1")))
        proofs = sum(each.proves_fraud for each in verdicts)
        assert is_guilty(record) <= (proofs >= 2)
