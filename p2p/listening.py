"""Addresses to listen on: free ones, and what others can dial of them."""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network

import trio
from multiaddr.utils import get_network_addrs

from tessella.core.addresses import MAX_ADDRS, Cidr, check_addr, judge_addr
from tessella.core.errors import BadAddress, PortInUse

_FAMILIES = {"ip4": socket.AF_INET, "ip6": socket.AF_INET6}
_ALL: tuple[Cidr, ...] = (IPv4Network("0.0.0.0/0"), IPv6Network("::/0"))
_WILDCARDS = {"0.0.0.0": ("ip4", "127.0.0.1"), "::": ("ip6", "::1")}


async def check_free(addr: str) -> None:
    """Raise PortInUse or BadAddress that names the address, if it cannot be listened on.

    libp2p listens with SO_REUSEPORT, for hole punching: a second process of the same user would
    get the port without an error, and half of the connections with it.
    """
    _, family, host, _, port = check_addr(addr).split("/")
    if family not in _FAMILIES:
        raise BadAddress(f"cannot listen on a name, only on an address: {addr}")
    with trio.socket.socket(_FAMILIES[family], socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == "ip6":
            probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        try:
            await probe.bind((host, int(port)))
        except OSError as exc:
            if exc.errno == errno.EADDRINUSE:
                raise PortInUse(f"another program listens on {addr}") from None
            raise BadAddress(f"cannot listen on {addr}: {exc.strerror}") from None


def expand(addrs: Iterable[str]) -> tuple[str, ...]:
    """Addresses with wildcards replaced by those of the interfaces; loopback if there are none."""
    found: dict[str, None] = {}
    for addr in addrs:
        _, family, host, _, port = addr.split("/")
        if host not in _WILDCARDS:
            found[addr] = None
            continue
        version, loopback = _WILDCARDS[host]
        hosts = get_network_addrs(int(version[2:])) or [loopback]
        found.update(dict.fromkeys(f"/{family}/{each}/tcp/{port}" for each in hosts))
    return tuple(found)[:MAX_ADDRS]


@dataclass(frozen=True, slots=True)
class Announcement:
    """What others are told about where to dial us: nothing that they could not reach.

    Raises BadAddress for an address that is announced and not dialable.
    """

    announced: tuple[str, ...] = ()
    """Told before all else: what the operator knows and this machine can not see, such as the
    public address of its router. In the order given."""
    allow_private: bool | tuple[Cidr, ...] = True
    """Which of this machine's own addresses that are not public are told: all that one machine
    can have, none, or those of some networks. Overlay networks number theirs with anything."""

    def __post_init__(self) -> None:
        for addr in self.announced:
            reason = self._judge(addr)
            if reason is not None:
                raise BadAddress(f"cannot announce {addr}: {reason}")

    def _judge(self, addr: str) -> str | None:
        return judge_addr(addr, _ALL if self.allow_private is True else self.allow_private)

    def of(self, bound: Iterable[str]) -> tuple[str, ...]:
        """The addresses to tell, for those that are listened on; none where none is."""
        bound = tuple(bound)
        if not bound:
            return ()
        own = (addr for addr in expand(bound) if self._judge(addr) is None)
        return tuple(dict.fromkeys((*self.announced, *own)))[:MAX_ADDRS]

    def refuse_unreachable(self, bound: Iterable[str]) -> None:
        """Raise BadAddress that says why, if there is nothing to tell."""
        bound = tuple(bound)
        if not bound or self.of(bound):
            return
        reasons = (self._judge(addr) for addr in expand(bound))
        listed = ", ".join(dict.fromkeys(reason for reason in reasons if reason))
        raise BadAddress(
            f"no peer could dial this node: {listed}; announce a public address, or allow private"
        )


EVERYWHERE = Announcement()
