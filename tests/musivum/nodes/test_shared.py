"""What nodes have in common is one value, and the right one."""

from __future__ import annotations

import pytest

from musivum.nodes.shared import shape_of, shared_terms
from musivum.testing import SMALL
from tessella.core.errors import BadConfig, BadFrame
from tessella.core.formats import KvFormat
from tessella.core.plan import terms_of
from tessella.core.shape_json import encode_shape
from tessella.core.shapes import DType


def test_the_same_bytes_are_one_shape_and_what_is_none_is_refused_each_time() -> None:
    data = encode_shape(SMALL)
    assert shape_of(data) == SMALL
    assert shape_of(bytes(bytearray(data))) is shape_of(data)
    for _ in range(2):
        with pytest.raises(BadFrame):
            shape_of(b"{}")


def test_prices_are_those_of_the_planner_and_one_value() -> None:
    args = (SMALL, DType.F16, KvFormat.Q8_0, (256, 3), (80, 7))
    assert shared_terms(*args) == terms_of(
        SMALL,
        DType.F16,
        context=256,
        slots=3,
        kv=KvFormat.Q8_0,
        usable_vram_pct=80,
        min_vram_mb=7,
    )
    assert shared_terms(*args) is shared_terms(*args)
    with pytest.raises(BadConfig):
        shared_terms(SMALL, DType.F16, KvFormat.F16, (0, 1), (80, 7))
