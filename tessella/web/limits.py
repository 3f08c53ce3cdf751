"""How often one address may ask: a token bucket for each, a bounded number of them.

An address means what one stranger has: an IPv4 address, or the /64 that every IPv6 host is given.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from ipaddress import ip_network
from typing import Generic, TypeVar

import trio
from starlette.types import ASGIApp, Receive, Scope, Send

from tessella.core.addresses import LOOPBACK, Cidr, Ip, read_ip, within
from tessella.core.errors import TooManyRequests

MAX_SOURCES = 16_384
"""Addresses that are remembered, about 4 MiB. One whose bucket refilled is forgotten first, then
the one that asked longest ago."""


S = TypeVar("S", bound=Hashable)
"""Who asks, as it is told apart from others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLimits:
    """So many requests a second of one address on average, and `burst` at once after a pause."""

    per_second: float = 20.0
    burst: int = 40
    exempt: tuple[Cidr, ...] = LOOPBACK
    """Networks whose addresses may ask as they like: our own machines, and a proxy of ours that
    all others come through."""


DEFAULT_RATE = RateLimits()


@dataclass(slots=True)
class _Bucket:
    tokens: float
    at: float


class Buckets(Generic[S]):
    """One bucket a source, full until it is used. `now` is in seconds and does not go back."""

    def __init__(self, limits: RateLimits, most: int = MAX_SOURCES) -> None:
        self._limits = limits
        self._most = most
        # Used longest ago first.
        self._buckets: dict[S, _Bucket] = {}

    def __len__(self) -> int:
        return len(self._buckets)

    def take(self, source: S, now: float) -> bool:
        """Whether one more may pass, which then counts."""
        bucket = self._buckets.pop(source, None) or _Bucket(float(self._limits.burst), now)
        self._buckets[source] = bucket
        self._refill(bucket, now)
        passes = bucket.tokens >= 1.0
        if passes:
            bucket.tokens -= 1.0
        self._forget(now)
        return passes

    def _refill(self, bucket: _Bucket, now: float) -> None:
        gained = (now - bucket.at) * self._limits.per_second
        bucket.tokens = min(float(self._limits.burst), bucket.tokens + gained)
        bucket.at = now

    def _forget(self, now: float) -> None:
        while self._buckets:
            source, bucket = next(iter(self._buckets.items()))
            self._refill(bucket, now)
            if bucket.tokens < self._limits.burst and len(self._buckets) <= self._most:
                return
            del self._buckets[source]


class RateLimiter:
    """Middleware that raises TooManyRequests for an address that asks too fast."""

    def __init__(self, app: ASGIApp, limits: RateLimits = DEFAULT_RATE) -> None:
        self._app = app
        self._limits = limits
        self._buckets = Buckets[Cidr](limits)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] == "http" and scope.get("client"):
            self._admit(scope["client"][0])
        await self._app(scope, receive, send)

    def _admit(self, host: str) -> None:
        ip = read_client(host)
        if within(ip, self._limits.exempt):
            return
        if not self._buckets.take(source_of(ip), trio.current_time()):
            raise TooManyRequests(
                f"more than {self._limits.per_second:g} requests a second from one address"
            )


def read_client(host: str) -> Ip:
    """The address of a socket's other end, without its zone; mapped IPv4 as what it is."""
    return read_ip(host.partition("%")[0])


def source_of(ip: Ip) -> Cidr:
    """What one stranger has: an IPv4 address, or a /64."""
    return ip_network((ip, 32 if ip.version == 4 else 64), strict=False)
