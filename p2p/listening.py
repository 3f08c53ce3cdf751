"""Addresses to listen on: free ones, and what others can dial of them."""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterable

import trio
from multiaddr.utils import get_network_addrs

from tessella.core.addresses import MAX_ADDRS, check_addr
from tessella.core.errors import BadAddress, PortInUse

_FAMILIES = {"ip4": socket.AF_INET, "ip6": socket.AF_INET6}
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
