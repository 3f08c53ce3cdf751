"""Where a peer can be dialled: multiaddrs of the one shape this project uses, as values.

/ip4/203.0.113.7/tcp/4001[/p2p/12D3KooW…]      also /ip6, /dns, /dns4, /dns6
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass

from tessella.core.errors import BadAddress, BadSignature
from tessella.core.identity import public_key_of
from tessella.core.ids import PeerId

# A registration or a record with more is no honest host: 8 interfaces in two families.
MAX_ADDRS = 16
MAX_ADDR_CHARS = 512
_NAMES = ("dns", "dns4", "dns6")


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
