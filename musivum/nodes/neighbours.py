"""How many nodes are in one network: keys cost nothing, addresses do.

A network is what one customer rents, a /24 of IPv4 or a /48 of IPv6. A node is in those where its
key answered; of one that only a tunnel leads to that is the tunnel's, which many may share.
"""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import ip_address

from p2p.gates import network_of
from tessella.core.addresses import Cidr, Ip, read_ip, within
from tessella.core.ids import PeerId


class Neighbours:
    """The nodes of each network that is not exempt. One without nodes is forgotten."""

    def __init__(self, exempt: tuple[Cidr, ...]) -> None:
        self._exempt = exempt
        self._nodes: dict[Cidr, set[PeerId]] = {}

    def networks(self, ips: Iterable[Ip]) -> tuple[Cidr, ...]:
        """The networks of these addresses that count, each once."""
        found = (network_of(ip) for ip in ips if not within(ip, self._exempt))
        return tuple(dict.fromkeys(found))

    def of(self, network: Cidr) -> frozenset[PeerId]:
        """The nodes in a network."""
        return frozenset(self._nodes.get(network, ()))

    def put(self, peer_id: PeerId, ips: Iterable[Ip]) -> None:
        """A node is there, with these addresses."""
        for network in self.networks(ips):
            self._nodes.setdefault(network, set()).add(peer_id)

    def drop(self, peer_id: PeerId, ips: Iterable[Ip]) -> None:
        """It is gone; the addresses are those it was put with."""
        for network in self.networks(ips):
            self._nodes[network].discard(peer_id)
            if not self._nodes[network]:
                del self._nodes[network]


def literal_ips(addrs: Iterable[str]) -> tuple[Ip, ...]:
    """The IP addresses that multiaddrs name, without zones: none in what is not one of IP."""
    found: dict[Ip, None] = {}
    for addr in addrs:
        parts = addr.split("/")
        if len(parts) > 2 and parts[1] in ("ip4", "ip6"):
            try:
                found[ip_address(read_ip(parts[2]).packed)] = None
            except ValueError:
                continue
    return tuple(found)
