from __future__ import annotations

import pytest

from tessella.cli.options import announced, sampling_of, split_addrs
from tessella.core.errors import BadAddress, BadConfig, BadRequest


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
    ("public_ip", "public_port", "told"),
    [
        (None, None, ()),
        ("", None, ()),  # a variable that is set to nothing says nothing
        ("203.0.113.7", None, ("/ip4/203.0.113.7/tcp/9080",)),
        ("203.0.113.7", 4002, ("/ip4/203.0.113.7/tcp/4002",)),
        ("2001:db8::7", 4002, ("/ip6/2001:db8::7/tcp/4002",)),
    ],
)
def test_what_a_nat_maps_is_announced(
    public_ip: str | None, public_port: int | None, told: tuple[str, ...]
) -> None:
    assert announced(public_ip, public_port, ("/ip4/0.0.0.0/tcp/9080",)) == told


@pytest.mark.parametrize(
    ("public_ip", "public_port", "error"),
    [
        (None, 4002, BadConfig),
        ("example", None, BadAddress),
        ("203.0.113.7", 70000, BadAddress),
    ],
)
def test_an_announcement_that_says_nothing_is_refused(
    public_ip: str | None, public_port: int | None, error: type[Exception]
) -> None:
    with pytest.raises(error):
        announced(public_ip, public_port, ("/ip4/0.0.0.0/tcp/9080",))


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
