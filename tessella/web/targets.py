"""URLs that a stranger gave: what may be called, and where that really is.

A URL that somebody else chose can make this program call what only this program can reach. So it
is read once and strictly, its host has to be public (or in a network that the operator named), a
name is resolved once, and the call goes to the very address that was judged:

    target = await resolve_target("https://example.org/v1/x", allow_private=False)
    await get_json(client, target)

Whoever gave the URL learns only that it is refused, not why: the reasons map a network.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from urllib.parse import urlsplit

import httpx
import trio

from tessella.core.addresses import LOOPBACK, PRIVATE, Cidr, Ip, judge_ip, read_ip, within
from tessella.core.errors import BadAddress
from tessella.web.hosts import bracketed, is_local_name, read_host

MAX_URL_CHARS = 2048
"""Ours have under 200; proxies take about 8,000."""
MAX_ADDRESSES = 16
"""That are judged and tried of one name."""
RESOLVE_SECONDS = 3.0
"""To look a name up, as long as a connection may take."""
_PORTS = {"http": 80, "https": 443}
_FIRST_UNPRIVILEGED = 1024
# urlsplit takes more, and takes it apart in ways of its own.
_AUTHORITY = re.compile(
    r"(\[(?P<ip6>[0-9a-fA-F.]*:[0-9a-fA-F.:]*)\]|(?P<name>[^:@\[\]]+))(:(?P<port>[0-9]{1,5}))?"
)

_LOG = logging.getLogger(__name__)

Resolver = Callable[[str, int], Awaitable[Sequence[str]]]


@dataclass(frozen=True, slots=True)
class HttpUrl:
    """A URL in its parts, which nobody has to parse again."""

    scheme: str
    host: str
    """In ASCII and lower case, IPv6 without brackets."""
    port: int
    path: str
    """With the query, from the first `/`."""

    @property
    def authority(self) -> str:
        """`host`, or `host:port` where the scheme does not imply it: a request's Host."""
        host = bracketed(self.host)
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"

    def at(self, address: Ip | None = None) -> str:
        """The URL, with an address in place of its host."""
        if address is None:
            return f"{self.scheme}://{self.authority}{self.path}"
        return f"{self.scheme}://{bracketed(str(address))}:{self.port}{self.path}"


@dataclass(frozen=True, slots=True)
class Target:
    """A URL that may be called, at one of the addresses that were judged."""

    url: HttpUrl
    addresses: tuple[Ip, ...]


def parse_url(text: str) -> HttpUrl:
    """An http or https URL in its parts. Raises BadAddress that says what is wrong with it."""
    shown = repr(text[:MAX_URL_CHARS])
    if len(text) > MAX_URL_CHARS or not text.isprintable() or re.search(r"[ \\]", text):
        raise BadAddress(f"not a URL of at most {MAX_URL_CHARS} plain characters: {shown}")
    try:
        parts = urlsplit(text)
    except ValueError as exc:
        raise BadAddress(f"not a URL: {shown}: {exc}") from None
    if parts.scheme not in _PORTS:
        raise BadAddress(f"neither http nor https: {shown}")
    authority = _AUTHORITY.fullmatch(parts.netloc)
    if authority is None:
        raise BadAddress(f"not a host, or a host and a port: {shown}")
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    if not path.isascii():
        raise BadAddress(f"a path that is not percent-encoded: {shown}")
    port = int(authority["port"] or _PORTS[parts.scheme])
    if port not in _PORTS.values() and not _FIRST_UNPRIVILEGED <= port <= 65535:
        raise BadAddress(f"a port that is not 80, 443 or {_FIRST_UNPRIVILEGED} and up: {shown}")
    host = _ascii_host(authority["name"] or authority["ip6"], shown)
    return HttpUrl(parts.scheme, host, port, path)


def judge_url(text: str, allow_private: bool | tuple[Cidr, ...]) -> str | None:
    """Why a URL may not be called, in a few words; None if it may.

    `allow_private` is as for `judge_addr`. A name passes: it is judged when it is resolved.
    """
    try:
        url = parse_url(text)
    except BadAddress as exc:
        return str(exc)
    if is_local_name(url.host):
        return judge_ip(LOOPBACK[0][1], allow_private)
    literal = _literal(url.host)
    return None if literal is None else judge_ip(literal, allow_private)


async def resolve_target(
    text: str,
    allow_private: bool | tuple[Cidr, ...],
    *,
    resolver: Resolver | None = None,
    public_https: bool = False,
) -> Target:
    """A URL with the addresses of its host, all of which may be called.

    With `public_https`, what is not in a private network has to be https.
    Raises BadAddress, always with the same words: the log has the reason.
    """
    reason = judge_url(text, allow_private)
    if reason is None:
        url = parse_url(text)
        addresses = await _resolve(url, resolver or lookup)
        reason = _judge_all(addresses, allow_private)
        if reason is None and public_https and url.scheme == "http":
            public = [each for each in addresses if not within(each, (*LOOPBACK, *PRIVATE))]
            reason = f"{public[0]} is public and needs https" if public else None
    if reason is not None:
        _LOG.info("%r is not called: %s", text[:MAX_URL_CHARS], reason)
        raise BadAddress(f"not a URL that is called from here: {text[:MAX_URL_CHARS]!r}")
    return Target(url, addresses)


async def lookup(host: str, port: int) -> Sequence[str]:
    """The addresses of a name, asked for once. Raises OSError where it has none."""
    found = await trio.socket.getaddrinfo(host, port, type=trio.socket.SOCK_STREAM)
    return [str(where[0]) for _, _, _, _, where in found]


async def _resolve(url: HttpUrl, resolver: Resolver) -> tuple[Ip, ...]:
    literal = _literal(url.host)
    if literal is not None:
        return (literal,)
    try:
        with trio.fail_after(RESOLVE_SECONDS):
            found = await resolver(url.host, url.port)
        return tuple(dict.fromkeys(read_ip(each.partition("%")[0]) for each in found))
    except (OSError, ValueError, trio.TooSlowError) as exc:
        _LOG.info("%s was not resolved: %s", url.host, exc)
        return ()


def _judge_all(addresses: tuple[Ip, ...], allow_private: bool | tuple[Cidr, ...]) -> str | None:
    if not 0 < len(addresses) <= MAX_ADDRESSES:
        return f"the name has {len(addresses)} addresses"
    reasons = (judge_ip(each, allow_private) for each in addresses)
    return next((reason for reason in reasons if reason is not None), None)


def _literal(host: str) -> Ip | None:
    found = read_host(host)
    return found if isinstance(found, IPv4Address | IPv6Address) else None


def _ascii_host(host: str, shown: str) -> str:
    try:
        # httpx has IDNA. What comes out is read as anything else is: 127。0。0。1 is 127.0.0.1.
        name = host if host.isascii() else httpx.URL(scheme="http", host=host).raw_host.decode()
        return str(read_host(name))
    except (ValueError, httpx.InvalidURL) as exc:
        raise BadAddress(f"no host that can be called: {shown}: {exc}") from None
