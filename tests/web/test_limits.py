"""One address may ask so often, and the memory of who asked is bounded."""

from __future__ import annotations

from ipaddress import ip_network

import httpx
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from starlette.responses import PlainTextResponse

from tessella.core.addresses import Cidr
from tessella.core.errors import TooManyRequests
from tessella.web.limits import Buckets, RateLimiter, RateLimits, read_client, source_of

SOURCE = ip_network("203.0.113.7/32")
OK = PlainTextResponse("ok")


def source(number: int) -> Cidr:
    return ip_network((0x0B000000 + number, 32))


def test_a_burst_passes_and_then_the_rate() -> None:
    buckets = Buckets[Cidr](RateLimits(per_second=2.0, burst=3))
    assert [buckets.take(SOURCE, 0.0) for _ in range(4)] == [True, True, True, False]
    assert [buckets.take(SOURCE, 0.5) for _ in range(2)] == [True, False]
    assert [buckets.take(SOURCE, 100.0) for _ in range(4)] == [True, True, True, False]


def test_one_address_does_not_use_up_another() -> None:
    buckets = Buckets[Cidr](RateLimits(burst=1))
    assert [buckets.take(each, 0.0) for each in (source(1), source(1), source(2))] == [
        True,
        False,
        True,
    ]


def test_refused_asking_costs_no_more_waiting() -> None:
    buckets = Buckets[Cidr](RateLimits(per_second=1.0, burst=1))
    assert buckets.take(SOURCE, 0.0)
    assert not any(buckets.take(SOURCE, moment / 10) for moment in range(1, 10))
    assert buckets.take(SOURCE, 1.0)


@given(st.lists(st.floats(0.0, 0.5), max_size=60))
def test_nobody_passes_more_often_than_burst_and_rate_allow(gaps: list[float]) -> None:
    buckets, now, passed = Buckets[Cidr](RateLimits(per_second=4.0, burst=5)), 0.0, 0
    for gap in gaps:
        now += gap
        passed += buckets.take(SOURCE, now)
    assert passed <= 5 + 4.0 * now + 1e-6


def test_the_memory_is_bounded_and_the_oldest_is_forgotten_first() -> None:
    buckets = Buckets[Cidr](RateLimits(per_second=0.001, burst=1), most=3)
    for number in range(5):
        assert buckets.take(source(number), 0.0)
        assert len(buckets) <= 3
    assert not buckets.take(source(4), 0.0)
    assert not buckets.take(source(3), 0.0)
    assert buckets.take(source(0), 0.0)


def test_who_is_full_again_is_forgotten() -> None:
    buckets = Buckets[Cidr](RateLimits(per_second=10.0, burst=1))
    for number in range(50):
        buckets.take(source(number), 0.0)
    assert len(buckets) == 50
    buckets.take(source(99), 1.0)
    assert len(buckets) == 1


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("203.0.113.7", "203.0.113.7/32"),
        ("::ffff:203.0.113.7", "203.0.113.7/32"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
    ],
)
def test_an_address_is_what_one_stranger_has(host: str, expected: str) -> None:
    assert source_of(read_client(host)) == ip_network(expected)


async def statuses(limiter: RateLimiter, host: str, count: int) -> list[bool]:
    """Which of so many requests of a host pass."""
    transport = httpx.ASGITransport(limiter, client=(host, 1))
    passed = []
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        for _ in range(count):
            try:
                passed.append((await client.get("/")).status_code == 200)
            except TooManyRequests:
                passed.append(False)
    return passed


async def test_the_limiter_lets_a_burst_and_then_the_rate_pass(autojump_clock: object) -> None:
    limiter = RateLimiter(OK)
    assert await statuses(limiter, "203.0.113.7", 41) == [True] * 40 + [False]
    await trio.sleep(0.101)
    assert await statuses(limiter, "203.0.113.7", 3) == [True, True, False]
    assert await statuses(limiter, "203.0.113.8", 1) == [True]


async def test_a_subnet_of_ipv6_is_one_address(autojump_clock: object) -> None:
    limiter = RateLimiter(OK, RateLimits(burst=2))
    hosts = ("2001:db8::1", "2001:db8::2", "2001:db8::3", "2001:db8:0:1::1")
    assert [(await statuses(limiter, host, 1))[0] for host in hosts] == [True, True, False, True]


async def test_exempt_networks_ask_as_they_like(autojump_clock: object) -> None:
    limiter = RateLimiter(OK, RateLimits(burst=1))
    for host in ("127.0.0.1", "::1", "::ffff:127.0.0.1"):
        assert all(await statuses(limiter, host, 5))
    lab = RateLimiter(OK, RateLimits(burst=1, exempt=(ip_network("10.7.0.0/16"),)))
    assert all(await statuses(lab, "10.7.1.1", 5))
    assert await statuses(lab, "127.0.0.1", 2) == [True, False]
