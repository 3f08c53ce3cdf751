"""The limits of each role, and that a host is made with them."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import ip_network
from typing import Any

import pytest
from libp2p.network.swarm import Swarm

from p2p.configuration import (
    CLIENT_LIMITS,
    DEFAULT_LIMITS,
    MUSIVUM_LIMITS,
    WORKER_LIMITS,
    HostLimits,
    safe_host,
)
from p2p.fixes import apply_fixes
from p2p.fixes.inbound import gate_of
from p2p.gates import InboundLimits
from p2p.listening import Announcement
from tessella.core.addresses import LOOPBACK, PRIVATE
from tessella.core.identity import Identity
from tessella.core.rates import Rate


def swarm_of(limits: HostLimits, **announcement: Any) -> Swarm:
    apply_fixes()
    host = safe_host(Identity(bytes(32)), limits, Announcement(**announcement))
    swarm = host.get_network()
    assert isinstance(swarm, Swarm)
    return swarm


@pytest.mark.parametrize(
    ("limits", "connections"),
    [(WORKER_LIMITS, 256), (MUSIVUM_LIMITS, 12_000), (CLIENT_LIMITS, 64), (DEFAULT_LIMITS, 256)],
)
def test_a_role_has_its_limits(limits: HostLimits, connections: int) -> None:
    swarm = swarm_of(limits)
    assert swarm.connection_config.max_connections == connections
    assert swarm.connection_config.inbound_upgrade_timeout == 3.0
    assert swarm.connection_config.inbound_stream_protocol_negotiation_timeout == 10.0
    assert gate_of(swarm).connections == connections
    assert limits.inbound == InboundLimits(
        pending=512,
        pending_per_address=4,
        per_address=8,
        address_rate=Rate(1.0, 8),
        network_rate=Rate(4.0, 32),
        exempt=None,
    )


@pytest.mark.parametrize(
    ("allow_private", "exempt"),
    [
        (True, (*LOOPBACK, *PRIVATE)),
        (False, LOOPBACK),
        ((ip_network("10.7.0.0/16"),), (*LOOPBACK, ip_network("10.7.0.0/16"))),
    ],
)
def test_neighbours_are_exempt_where_they_are_allowed(allow_private: Any, exempt: Any) -> None:
    swarm = swarm_of(WORKER_LIMITS, allow_private=allow_private)
    assert gate_of(swarm).limits.exempt == exempt


def test_an_operator_may_exempt_nobody() -> None:
    limits = replace(WORKER_LIMITS, inbound=InboundLimits(exempt=()))
    assert gate_of(swarm_of(limits)).limits.exempt == ()
