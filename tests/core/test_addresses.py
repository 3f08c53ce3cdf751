"""Multiaddrs of the one shape, as values; everything else is refused by name."""

from __future__ import annotations

import re
from contextlib import suppress
from ipaddress import IPv4Network, IPv6Network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tessella.core.addresses import (
    MAX_ADDR_CHARS,
    Cidr,
    PeerAddress,
    check_addr,
    is_loopback,
    is_private,
    judge_addr,
    merge,
    parse_peer,
    read_ip,
)
from tessella.core.errors import BadAddress
from tessella.core.identity import Identity

A, B = (Identity(bytes([n]) * 32).peer_id for n in (1, 2))

GOOD = [
    "/ip4/203.0.113.7/tcp/4001",
    "/ip4/0.0.0.0/tcp/0",
    "/ip6/::1/tcp/65535",
    "/ip6/2001:db8::7/tcp/1",
    "/dns/example.org/tcp/443",
    "/dns4/example.org/tcp/443",
    "/dns6/example.org/tcp/443",
]
BAD = [
    "",
    "/",
    "203.0.113.7:4001",
    "ip4/203.0.113.7/tcp/4001",
    "/ip4/203.0.113.7/tcp",
    "/ip4/203.0.113.7/tcp/",
    "/ip4/203.0.113.7/tcp/65536",
    "/ip4/203.0.113.7/tcp/-1",
    "/ip4/203.0.113.7/tcp/+1",
    "/ip4/203.0.113.7/tcp/４００１",
    "/ip4/203.0.113.7/tcp/000001",
    "/ip4/203.0.113.7/tcp/4001/",
    "/ip4/203.0.113.7/udp/4001",
    "/ip4/203.0.113.7/tcp/4001/ws",
    "/ip4/203.0.113/tcp/4001",
    "/ip4/::1/tcp/4001",
    "/ip6/203.0.113.7/tcp/4001",
    "/ip4/example.org/tcp/4001",
    "/dns4//tcp/4001",
    "/dns4/exämple.org/tcp/4001",
    "/unix/x/tcp/1",
    f"/dns4/{'x' * MAX_ADDR_CHARS}/tcp/1",
]


@pytest.mark.parametrize("text", GOOD)
def test_transport_addresses_are_taken_as_they_are(text: str) -> None:
    assert check_addr(text) == text
    assert parse_peer(f"{text}/p2p/{A}") == PeerAddress(A, (text,))
    assert parse_peer(f"  {text}/p2p/{A}\n").full() == (f"{text}/p2p/{A}",)


@pytest.mark.parametrize("text", BAD)
def test_other_addresses_are_refused_by_name(text: str) -> None:
    with pytest.raises(BadAddress, match=re.escape(repr(text)[:40])):
        check_addr(text)
    with pytest.raises(BadAddress):
        parse_peer(f"{text}/p2p/{A}")


@pytest.mark.parametrize(
    "text",
    [
        "/ip4/203.0.113.7/tcp/4001",
        "/ip4/203.0.113.7/tcp/4001/p2p/",
        "/ip4/203.0.113.7/tcp/4001/p2p/QmYyQSo1c1Ym7orWxLYvCrM2EmxFTANf8wXmmE7DWjhx5N",
        f"/ip4/203.0.113.7/tcp/4001/p2p/{A[:-1]}",
        f"/ip4/203.0.113.7/tcp/4001/p2p/{A}/p2p-circuit",
        f"/ip4/203.0.113.7/tcp/4001/p2p/{A}/p2p/{B}",
        A,
    ],
)
def test_an_address_without_one_ed25519_peer_is_refused(text: str) -> None:
    with pytest.raises(BadAddress):
        parse_peer(text)


@given(st.text(max_size=80))
def test_no_text_raises_anything_else(text: str) -> None:
    for parse in (check_addr, parse_peer):
        with suppress(BadAddress):
            parse(text)


def test_merging_keeps_one_entry_a_peer_and_the_order() -> None:
    found = [
        PeerAddress(B, ("/ip4/1.1.1.1/tcp/1",)),
        PeerAddress(A, ("/ip4/2.2.2.2/tcp/2", "/ip4/3.3.3.3/tcp/3")),
        PeerAddress(B, ("/ip4/4.4.4.4/tcp/4", "/ip4/1.1.1.1/tcp/1")),
    ]
    assert merge(found) == (
        PeerAddress(B, ("/ip4/1.1.1.1/tcp/1", "/ip4/4.4.4.4/tcp/4")),
        PeerAddress(A, ("/ip4/2.2.2.2/tcp/2", "/ip4/3.3.3.3/tcp/3")),
    )
    assert merge([]) == ()


PUBLIC = ["1.1.1.1", "8.8.8.8", "2606:4700::1111", "::ffff:8.8.8.8", "172.32.0.1", "100.128.0.1"]
PRIVATE = ["10.1.2.3", "172.16.0.1", "172.31.255.255", "192.168.1.1", "fc00::1", "fd12::1"]
OWN = ["127.0.0.1", "127.255.255.254", "::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1"]
# Neither public nor what a household numbers its machines with: only by naming the network.
BY_NAME = ["100.64.0.1", "100.127.255.254", "198.18.0.1", "192.0.2.1", "203.0.113.7", "2001:db8::1"]
NEVER = [
    *("0.0.0.0", "0.1.2.3", "::", "::ffff:0.0.0.0", "169.254.1.1", "169.254.169.254"),
    *("fe80::1", "febf::1", "::ffff:169.254.169.254", "224.0.0.1", "239.1.1.1", "ff02::1"),
    *("240.0.0.1", "255.255.255.255", "fec0::1", "192.88.99.1", "2002:7f00:1::", "2002:a00:1::"),
    *("64:ff9b::7f00:1", "64:ff9b:1::1", "::127.0.0.1", "::10.0.0.1", "2001:0:7f00:1::1"),
]
EVERYTHING: tuple[Cidr, ...] = (IPv4Network("0.0.0.0/0"), IPv6Network("::/0"))


def addr_of(host: str) -> str:
    return f"/ip{6 if ':' in host else 4}/{host}/tcp/4001"


@pytest.mark.parametrize(
    ("hosts", "unless_asked", "with_private", "with_everything"),
    [
        (PUBLIC, True, True, True),
        (PRIVATE, False, True, True),
        (OWN, False, True, True),
        (BY_NAME, False, False, True),
        (NEVER, False, False, False),
    ],
    ids=["public", "private", "loopback", "by name", "never"],
)
def test_what_may_be_dialled(
    hosts: list[str], unless_asked: bool, with_private: bool, with_everything: bool
) -> None:
    for host in hosts:
        for allowed, expected in (
            (False, unless_asked),
            (True, with_private),
            (EVERYTHING, with_everything),
        ):
            reason = judge_addr(addr_of(host), allowed)
            assert (reason is None) == expected, (host, allowed, reason)
            assert reason is None or str(read_ip(host)) in reason


def test_a_list_allows_the_networks_it_names_and_no_others() -> None:
    lab = (IPv4Network("10.7.0.0/16"), IPv4Network("100.64.0.0/10"))
    allowed = {
        host: judge_addr(addr_of(host), lab) is None
        for host in ("10.7.1.2", "10.8.1.2", "100.64.1.1", "127.0.0.1", "169.254.1.1", "8.8.8.8")
    }
    assert allowed == {
        "10.7.1.2": True,
        "10.8.1.2": False,
        "100.64.1.1": True,
        "127.0.0.1": False,
        "169.254.1.1": False,
        "8.8.8.8": True,
    }


@pytest.mark.parametrize(
    ("addr", "allow_private", "usable"),
    [
        ("/dns4/example.org/tcp/443", False, True),
        ("/dns4/localhost/tcp/443", False, False),
        ("/dns4/LocalHost./tcp/443", False, False),
        ("/dns4/a.localhost/tcp/443", False, False),
        ("/dns4/localhost/tcp/443", True, True),
        ("/ip4/8.8.8.8/tcp/0", True, False),
    ],
)
def test_names_and_ports_are_judged_as_well(addr: str, allow_private: bool, usable: bool) -> None:
    assert (judge_addr(addr, allow_private) is None) == usable


@pytest.mark.parametrize("host", ["127.1", "0x7f000001", "2130706433", "0177.0.0.1", "①②⑦.0.0.1"])
def test_older_spellings_of_loopback_are_no_addresses(host: str) -> None:
    with pytest.raises(BadAddress):
        judge_addr(f"/ip4/{host}/tcp/1", True)


@pytest.mark.parametrize(
    ("addr", "private", "loopback"),
    [
        ("/ip4/0.0.0.0/tcp/1", False, False),
        ("/ip6/::/tcp/1", False, False),
        ("/ip4/127.0.0.1/tcp/1", True, True),
        ("/ip4/127.9.9.9/tcp/1", True, True),
        ("/ip6/::1/tcp/1", True, True),
        ("/ip4/10.0.0.1/tcp/1", True, False),
        ("/ip4/192.168.1.7/tcp/1", True, False),
        ("/ip6/fd00::7/tcp/1", True, False),
        ("/ip4/203.0.113.7/tcp/1", False, False),
        ("/ip4/8.8.8.8/tcp/1", False, False),
        ("/dns4/localhost/tcp/1", False, False),
    ],
)
def test_listeners_of_a_lan_and_of_this_machine_are_told_apart(
    addr: str, private: bool, loopback: bool
) -> None:
    assert (is_private(addr), is_loopback(addr)) == (private, loopback)
