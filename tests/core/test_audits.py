"""Audits: what is a verdict, who is drawn, who is guilty, and what a watermark proves."""

from __future__ import annotations

import hashlib
import hmac
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tessella.core.audits import (
    FIRST_HOPS,
    KEPT_FINDINGS,
    LEAST_MARK,
    MOST_MARK,
    SUSPECT_HOPS,
    Finding,
    Measured,
    Record,
    Verdict,
    accuses,
    fine,
    gain_of,
    is_drawn,
    is_guilty,
    judge,
    share_drawn,
)
from tessella.core.numeric import NumericClass, Tolerance, tolerances
from tessella.core.shapes import DType

F32 = NumericClass(DType.F32, "q4_1", DType.F32)
F16 = NumericClass(DType.F16, "f16", DType.F16)
BF16 = NumericClass(DType.BF16, "bf16", DType.BF16)
NAN, INF = math.nan, math.inf


def measured(median: float, worst: float, gain: float = 1.0) -> Measured:
    return Measured(tokens=48, median=median, worst=worst, gain=gain, finite=True)


# Medians, worst tokens and gains of a trained model, over one layer and over ten.
HONEST = [
    ("f32", F32, 1, measured(2.9e-7, 4.5e-6, 1 + 6e-8)),
    ("f32 over ten", F32, 10, measured(8.7e-7, 4.5e-6, 1 - 6e-8)),
    ("f16", F16, 1, measured(5.6e-4, 1.8e-2, 1 + 2.1e-4)),
    ("f16 over ten", F16, 10, measured(1.5e-3, 1.8e-2, 1 - 2.1e-4)),
    ("bf16", BF16, 1, measured(4.9e-3, 0.14, 1 - 2.0e-3)),
    ("bf16 over ten", BF16, 10, measured(1.5e-2, 0.16, 1 + 2.0e-3)),
]
DISHONEST = [
    ("bf16 declared f32", F32, 10, measured(7.5e-3, 0.05, 1.001), "median"),
    ("bf16 declared f16", F16, 1, measured(2.4e-3, 0.05, 1.001), "median"),
    ("q4 declared bf16", BF16, 1, measured(5.0e-2, 0.2, 1.0), "median"),
    ("echo", BF16, 1, measured(0.22, 0.9, 0.9), "median"),
    ("one stale token", BF16, 1, measured(2.5e-3, 1.1, 1.0), "worst token"),
    ("scale 1.01", BF16, 10, measured(1.3e-2, 0.1, 1.01), "gain"),
    ("scale 0.99", BF16, 10, measured(1.3e-2, 0.1, 0.99), "gain"),
    ("no number", BF16, 1, measured(NAN, NAN, NAN), "median"),
    ("infinite", BF16, 1, measured(0.0, INF, 1.0), "worst token"),
]


@pytest.mark.parametrize(
    ("klass", "layers", "figures"), [case[1:] for case in HONEST], ids=[case[0] for case in HONEST]
)
def test_an_honest_node_passes(klass: NumericClass, layers: int, figures: Measured) -> None:
    assert judge(figures, klass, layers).verdict is Verdict.PASSED


@pytest.mark.parametrize(
    ("klass", "layers", "figures", "blamed"),
    [case[1:] for case in DISHONEST],
    ids=[case[0] for case in DISHONEST],
)
def test_a_dishonest_node_is_rejected_for_what_gives_it_away(
    klass: NumericClass, layers: int, figures: Measured, blamed: str
) -> None:
    judged = judge(figures, klass, layers)
    assert judged.verdict is Verdict.REJECTED
    assert blamed in judged.reason
    assert str(klass) in judged.reason


def test_every_limit_that_is_passed_is_named() -> None:
    reason = judge(measured(0.9, 4.0, 0.1), BF16, 1).reason
    assert "median error 0.9 is above 0.01" in reason
    assert "error of the worst token 4 is above 0.25" in reason
    assert "distance of the gain from 1 0.9 is above 0.006" in reason


@pytest.mark.parametrize(
    ("figures", "reason"),
    [(Measured(0, 0, 0, 1, finite=True), "shape"), (Measured(9, 0, 0, 1, finite=False), "finite")],
)
def test_what_no_layer_answers_is_malformed_whatever_else(figures: Measured, reason: str) -> None:
    judged = judge(figures, BF16, 1)
    assert judged.verdict is Verdict.MALFORMED
    assert reason in judged.reason


def test_another_tolerance_stands_in_for_the_table() -> None:
    figures = measured(1.2e-2, 0.1)
    assert judge(figures, BF16, 1).verdict is Verdict.REJECTED
    assert judge(figures, BF16, 1, tolerances(BF16).widened(1.5)).verdict is Verdict.PASSED
    assert judge(figures, BF16, 1, Tolerance(1e-3, 1, 1)).verdict is Verdict.REJECTED


@given(st.floats(0, 1), st.floats(0, 1), st.floats(0, 2), st.integers(1, 100))
def test_more_layers_never_turn_a_pass_into_a_rejection(
    median: float, worst: float, gain: float, layers: int
) -> None:
    figures = measured(median, worst, gain)
    if judge(figures, BF16, layers).verdict is Verdict.PASSED:
        assert judge(figures, BF16, layers + 1).verdict is Verdict.PASSED


@pytest.mark.parametrize(
    ("hops", "suspect_left", "share"),
    [(0, 0, 1.0), (19, 0, 1.0), (20, 0, 1 / math.sqrt(20)), (100, 0, 0.1), (400, 0, 0.05),
     (10**9, 0, 0.05), (10**9, 1, 1.0), (10**9, SUSPECT_HOPS, 1.0)],
)  # fmt: skip
def test_trust_is_earned_slowly_and_lost_at_once(
    hops: int, suspect_left: int, share: float
) -> None:
    assert share_drawn(hops, suspect_left) == pytest.approx(share)


@given(st.integers(0, 10**6), st.integers(0, 30))
def test_a_longer_record_never_raises_the_share(hops: int, suspect_left: int) -> None:
    share = share_drawn(hops, suspect_left)
    assert 0.05 <= share_drawn(hops + 1, suspect_left) <= share <= 1.0
    assert (share == 1.0) == (suspect_left > 0 or hops < FIRST_HOPS)


def test_a_draw_is_the_hash_of_secret_and_proof() -> None:
    digest = hashlib.sha256(b"secret" + b"proof").digest()
    at = int.from_bytes(digest, "big") / 2**256
    assert is_drawn(b"secret", b"proof", at + 1e-9)
    assert not is_drawn(b"secret", b"proof", at - 1e-9)


@given(st.binary(), st.binary())
def test_a_whole_share_draws_all_and_none_draws_nothing(secret: bytes, proof: bytes) -> None:
    assert is_drawn(secret, proof, 1.0)
    assert not is_drawn(secret, proof, 0.0)


@given(st.binary(), st.binary(), st.floats(0, 1), st.floats(0, 1))
def test_a_larger_share_draws_all_that_a_smaller_does(
    secret: bytes, proof: bytes, one: float, other: float
) -> None:
    if is_drawn(secret, proof, min(one, other)):
        assert is_drawn(secret, proof, max(one, other))


def test_about_that_share_is_drawn() -> None:
    drawn = sum(is_drawn(b"secret", number.to_bytes(4, "big"), 0.05) for number in range(10_000))
    assert 430 < drawn < 570


def record(*said: tuple[Verdict, str, bytes]) -> Record:
    kept = Record()
    for each in said:
        kept = kept.after(Finding(*each))
    return kept


PASSED, REJECTED = Verdict.PASSED, Verdict.REJECTED
RECORDS = [
    ("nothing", [], False),
    ("three requests", [(REJECTED, "a", b"1"), (REJECTED, "b", b"2"), (REJECTED, "a", b"3")], True),
    ("two requests", [(REJECTED, "a", b"1"), (REJECTED, "b", b"1"), (REJECTED, "a", b"2")], True),
    ("two", [(REJECTED, "a", b"1"), (REJECTED, "b", b"2")], False),
    ("one auditor", [(REJECTED, "a", b"1"), (REJECTED, "a", b"2"), (REJECTED, "a", b"3")], False),
    ("one request", [(REJECTED, "a", b"1"), (REJECTED, "b", b"1"), (REJECTED, "c", b"1")], False),
    ("two passes between", [(REJECTED, "a", b"1"), (PASSED, "c", b"2"), (REJECTED, "b", b"3"),
     (PASSED, "c", b"4"), (REJECTED, "a", b"5")], True),
    ("an old one forgotten", [(REJECTED, "a", b"1"), (PASSED, "c", b"2"), (PASSED, "c", b"3"),
     (REJECTED, "b", b"4"), (PASSED, "c", b"5"), (REJECTED, "a", b"6")], False),
    ("fraud once", [(Verdict.FRAUD, "a", b"1")], True),
    ("malformed once", [(PASSED, "a", b"1"), (Verdict.MALFORMED, "a", b"2")], True),
]  # fmt: skip


@pytest.mark.parametrize(
    ("said", "guilty"), [case[1:] for case in RECORDS], ids=[case[0] for case in RECORDS]
)
def test_guilt_takes_several_rejections_of_several_sources(
    said: list[tuple[Verdict, str, bytes]], guilty: bool
) -> None:
    assert is_guilty(record(*said)) is guilty


SAID = st.tuples(
    st.sampled_from(Verdict), st.sampled_from("abc"), st.sampled_from([b"1", b"2", b"3", b"4"])
)


@given(st.lists(SAID, max_size=12))
def test_a_record_keeps_the_last_word_of_each_and_only_the_last_few(
    said: list[tuple[Verdict, str, bytes]],
) -> None:
    kept = record(*said).findings
    assert len(kept) <= KEPT_FINDINGS
    sources = [(each.auditor, each.request_id) for each in kept]
    assert len(set(sources)) == len(sources)
    if said:
        assert kept[-1] == Finding(*said[-1])


@given(st.lists(SAID, max_size=5), st.integers(0, 4))
def test_a_rejection_in_place_of_a_pass_acquits_nobody(
    said: list[tuple[Verdict, str, bytes]], at: int
) -> None:
    if is_guilty(record(*said)) and at < len(said) and said[at][0] is PASSED:
        worse = [*said[:at], (REJECTED, *said[at][1:]), *said[at + 1 :]]
        assert is_guilty(record(*worse))


def test_a_fine_is_a_hundred_hops_and_the_day() -> None:
    assert fine(30_000, 5_000_000) == 3_000_000 + 5_000_000


@given(st.binary(min_size=1), st.binary())
def test_a_watermark_is_far_enough_from_one_to_accuse_and_not_too_far(
    key: bytes, name: bytes
) -> None:
    gain = gain_of(key, name)
    assert LEAST_MARK <= abs(gain - 1.0) <= MOST_MARK + 1e-12
    assert gain == gain_of(key, name)
    assert accuses(gain, gain)


def test_a_watermark_is_by_hmac_of_the_name() -> None:
    drawn = hmac.digest(b"key", b"name", "sha256")
    size = 0.03 + 0.07 * int.from_bytes(drawn[:8], "big") / 2**64
    assert gain_of(b"key", b"name") == pytest.approx(1 + size if drawn[8] % 2 else 1 - size)


def test_watermarks_spread_over_both_sides() -> None:
    gains = [gain_of(b"key", str(number).encode()) for number in range(2_000)]
    assert 900 < sum(gain > 1 for gain in gains) < 1_100
    sizes = sorted(abs(gain - 1) for gain in gains)
    assert sizes[1_000] == pytest.approx(0.065, abs=0.004)
    assert len(set(gains)) == len(gains)


@pytest.mark.parametrize(
    ("estimated", "gain", "expected"),
    [
        (1.0511, 1.05, True),
        (0.9489, 0.95, True),
        (1.0031, 1.03, False),
        (1.0, 0.97, False),
        (1.045, 1.05, False),
        (1.019, 1.0201, False),
        (NAN, 1.05, False),
    ],
)
def test_only_the_mark_itself_accuses(estimated: float, gain: float, expected: bool) -> None:
    assert accuses(estimated, gain) is expected


@given(st.binary(min_size=1), st.binary(), st.floats(-0.0031, 0.0031))
def test_no_honest_gain_is_accused(key: bytes, name: bytes, error: float) -> None:
    assert not accuses(1.0 + error, gain_of(key, name))
