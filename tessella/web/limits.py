"""How often one address may ask: a token bucket for each, a bounded number of them.

An address means what one stranger has: an IPv4 address, or the /64 that every IPv6 host is given.
"""

from __future__ import annotations

from dataclasses import dataclass
from http import HTTPStatus

import trio
from starlette.types import ASGIApp, Receive, Scope, Send

from tessella.core.addresses import LOOPBACK, Cidr, Ip, address_of, read_ip, within
from tessella.core.errors import TessellaError, TooManyRequests
from tessella.core.rates import Buckets, Rate


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLimits:
    """So many requests a second of one address on average, and `burst` at once after a pause."""

    per_second: float = 20.0
    burst: int = 40
    exempt: tuple[Cidr, ...] = LOOPBACK
    """Networks whose addresses may ask as they like: our own machines, and a proxy of ours that
    all others come through."""
    signed: tuple[str, ...] = ()
    """Paths on which only those count that are refused with a 401: who is known there has limits
    of his own. One that ends in `/` stands for all below it."""

    def is_signed(self, path: str) -> bool:
        """Whether a path is one of `signed`."""
        below = (each for each in self.signed if each.endswith("/"))
        return path in self.signed or any(path.startswith(each) for each in below)

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
        source = self._source(scope)
        if source is None:
            await self._app(scope, receive, send)
        elif self._limits.is_signed(scope["path"]):
            self._check(self._buckets.left(source, trio.current_time()) >= 1.0)
            try:
                await self._app(scope, receive, send)
            except TessellaError as exc:
                if exc.status == HTTPStatus.UNAUTHORIZED:
                    self._buckets.take(source, trio.current_time())
                raise
        else:
            self._check(self._buckets.take(source, trio.current_time()))
            await self._app(scope, receive, send)

    def _source(self, scope: Scope) -> Cidr | None:
        if scope["type"] != "http" or not scope.get("client"):
            return None
        ip = read_client(scope["client"][0])
        return None if within(ip, self._limits.exempt) else address_of(ip)

    def _check(self, passes: bool) -> None:
        if not passes:
            raise TooManyRequests(
                f"more than {self._limits.per_second:g} requests a second from one address"
            )


def read_client(host: str) -> Ip:
    """The address of a socket's other end, without its zone; mapped IPv4 as what it is."""
    return read_ip(host.partition("%")[0])
