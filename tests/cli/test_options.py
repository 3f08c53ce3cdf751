from __future__ import annotations

import pytest

from tessella.cli.options import sampling_of, split_addrs
from tessella.core.errors import BadRequest


def test_without_a_seed_every_request_has_another() -> None:
    assert len({sampling_of().seed for _ in range(8)}) == 8
    assert sampling_of(seed=7).seed == 7


@pytest.mark.parametrize(
    ("name", "value"),
    [("temperature", 3.0), ("top_p", 0.0), ("min_p", 1.0), ("seed", -1), ("max_tokens", 0)],
)
def test_a_flag_out_of_its_rule_is_named(name: str, value: float) -> None:
    with pytest.raises(BadRequest, match=name):
        sampling_of(**{name: value})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ([], []),
        ([""], []),
        ([" , "], []),
        (["a"], ["a"]),
        (["a,b"], ["a", "b"]),
        (["a b\tc", "d, e"], ["a", "b", "c", "d", "e"]),
    ],
)
def test_a_text_may_hold_several_addresses(given: list[str], found: list[str]) -> None:
    assert split_addrs(given) == found
