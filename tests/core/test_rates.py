"""A source may so often, and the memory of who came is bounded."""

from __future__ import annotations

from ipaddress import ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tessella.core.addresses import Cidr
from tessella.core.rates import Bucket, Buckets, Rate, refill

SOURCE = ip_network("203.0.113.7/32")


def source(number: int) -> Cidr:
    return ip_network((0x0B000000 + number, 32))


@pytest.mark.parametrize(
    ("tokens", "seconds", "expected"),
    [
        (0.0, 0.0, 0.0),
        (0.0, 0.5, 0.5),
        (0.0, 1.0, 1.0),
        (7.0, 1.0, 8.0),
        (7.5, 1.0, 8.0),
        (8.0, 1e9, 8.0),
        (3.0, -5.0, 3.0),
    ],
)
def test_a_bucket_fills_with_time_up_to_its_burst(
    tokens: float, seconds: float, expected: float
) -> None:
    assert refill(Bucket(tokens, 100.0), Rate(1.0, 8), 100.0 + seconds).tokens == expected


@given(st.lists(st.floats(0.0, 3.0), max_size=60))
def test_no_more_pass_than_the_burst_and_the_rate_allow(pauses: list[float]) -> None:
    buckets, now, passed = Buckets[Cidr](Rate(1.0, 8)), 0.0, 0
    for pause in pauses:
        now += pause
        if buckets.left(SOURCE, now) >= 1:
            buckets.take(SOURCE, now)
            passed += 1
    assert passed <= 8 + now + 1e-6


def test_buckets_are_forgotten_when_they_are_full_again() -> None:
    buckets = Buckets[Cidr](Rate(1.0, 8))
    for n in range(100):
        buckets.take(ip_network(f"198.51.100.{n}/32"), 0.0)
    buckets.take(SOURCE, 5.0)
    assert len(buckets) == 1


def test_buckets_are_bounded_however_many_addresses_come() -> None:
    buckets = Buckets[Cidr](Rate(1.0, 8), most=10)
    for n in range(100):
        buckets.take(ip_network(f"198.51.100.{n}/32"), 0.0)
    assert len(buckets) == 10
    assert buckets.left(ip_network("198.51.100.99/32"), 0.0) == 7


def test_a_burst_passes_and_then_the_rate() -> None:
    buckets = Buckets[Cidr](Rate(2.0, 3))
    assert [buckets.take(SOURCE, 0.0) for _ in range(4)] == [True, True, True, False]
    assert [buckets.take(SOURCE, 0.5) for _ in range(2)] == [True, False]
    assert [buckets.take(SOURCE, 100.0) for _ in range(4)] == [True, True, True, False]


def test_one_address_does_not_use_up_another() -> None:
    buckets = Buckets[Cidr](Rate(20.0, 1))
    assert [buckets.take(each, 0.0) for each in (source(1), source(1), source(2))] == [
        True,
        False,
        True,
    ]


def test_refused_asking_costs_no_more_waiting() -> None:
    buckets = Buckets[Cidr](Rate(1.0, 1))
    assert buckets.take(SOURCE, 0.0)
    assert not any(buckets.take(SOURCE, moment / 10) for moment in range(1, 10))
    assert buckets.take(SOURCE, 1.0)


@given(st.lists(st.floats(0.0, 0.5), max_size=60))
def test_nobody_passes_more_often_than_burst_and_rate_allow(gaps: list[float]) -> None:
    buckets, now, passed = Buckets[Cidr](Rate(4.0, 5)), 0.0, 0
    for gap in gaps:
        now += gap
        passed += buckets.take(SOURCE, now)
    assert passed <= 5 + 4.0 * now + 1e-6


def test_the_memory_is_bounded_and_the_oldest_is_forgotten_first() -> None:
    buckets = Buckets[Cidr](Rate(0.001, 1), most=3)
    for number in range(5):
        assert buckets.take(source(number), 0.0)
        assert len(buckets) <= 3
    assert not buckets.take(source(4), 0.0)
    assert not buckets.take(source(3), 0.0)
    assert buckets.take(source(0), 0.0)


def test_who_is_full_again_is_forgotten() -> None:
    buckets = Buckets[Cidr](Rate(10.0, 1))
    for number in range(50):
        buckets.take(source(number), 0.0)
    assert len(buckets) == 50
    buckets.take(source(99), 1.0)
    assert len(buckets) == 1
