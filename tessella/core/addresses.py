"""Where a peer can be dialled: multiaddrs of the one shape this project uses, as values.

/ip4/203.0.113.7/tcp/4001[/p2p/12D3KooW…]      also /ip6, /dns, /dns4, /dns6

An address that is well formed may still lead nowhere, or back into the network of whoever dials
it. `judge_addr` says which; it looks at literals, and a name is judged when it is resolved.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

from tessella.core.errors import BadAddress, BadSignature
from tessella.core.identity import public_key_of
from tessella.core.ids import PeerId

# A registration or a record with more is no honest host: 8 interfaces in two families.
MAX_ADDRS = 16
MAX_ADDR_CHARS = 512
_NAMES = ("dns", "dns4", "dns6")

Ip = IPv4Address | IPv6Address
Cidr = IPv4Network | IPv6Network

LOOPBACK: tuple[Cidr, ...] = (IPv4Network("127.0.0.0/8"), IPv6Network("::1/128"))
# RFC 1918 and ULA: what a household or a laboratory numbers its own machines with.
PRIVATE: tuple[Cidr, ...] = (
    IPv4Network("10.0.0.0/8"),
    IPv4Network("172.16.0.0/12"),
    IPv4Network("192.168.0.0/16"),
    IPv6Network("fc00::/7"),
)
# No configuration makes these the address of one peer. The last six carry an IPv4 address, or
# stand for a gateway that reads one out of them: what they lead to is not what they look like.
_NEVER: tuple[tuple[Cidr, str], ...] = (
    (IPv4Network("0.0.0.0/8"), "no machine"),
    (IPv6Network("::/128"), "no machine"),
    (IPv4Network("169.254.0.0/16"), "link-local"),
    (IPv6Network("fe80::/10"), "link-local"),
    (IPv4Network("224.0.0.0/4"), "a group"),
    (IPv6Network("ff00::/8"), "a group"),
    (IPv4Network("240.0.0.0/4"), "reserved"),
    (IPv6Network("fec0::/10"), "reserved"),
    (IPv4Network("192.88.99.0/24"), "a 6to4 relay"),
    (IPv6Network("2002::/16"), "6to4"),
    (IPv6Network("2001::/32"), "Teredo"),
    (IPv6Network("64:ff9b::/96"), "NAT64"),
    (IPv6Network("64:ff9b:1::/48"), "NAT64"),
    (IPv6Network("::/96"), "an IPv4 address in disguise"),
)


@dataclass(frozen=True, slots=True)
class PeerAddress:
    """A peer and where it may be dialled: multiaddrs without their `/p2p` part."""

    peer_id: PeerId
    addrs: tuple[str, ...]

    def full(self) -> tuple[str, ...]:
        """The addresses with `/p2p/<peer id>`, as people pass them on."""
        return tuple(f"{addr}/p2p/{self.peer_id}" for addr in self.addrs)


def check_addr(text: str) -> str:
    """A transport address, as it is. Raises BadAddress that names the text."""
    parts = text.split("/")
    if len(text) > MAX_ADDR_CHARS or len(parts) != 5 or parts[0] or parts[3] != "tcp":
        raise BadAddress(f"not a multiaddr /ip4/HOST/tcp/PORT: {text[:MAX_ADDR_CHARS]!r}")
    _, family, host, _, port = parts
    if not (port.isdecimal() and port.isascii() and len(port) <= 5 and int(port) <= 65535):
        raise BadAddress(f"no TCP port {port!r} in {text!r}")
    if family in _NAMES:
        if not host or not host.isascii():
            raise BadAddress(f"no host name {host!r} in {text!r}")
    elif family not in ("ip4", "ip6") or not _is_literal(family, host):
        raise BadAddress(f"no {family} address {host!r} in {text!r}")
    return text


def is_private(addr: str) -> bool:
    """Whether a transport address is one of a machine or a LAN by name, and no wildcard.

    Who listens on such an address means it, and wants it told.
    """
    try:
        return within(read_ip(addr.split("/")[2]), (*LOOPBACK, *PRIVATE))
    except ValueError:
        return False


def is_loopback(addr: str) -> bool:
    """Whether a transport address can be dialled from its own machine alone."""
    host = addr.split("/")[2]
    return host == "::1" or host.startswith("127.")


def parse_peer(text: str) -> PeerAddress:
    """`/ip4/…/tcp/…/p2p/ID` as a value. Raises BadAddress that names the text."""
    addr, marker, peer_id = text.strip().rpartition("/p2p/")
    if not marker:
        raise BadAddress(f"a multiaddr without /p2p/<peer id>: {text[:MAX_ADDR_CHARS]!r}")
    try:
        public_key_of(peer_id)
    except BadSignature as exc:
        raise BadAddress(f"{exc}, in {text[:MAX_ADDR_CHARS]!r}") from None
    return PeerAddress(PeerId(peer_id), (check_addr(addr),))


def read_ip(text: str) -> Ip:
    """An IP literal; an IPv4 address mapped into IPv6 is the IPv4 address. Raises ValueError.

    Only the four decimal numbers of IPv4 are taken, none of the older spellings (127.1, 0x7f.1).
    """
    found = ipaddress.ip_address(text)
    if isinstance(found, IPv6Address) and found.ipv4_mapped is not None:
        return found.ipv4_mapped
    return found


def within(address: Ip, networks: Iterable[Cidr]) -> bool:
    """Whether an address is in one of the networks."""
    return any(address.version == each.version and address in each for each in networks)


def address_of(ip: Ip) -> Cidr:
    """What one host has: its IPv4 address, or its /64."""
    return ipaddress.ip_network((ip, 32 if ip.version == 4 else 64), strict=False)


def judge_addr(addr: str, allow_private: bool | tuple[Cidr, ...]) -> str | None:
    """Why a peer may not be dialled there, in a few words; None if it may.

    `allow_private` is True for loopback, RFC 1918 and ULA, or the networks to allow besides the
    public ones. What is never one machine's own address (see the table) stays refused.
    Raises BadAddress for what is no transport address.
    """
    _, family, host, _, port = check_addr(addr).split("/")
    if int(port) == 0:
        return "port 0 is not one that can be dialled"
    if family in _NAMES:
        name = host.lower().rstrip(".")
        local = name == "localhost" or name.endswith(".localhost")
        return judge_ip(LOOPBACK[0][1], allow_private) if local else None
    return judge_ip(read_ip(host), allow_private)


def judge_ip(address: Ip, allow_private: bool | tuple[Cidr, ...]) -> str | None:
    """`judge_addr` of an address alone."""
    allowed = (*LOOPBACK, *PRIVATE) if allow_private is True else allow_private or ()
    # ::1 is in ::/96, so loopback comes before the table.
    if not within(address, LOOPBACK):
        for network, what in _NEVER:
            if within(address, (network,)):
                return f"{address} is {what}"
    if within(address, allowed) or address.is_global:
        return None
    return f"{address} is not public"


def merge(found: Iterable[PeerAddress]) -> tuple[PeerAddress, ...]:
    """One entry a peer, addresses in the order they came."""
    known: dict[PeerId, dict[str, None]] = {}
    for one in found:
        known.setdefault(one.peer_id, {}).update(dict.fromkeys(one.addrs))
    return tuple(PeerAddress(peer, tuple(addrs)) for peer, addrs in known.items())


def _is_literal(family: str, host: str) -> bool:
    try:
        return ipaddress.ip_address(host).version == int(family[2:])
    except ValueError:
        return False
