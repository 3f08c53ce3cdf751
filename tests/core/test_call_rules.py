"""The window of time is closed at both ends, and a nonce has its size."""

from __future__ import annotations

import math

import pytest

from tessella.core.call_rules import check_nonce, skew
from tessella.core.errors import BadFrame


@pytest.mark.parametrize(
    ("ahead", "said"),
    [
        (0.0, None),
        (-60.0, None),
        (30.0, None),
        (-60.5, "60 s behind"),
        (-61.0, "61 s behind"),
        (31.0, "31 s ahead of"),
        (math.nan, "nan s behind"),
    ],
)
def test_a_call_is_in_time_or_so_far_off(ahead: float, said: str | None) -> None:
    assert skew(ahead) == said


@pytest.mark.parametrize("size", [0, 7, 65])
def test_a_nonce_of_another_size_is_refused(size: int) -> None:
    with pytest.raises(BadFrame, match="8 to 64 bytes"):
        check_nonce(bytes(size))


@pytest.mark.parametrize("size", [8, 64])
def test_a_nonce_may_have_either_end_of_its_sizes(size: int) -> None:
    check_nonce(bytes(size))
