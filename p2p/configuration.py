"""A libp2p host in its safe configuration: TCP, Noise and our yamux, and nothing automatic.

What is left out is left out on purpose: plaintext and TLS (a peer could choose the former), mplex,
QUIC (its 0.8.1 lets anyone claim any peer id), and everything that dials by itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import cast

from libp2p import new_host
from libp2p.crypto.ed25519 import Ed25519PrivateKey
from libp2p.crypto.keys import KeyPair
from libp2p.crypto.x25519 import create_new_key_pair
from libp2p.custom_types import TProtocol
from libp2p.host.basic_host import BasicHost
from libp2p.network.config import ConnectionConfig, RetryConfig
from libp2p.network.swarm import Swarm
from libp2p.peer.peerstore import PeerStore
from libp2p.security.noise.transport import PROTOCOL_ID as NOISE
from libp2p.security.noise.transport import Transport as NoiseTransport
from libp2p.stream_muxer.yamux.yamux import PROTOCOL_ID as YAMUX
from libp2p.transport.tcp.tcp import TCP
from multiaddr import Multiaddr

from p2p.fixes.handlers import guard_handlers
from p2p.fixes.inbound import set_gate
from p2p.gates import DEFAULT_INBOUND, Gate, InboundLimits, exempting
from p2p.listening import EVERYWHERE, Announcement
from p2p.yamux.connection import YamuxConnection
from tessella.core.identity import Identity

# The store evicts peers without addresses first, and the first of those is this node with its
# own private key: it must never be full.
STORED_PEERS = 1_000_000
# Two nodes that dial each other at once have two connections; both must not close the other's.
CONNECTIONS_PER_PEER = 4


@dataclass(frozen=True, slots=True)
class HostLimits:
    """What strangers can make one host hold, and for how long."""

    connections: int = 256
    """In all, both ways; one is a socket, four tasks and up to 64 MiB of windows."""
    negotiation_seconds: float = 10.0
    """From the first byte of a stream to the name of its protocol."""
    upgrade_seconds: float = 3.0
    """From the accepted socket to an authenticated peer."""
    inbound: InboundLimits = DEFAULT_INBOUND
    """What who connects to us may use, by address and in all."""


# A node talks to its neighbours, its clients and musivum.
WORKER_LIMITS = HostLimits()
# musivum keeps a connection to each node, one descriptor each: see `ulimit -n`.
MUSIVUM_LIMITS = HostLimits(connections=12_000)
# A client listens nowhere.
CLIENT_LIMITS = HostLimits(connections=64)
DEFAULT_LIMITS = WORKER_LIMITS


async def _nothing() -> None:
    """Dial nobody."""


def safe_host(
    identity: Identity, limits: HostLimits, announcement: Announcement = EVERYWHERE
) -> BasicHost:
    """A host that is not running yet. `p2p.fixes` must have been applied."""
    private = Ed25519PrivateKey.from_bytes(identity.seed)
    keys = KeyPair(private, private.get_public_key())
    host = cast(
        "BasicHost",
        new_host(
            key_pair=keys,
            sec_opt={NOISE: NoiseTransport(keys, noise_privkey=create_new_key_pair().private_key)},
            muxer_opt={TProtocol(YAMUX): YamuxConnection},
            transports=[TCP()],
            peerstore_opt=PeerStore(max_records=STORED_PEERS, max_peers=STORED_PEERS),
            connection_config=_connections(limits),
            addrs_factory=partial(_advertised, announcement),
            disable_identify_address_discovery=True,
        ),
    )
    swarm = cast("Swarm", host.get_network())
    # Its limits queue streams instead of refusing them; ours are in the router.
    swarm.set_resource_manager(None)
    swarm.retry_config = RetryConfig(max_retries=0)
    swarm.auto_connector.maybe_connect = _nothing  # type: ignore[method-assign]
    inbound = exempting(limits.inbound, announcement.allow_private)
    set_gate(swarm, Gate(inbound, limits.connections))
    guard_handlers(host)
    return host


def _connections(limits: HostLimits) -> ConnectionConfig:
    return ConnectionConfig(
        max_connections=limits.connections,
        high_watermark=limits.connections,
        low_watermark=0,
        min_connections=0,
        max_connections_per_peer=CONNECTIONS_PER_PEER,
        inbound_upgrade_timeout=limits.upgrade_seconds,
        outbound_upgrade_timeout=limits.upgrade_seconds,
        inbound_stream_protocol_negotiation_timeout=limits.negotiation_seconds,
        outbound_stream_protocol_negotiation_timeout=limits.negotiation_seconds,
    )


def _advertised(announcement: Announcement, candidates: list[Multiaddr]) -> list[Multiaddr]:
    bound = (str(candidate) for candidate in candidates)
    return [Multiaddr(addr) for addr in announcement.of(bound)]
