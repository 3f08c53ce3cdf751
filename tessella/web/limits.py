"""How often one address may ask: a token bucket for each, a bounded number of them.

An address means what one stranger has: an IPv4 address, or the /64 that every IPv6 host is given.
"""

from __future__ import annotations

from dataclasses import dataclass

import trio
from starlette.types import ASGIApp, Receive, Scope, Send

from tessella.core.addresses import LOOPBACK, Cidr, Ip, address_of, read_ip, within
from tessella.core.errors import TooManyRequests
from tessella.core.rates import Buckets, Rate


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLimits:
    """So many requests a second of one address on average, and `burst` at once after a pause."""

    per_second: float = 20.0
    burst: int = 40
    exempt: tuple[Cidr, ...] = LOOPBACK
    """Networks whose addresses may ask as they like: our own machines, and a proxy of ours that
    all others come through."""

    @property
    def rate(self) -> Rate:
        """The rate of one address."""
        return Rate(self.per_second, self.burst)


DEFAULT_RATE = RateLimits()


class RateLimiter:
    """Middleware that raises TooManyRequests for an address that asks too fast."""

    def __init__(self, app: ASGIApp, limits: RateLimits = DEFAULT_RATE) -> None:
        self._app = app
        self._limits = limits
        self._buckets = Buckets[Cidr](limits.rate)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] == "http" and scope.get("client"):
            self._admit(scope["client"][0])
        await self._app(scope, receive, send)

    def _admit(self, host: str) -> None:
        ip = read_client(host)
        if within(ip, self._limits.exempt):
            return
        if not self._buckets.take(address_of(ip), trio.current_time()):
            raise TooManyRequests(
                f"more than {self._limits.per_second:g} requests a second from one address"
            )


def read_client(host: str) -> Ip:
    """The address of a socket's other end, without its zone; mapped IPv4 as what it is."""
    return read_ip(host.partition("%")[0])
