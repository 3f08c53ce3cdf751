from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tessella.cli.planning import dtype_of, lay_out, parse_claims
from tessella.core.errors import BadConfig, ClaimTooSmall
from tessella.core.layers import LayerRange
from tessella.core.plan import MemoryTerms, claim_for, even_claims
from tessella.core.shapes import DType

TERMS = MemoryTerms(
    layers=30,
    tied=True,
    weights_per_layer_mb=13.5,
    kv_per_layer_mb=12.0,
    embedding_mb=108.0,
    head_mb=108.0,
    min_vram_mb=0,
)


def test_claims_are_a_list_of_megabytes() -> None:
    assert parse_claims("376, 369,347") == [376, 369, 347]


@pytest.mark.parametrize("part", ["", "0", "-1", "1.5", "1e3", "x", "²", "99999999999"])
def test_a_claim_that_is_none_is_named(part: str) -> None:
    with pytest.raises(BadConfig) as caught:
        parse_claims(f"300,{part}")
    assert repr(part) in str(caught.value)


def test_a_dtype_is_one_of_ours() -> None:
    assert dtype_of(None) is None
    assert dtype_of("bf16") is DType.BF16
    with pytest.raises(BadConfig, match=r"'q8'; one of f32, f16, bf16"):
        dtype_of("q8")


@given(workers=st.integers(1, 10))
def test_an_even_split_holds_the_whole_model_in_order(workers: int) -> None:
    layout = lay_out(TERMS, even_claims(TERMS, workers))
    layout.check()
    starts = [0, *(piece.stop for piece in layout.ranges)]
    assert [piece.start for piece in layout.ranges] == starts[:-1]
    assert starts[-1] == TERMS.layers
    assert len(layout.ranges) == workers


def test_claims_that_leave_layers_to_nobody_say_which_and_how_much() -> None:
    layout = lay_out(TERMS, [376, 300])
    missing = LayerRange(layout.ranges[-1].stop, 30)
    with pytest.raises(ClaimTooSmall) as caught:
        layout.check()
    assert f"{missing} needs {claim_for(TERMS, missing)} MB" in str(caught.value)


def test_a_claim_that_holds_no_layer_is_named() -> None:
    with pytest.raises(ClaimTooSmall, match="worker 2: a claim of 10 MB holds no layer"):
        lay_out(TERMS, [376, 10, 600]).check()


def test_the_document_lists_what_each_claim_gets() -> None:
    document = lay_out(TERMS, [376, 10]).document()
    first, second = document["ranges"]
    assert (first["claim_mb"], first["layer_range"]) == (376, [0, 9])
    assert second["layer_range"] is None
    assert second["needed_mb"] > 10
    assert [(hole["start"], hole["stop"]) for hole in document["holes"]] == [(9, 30)]
