"""One address may ask so often, and the memory of who asked is bounded."""

from __future__ import annotations

from ipaddress import ip_network

import httpx
import pytest
import trio
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from tessella.core.addresses import address_of
from tessella.core.errors import BadSignature, TooManyRequests
from tessella.web.limits import RateLimiter, RateLimits, read_client

OK = PlainTextResponse("ok")


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
    assert address_of(read_client(host)) == ip_network(expected)


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


async def by_path(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers `/good` and what is below it, and lets nobody in elsewhere."""
    if not scope["path"].startswith("/good"):
        raise BadSignature("not signed")
    await OK(scope, receive, send)


async def test_on_signed_paths_only_who_is_not_let_in_is_counted(autojump_clock: object) -> None:
    limits = RateLimits(burst=2, signed=("/good", "/good/", "/bad"))
    limiter = RateLimiter(by_path, limits)
    transport = httpx.ASGITransport(limiter, client=("203.0.113.7", 1))
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        for path in ("/good", "/good/below") * 5:
            assert (await client.post(path)).status_code == 200
        for _ in range(2):
            with pytest.raises(BadSignature):
                await client.post("/bad")
        for path in ("/good", "/bad", "/other"):
            with pytest.raises(TooManyRequests):
                await client.post(path)
    assert await statuses(RateLimiter(OK, limits), "203.0.113.7", 3) == [True, True, False]
