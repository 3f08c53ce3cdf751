"""How far peers are: connecting to a few of them at a time tells."""

from __future__ import annotations

import math
from collections.abc import Sequence

import trio

from p2p.peers import Host
from tessella.core.addresses import PeerAddress
from tessella.core.errors import TessellaError
from tessella.core.ids import PeerId

MAX_PROBED = 4
"""Peers that are connected to for one question."""
PROBE_SECONDS = 1.5
"""For a connection; across the world it takes half a second."""
GRACE_SECONDS = 0.25
"""Others may still answer so long after the first: who takes longer is farther."""


async def connect_times(host: Host, peers: Sequence[PeerAddress]) -> dict[PeerId, float]:
    """Seconds that connecting took, by peer; infinity where it failed.

    Who had not answered when the first had long done so is not in it. Connections stay open.
    """
    times: dict[PeerId, float] = {}

    async def probe(peer: PeerAddress) -> None:
        started = trio.current_time()
        try:
            await host.connect(peer, timeout=PROBE_SECONDS)
        except TessellaError:
            # Also of an address that makes no sense: others told it.
            times[peer.peer_id] = math.inf
            return
        times[peer.peer_id] = trio.current_time() - started
        over = trio.current_time() + GRACE_SECONDS
        nursery.cancel_scope.deadline = min(nursery.cancel_scope.deadline, over)

    async with trio.open_nursery() as nursery:
        for peer in peers[:MAX_PROBED]:
            nursery.start_soon(probe, peer)
    return times
