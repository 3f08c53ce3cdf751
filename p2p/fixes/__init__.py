"""What libp2p 0.8.1 needs before a node may depend on it. Each module answers a few defects.

    muxer         cancellation, backpressure, resets, credit, dead peers
    noise         one system call and one copy a message instead of four
    negotiation   one bad byte, or an endless length, must not end the process
    inbound       a closed connection gives its slot back; what one address may hold
    tcp           a vanished peer is noticed; IPv6 peers have an address; no lock before a write
    logs          nothing on standard error, and the root logger stays ours
    handlers      a handler that raises costs its own stream

The patches are to private names of one release, so any other is refused by name.
"""

from __future__ import annotations

from importlib.metadata import version

from p2p.fixes.inbound import give_inbound_slots_back
from p2p.fixes.logs import quieten_libp2p
from p2p.fixes.muxer import use_our_yamux
from p2p.fixes.negotiation import bound_negotiation
from p2p.fixes.noise import buffer_noise
from p2p.fixes.tcp import notice_vanished_peers, read_ipv6_addresses, write_at_once
from tessella.core.errors import LocalError

LIBP2P = "0.8.1"
_FIXES = (
    quieten_libp2p,
    use_our_yamux,
    buffer_noise,
    bound_negotiation,
    give_inbound_slots_back,
    notice_vanished_peers,
    read_ipv6_addresses,
    write_at_once,
)
_applied: list[str] = []


def apply_fixes() -> None:
    """Apply every fix, once a process. Raises LocalError for another release of libp2p."""
    found = version("libp2p")
    if found != LIBP2P:
        raise LocalError(f"libp2p {found} is installed, and p2p.fixes is written for {LIBP2P}")
    for fix in _FIXES:
        if fix.__name__ not in _applied:
            fix()
            _applied.append(fix.__name__)
