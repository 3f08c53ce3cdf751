"""Half-open ranges, and what a set of them leaves out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tessella.core.layers import LayerRange, holes


@pytest.mark.parametrize(("start", "stop"), [(0, 0), (3, 2), (-1, 2)])
def test_an_empty_or_negative_range_does_not_exist(start: int, stop: int) -> None:
    with pytest.raises(ValueError, match="no layer range"):
        LayerRange(start, stop)


def test_a_range_reads_back_what_it_prints() -> None:
    assert LayerRange.parse(str(LayerRange(3, 17))) == LayerRange(3, 17)


@pytest.mark.parametrize("text", ["", "3", "a:b", "1:", ":4", "5:5", "-1:3", "1:2:3"])
def test_text_that_is_no_range_is_named(text: str) -> None:
    with pytest.raises(ValueError, match=r"layer range"):
        LayerRange.parse(text)


def test_a_range_holds_itself_and_its_parts_only() -> None:
    whole = LayerRange(2, 8)
    assert whole.holds(whole)
    assert whole.holds(LayerRange(3, 5))
    assert not whole.holds(LayerRange(1, 3))
    assert not whole.holds(LayerRange(7, 9))


RANGES = st.tuples(st.integers(0, 20), st.integers(1, 8)).map(
    lambda pair: LayerRange(pair[0], pair[0] + pair[1])
)


@given(st.lists(RANGES, max_size=8), st.integers(1, 24))
def test_holes_are_exactly_the_layers_nobody_holds(held: list[LayerRange], layers: int) -> None:
    missing = [layer for hole in holes(held, layers) for layer in hole]
    served = {layer for piece in held for layer in piece}
    assert missing == [layer for layer in range(layers) if layer not in served]
