"""Who may connect: each rule by itself, then the gate that keeps the numbers."""

from __future__ import annotations

from contextlib import suppress
from ipaddress import ip_address, ip_network

import pytest

from p2p.gates import (
    Gate,
    InboundLimits,
    Load,
    Visit,
    exempting,
    network_of,
    refusal,
)
from tessella.core.addresses import Cidr, address_of
from tessella.core.errors import Busy
from tessella.core.rates import Rate

LIMITS = InboundLimits(exempt=())
FAST = InboundLimits(
    exempt=(), address_rate=Rate(1000.0, 1000), network_rate=Rate(10_000.0, 10_000)
)
SOURCE: Cidr = ip_network("198.51.100.7/32")


def load(pending: int = 0, established: int = 0, here: tuple[int, int] = (0, 0)) -> Load:
    return Load(pending, established, *here)


@pytest.mark.parametrize(
    ("host", "address", "network"),
    [
        ("198.51.100.7", "198.51.100.7/32", "198.51.100.0/24"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64", "2001:db8:1::/48"),
    ],
)
def test_an_address_is_what_one_host_has_and_a_network_what_one_customer_has(
    host: str, address: str, network: str
) -> None:
    assert str(address_of(ip_address(host))) == address
    assert str(network_of(ip_address(host))) == network


@pytest.mark.parametrize(
    ("held", "exempt", "why"),
    [
        (load(), False, None),
        (load(pending=511, established=255), False, None),
        (load(established=256), False, "all 256 connections"),
        (load(established=256), True, "all 256 connections"),
        (load(pending=512), False, "512 handshakes are"),
        (load(pending=512), True, "512 handshakes are"),
        (load(here=(3, 0)), False, None),
        (load(here=(4, 0)), False, "4 handshakes of this address"),
        (load(here=(4, 0)), True, None),
        (load(here=(0, 7)), False, None),
        (load(here=(1, 6)), False, None),
        (load(here=(0, 8)), False, "8 connections of this address"),
        (load(here=(1, 7)), False, "8 connections of this address"),
        (load(here=(1, 7)), True, None),
    ],
)
def test_what_is_one_too_many(held: Load, exempt: bool, why: str | None) -> None:
    found = refusal(LIMITS, 256, held, exempt=exempt)
    assert (found is None) == (why is None)
    assert (why or "") in (found or "")


def test_a_place_is_given_back_however_it_ends() -> None:
    gate = Gate(FAST, connections=2)
    with gate.enter("198.51.100.7", 0.0):
        assert (gate.pending.total, gate.established.total) == (1, 0)
    with suppress(ValueError), gate.enter("198.51.100.7", 0.0) as visit:
        visit.settle()
        assert (gate.pending.total, gate.established.total) == (0, 1)
        raise ValueError("the connection broke")
    assert (gate.pending.total, gate.established.total) == (0, 0)
    assert gate.pending.of(SOURCE) == gate.established.of(SOURCE) == 0


def entered(gate: Gate, host: str, now: float = 0.0) -> Visit | None:
    try:
        return gate.enter(host, now)
    except Busy:
        return None


def test_one_address_does_not_use_up_what_another_needs() -> None:
    gate = Gate(LIMITS, connections=256)
    flood = [entered(gate, "198.51.100.7") for _ in range(1000)]
    assert len([visit for visit in flood if visit]) == LIMITS.pending_per_address
    assert gate.refused == 1000 - LIMITS.pending_per_address
    assert entered(gate, "198.51.100.8")
    assert entered(gate, "203.0.113.1")


def test_a_network_is_bounded_over_all_its_addresses() -> None:
    gate = Gate(LIMITS, connections=256)
    assert sum(bool(entered(gate, f"198.51.100.{n}")) for n in range(200)) == 32
    assert entered(gate, "198.51.101.1")
    assert sum(bool(entered(gate, f"198.51.100.{n}", 1.0)) for n in range(200)) == 4


def test_addresses_of_one_ipv6_host_count_together() -> None:
    gate = Gate(LIMITS, connections=256)
    assert sum(bool(entered(gate, f"2001:db8::{n:x}")) for n in range(1, 100)) == 4
    assert entered(gate, "2001:db8:0:1::1")


@pytest.mark.parametrize("host", ["::ffff:198.51.100.7", "198.51.100.7"])
def test_an_ipv4_address_counts_once_whatever_it_is_written_as(host: str) -> None:
    gate = Gate(LIMITS, connections=256)
    assert entered(gate, host)
    assert gate.pending.of(SOURCE) == 1


def test_exempt_addresses_are_bounded_only_with_everybody() -> None:
    gate = Gate(InboundLimits(pending=20), connections=256)
    assert sum(bool(entered(gate, "127.0.0.1")) for _ in range(100)) == 20
    gate = Gate(InboundLimits(exempt=(ip_network("198.51.100.0/24"),)), connections=10)
    for _ in range(10):
        visit = entered(gate, "198.51.100.7")
        assert visit is not None
        visit.settle()
    assert entered(gate, "198.51.100.7") is None


@pytest.mark.parametrize(
    ("exempt", "allow_private", "exempted"),
    [
        (None, False, {"127.0.0.1", "::1"}),
        (None, True, {"127.0.0.1", "::1", "192.168.1.2", "10.1.1.1", "fd00::1"}),
        (None, (ip_network("10.0.0.0/8"),), {"127.0.0.1", "::1", "10.1.1.1"}),
        ((), True, set()),
        ((ip_network("8.8.8.0/24"),), True, {"8.8.8.8"}),
    ],
)
def test_neighbours_are_exempt_where_private_addresses_are_allowed(
    exempt: tuple[Cidr, ...] | None, allow_private: bool | tuple[Cidr, ...], exempted: set[str]
) -> None:
    limits = exempting(InboundLimits(exempt=exempt), allow_private)
    hosts = ["127.0.0.1", "::1", "192.168.1.2", "10.1.1.1", "fd00::1", "8.8.8.8", "100.64.0.1"]
    found = set()
    for host in hosts:
        gate = Gate(limits, connections=256)
        if sum(bool(entered(gate, host)) for _ in range(20)) == 20:
            found.add(host)
    assert found == exempted


def test_who_is_refused_uses_nothing_up() -> None:
    gate = Gate(LIMITS, connections=256)
    held = [entered(gate, "198.51.100.7") for _ in range(4)]
    for _ in range(1000):
        assert entered(gate, "198.51.100.7") is None
    for visit in held:
        assert visit is not None
        visit.__exit__(None, None, None)
    assert sum(bool(entered(gate, "198.51.100.7")) for _ in range(4)) == 4
