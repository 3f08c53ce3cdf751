"""Words of formats, and the bytes that a row takes in each."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tessella.core.errors import BadConfig
from tessella.core.formats import KvFormat, WeightFormat
from tessella.core.shapes import DType

ROWS = [
    (WeightFormat.F32, 32.0, 33 * 4),
    (WeightFormat.F16, 16.0, 33 * 2),
    (WeightFormat.BF16, 16.0, 33 * 2),
    (WeightFormat.Q8_0, 8.5, 2 * (32 + 2)),
    (WeightFormat.INT4, 4.5, 2 * (16 + 2)),
    (KvFormat.F32, 32.0, 33 * 4),
    (KvFormat.F16, 16.0, 33 * 2),
    (KvFormat.BF16, 16.0, 33 * 2),
    (KvFormat.Q8_0, 8.5, 2 * (32 + 2)),
    (KvFormat.Q4_0, 4.5, 2 * (16 + 2)),
]


@pytest.mark.parametrize(("kept", "bits", "nbytes"), ROWS)
def test_a_row_is_padded_to_whole_groups(
    kept: WeightFormat | KvFormat, bits: float, nbytes: int
) -> None:
    assert kept.bits == bits
    assert kept.row_bytes(33) == nbytes
    assert kept.row_bytes(64) == 64 * bits / 8


def test_every_format_has_a_size() -> None:
    assert {kept for kept, _, _ in ROWS} == {*WeightFormat, *KvFormat}


@given(st.sampled_from([*WeightFormat, *KvFormat]), st.integers(1, 10_000))
def test_no_row_is_smaller_than_its_values(kept: WeightFormat | KvFormat, columns: int) -> None:
    exact = columns * kept.bits / 8
    assert exact <= kept.row_bytes(columns) < exact + 34


@pytest.mark.parametrize(
    ("kept", "scale"),
    [
        (KvFormat.F32, 2.0),
        (KvFormat.F16, 1.0),
        (KvFormat.BF16, 1.0),
        (KvFormat.Q8_0, 0.53125),
        (KvFormat.Q4_0, 0.28125),
    ],
)
def test_kv_is_priced_relative_to_f16(kept: KvFormat, scale: float) -> None:
    assert kept.scale == scale


def test_words_are_those_of_config_and_http() -> None:
    assert [kept.value for kept in WeightFormat] == ["f32", "f16", "bf16", "Q8_0", "INT4"]
    assert [kept.value for kept in KvFormat] == ["f32", "f16", "bf16", "q8_0", "q4_0"]


@pytest.mark.parametrize("kept", [*WeightFormat, *KvFormat])
def test_a_word_is_read_in_any_case(kept: WeightFormat | KvFormat) -> None:
    for word in (kept.value, kept.value.upper(), kept.value.lower()):
        assert type(kept).parse(word) is kept


@pytest.mark.parametrize(
    ("kind", "word", "named"),
    [
        (WeightFormat, "q5_k", "unknown weight format 'q5_k'; one of f32, f16, bf16, Q8_0, INT4"),
        (WeightFormat, "q4_0", "unknown weight format 'q4_0'"),
        (WeightFormat, "", "unknown weight format ''"),
        (KvFormat, "int4", "unknown KV format 'int4'; one of f32, f16, bf16, q8_0, q4_0"),
        (KvFormat, " f16", "unknown KV format ' f16'"),
        (KvFormat, "x" * 1000, f"unknown KV format '{'x' * 32}';"),
    ],
)
def test_an_unknown_word_is_named(
    kind: type[WeightFormat] | type[KvFormat], word: str, named: str
) -> None:
    with pytest.raises(BadConfig) as refused:
        kind.parse(word)
    assert str(refused.value).startswith(named)


@pytest.mark.parametrize("dtype", DType)
def test_a_serving_type_is_a_format_of_both(dtype: DType) -> None:
    assert WeightFormat.of(dtype).value == KvFormat.of(dtype).value == dtype.value
    assert KvFormat.of(WeightFormat.of(dtype)) is KvFormat.of(dtype)
    assert WeightFormat.of(dtype).row_bytes(7) == KvFormat.of(dtype).row_bytes(7)
    assert WeightFormat.of(dtype).row_bytes(7) == 7 * dtype.itemsize


@pytest.mark.parametrize("kept", [*WeightFormat, *KvFormat])
def test_a_format_is_its_own(kept: WeightFormat | KvFormat) -> None:
    own = WeightFormat.of(kept) if isinstance(kept, WeightFormat) else KvFormat.of(kept)
    assert own is kept


@pytest.mark.parametrize("kept", [WeightFormat.Q8_0, WeightFormat.INT4])
def test_weights_in_groups_do_not_say_what_kv_is_kept_in(kept: WeightFormat) -> None:
    with pytest.raises(BadConfig, match=f"beside weights in {kept.value} cannot be sized"):
        KvFormat.of(kept)


@pytest.mark.parametrize(
    ("kept", "matrix", "vector", "table"),
    [
        (WeightFormat.F32, 3 * 40 * 4, 40 * 4, 3 * 40 * 4),
        (WeightFormat.BF16, 3 * 40 * 2, 40 * 2, 3 * 40 * 2),
        (WeightFormat.Q8_0, 3 * 2 * 34, 40 * 4, 3 * 2 * 34),
        (WeightFormat.INT4, 3 * 2 * 18, 40 * 4, 3 * 40 * 2),
    ],
)
def test_groups_are_for_matrices_and_int4_is_for_layers(
    kept: WeightFormat, matrix: int, vector: int, table: int
) -> None:
    assert kept.tensor_bytes((3, 40)) == matrix
    assert kept.tensor_bytes((40,)) == vector
    assert kept.table_bytes(3, 40) == table
