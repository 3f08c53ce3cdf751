"""Numeric classes: their words, and what honest nodes of one are allowed."""

from __future__ import annotations

import math
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tessella.core.numeric import (
    WEIGHT_WORDS,
    NumericClass,
    Tolerance,
    calibrated,
    tolerances,
    weights_word,
)
from tessella.core.shapes import DType

F32, F16, BF16 = DType.F32, DType.F16, DType.BF16
CLASSES = st.builds(
    NumericClass, st.sampled_from(DType), st.sampled_from(WEIGHT_WORDS), st.sampled_from(DType)
)
FIGURES = st.floats(0, 1)


def test_a_class_is_said_by_three_words() -> None:
    assert str(NumericClass(F32, "q4_1", BF16)) == "f32/q4_1/bf16"


@given(CLASSES)
def test_a_class_reads_back_what_it_prints(klass: NumericClass) -> None:
    assert NumericClass.parse(str(klass)) == klass


@pytest.mark.parametrize(
    "text",
    ["", "f32", "f32/f32", "f32/f32/f32/f32", "F32/f32/f32", "f32/Q4_1/f32", "q8_0/f32/f32",
     "f32/f64/f32", "f32/f32/int8", "f32//f32", " f32/f32/f32"],
)  # fmt: skip
def test_text_that_is_no_class_is_named(text: str) -> None:
    with pytest.raises(ValueError, match="no numeric class") as caught:
        NumericClass.parse(text)
    assert repr(text) in str(caught.value)


def test_a_long_text_is_not_repeated_whole() -> None:
    with pytest.raises(ValueError, match="no numeric class") as caught:
        NumericClass.parse("f32/" * 1000)
    assert len(str(caught.value)) < 200


def test_weights_of_an_unknown_word_make_no_class() -> None:
    with pytest.raises(ValueError, match=r"no weight format: 'q3_k'"):
        NumericClass(F32, "q3_k", F32)


TABLE = [
    (F32, F32, Tolerance(3e-5, 1e-3, 2e-4)),
    (F16, F16, Tolerance(1.5e-3, 0.10, 2e-3)),
    (BF16, BF16, Tolerance(1.0e-2, 0.25, 6e-3)),
]


@pytest.mark.parametrize(("compute", "wire", "expected"), TABLE)
def test_one_dtype_for_both_has_the_line_of_the_table(
    compute: DType, wire: DType, expected: Tolerance
) -> None:
    assert tolerances(NumericClass(compute, "f32", wire)) == expected


def test_two_dtypes_add_as_independent_errors() -> None:
    mixed = tolerances(NumericClass(F16, "f32", BF16))
    assert mixed.median == pytest.approx(math.sqrt(1.5e-3**2 + 1e-2**2))
    assert mixed.token == pytest.approx(math.sqrt(0.10**2 + 0.25**2))
    assert mixed.gain == pytest.approx(math.sqrt(2e-3**2 + 6e-3**2))


@given(CLASSES, st.sampled_from(WEIGHT_WORDS))
def test_weights_change_no_tolerance(klass: NumericClass, weights: str) -> None:
    other = NumericClass(klass.compute, weights, klass.wire)
    assert tolerances(other) == tolerances(klass)


@pytest.mark.parametrize(("compute", "wire"), list(product(DType, DType)))
def test_a_class_is_allowed_no_less_than_its_coarser_half(compute: DType, wire: DType) -> None:
    allowed = tolerances(NumericClass(compute, "f32", wire))
    swapped = tolerances(NumericClass(wire, "f32", compute))
    assert allowed == swapped
    for half in (compute, wire):
        alone = tolerances(NumericClass(half, "f32", half))
        assert allowed.median >= alone.median
        assert allowed.token >= alone.token
        assert allowed.gain >= alone.gain


def test_the_median_grows_by_the_root_of_the_layers() -> None:
    allowed = Tolerance(0.01, 0.25, 0.006)
    assert allowed.median_of(1) == 0.01
    assert allowed.median_of(9) == pytest.approx(0.03)


def test_a_widened_tolerance_is_wider_in_all_three() -> None:
    assert Tolerance(0.25, 0.5, 0.125).widened(1.5) == Tolerance(0.375, 0.75, 0.1875)


@given(FIGURES, FIGURES, st.integers(1, 200))
def test_calibration_only_widens_and_then_passes_what_it_saw(
    median: float, token: float, layers: int
) -> None:
    table = tolerances(NumericClass(BF16, "f32", BF16))
    found = calibrated(table, median, token, layers)
    assert found.gain == table.gain
    assert found.median == pytest.approx(max(table.median, 2 * median / math.sqrt(layers)))
    assert found.token == pytest.approx(max(table.token, 1.5 * token))
    assert found.median_of(layers) >= median
    assert found.token >= token


@pytest.mark.parametrize(
    ("stored", "word"),
    [
        (["Q4_1", "Q4_1"], "q4_1"),
        (["BF16"], "bf16"),
        (["Q4_K", "Q6_K"], "mixed"),
        (["F64"], "mixed"),
        ([], "mixed"),
    ],
)
def test_the_word_of_weights_is_the_one_that_all_are_stored_in(
    stored: list[str], word: str
) -> None:
    assert weights_word(stored) == word
