"""Which nodes share a network, and which addresses a multiaddr names."""

from __future__ import annotations

from ipaddress import ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from musivum.nodes.neighbours import Neighbours, literal_ips
from tessella.core.addresses import LOOPBACK, Ip, read_ip
from tessella.core.ids import PeerId

A, B = PeerId("a"), PeerId("b")
IPS = [read_ip(text) for text in ("192.0.2.1", "192.0.2.255", "198.51.100.1", "2001:db8::1")]


def test_a_network_is_a_24_or_a_48() -> None:
    found = Neighbours(()).networks([*IPS, read_ip("2001:db8:0:ffff::1"), read_ip("2001:db8:1::1")])
    assert list(map(str, found)) == [
        "192.0.2.0/24",
        "198.51.100.0/24",
        "2001:db8::/48",
        "2001:db8:1::/48",
    ]


def test_exempt_networks_do_not_count() -> None:
    table = Neighbours((*LOOPBACK, ip_network("192.0.2.0/25")))
    ips = [read_ip(text) for text in ("127.0.0.1", "::1", "192.0.2.1", "192.0.2.200")]
    assert list(map(str, table.networks(ips))) == ["192.0.2.0/24"]
    assert table.networks(ips[:3]) == ()


@given(st.lists(st.tuples(st.sampled_from([A, B]), st.lists(st.sampled_from(IPS), max_size=4))))
def test_who_came_and_went_left_nothing(steps: list[tuple[PeerId, list[Ip]]]) -> None:
    table, here = Neighbours(()), dict[PeerId, list[Ip]]()
    for peer_id, ips in steps:
        if peer_id in here:
            table.drop(peer_id, here.pop(peer_id))
        else:
            here[peer_id] = ips
            table.put(peer_id, ips)
        for ip in IPS:
            (network,) = table.networks([ip])
            known = {who for who, theirs in here.items() if network in table.networks(theirs)}
            assert table.of(network) == known


@pytest.mark.parametrize(
    ("addr", "ips"),
    [
        ("/ip4/192.0.2.1/tcp/1", ["192.0.2.1"]),
        ("/ip6/2001:db8::1%eth0/tcp/1", ["2001:db8::1"]),
        ("/ip6/::ffff:192.0.2.1/tcp/1", ["192.0.2.1"]),
        ("/dns4/node.example/tcp/1", []),
        ("/ip4/nonsense/tcp/1", []),
        ("/ip4", []),
        ("", []),
    ],
)
def test_of_a_multiaddr_the_literal_counts(addr: str, ips: list[str]) -> None:
    assert list(map(str, literal_ips([addr, addr]))) == ips
