"""Which mesh a node joins, as its operator decided: musivum's, the swarm, or both."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from p2p.background import background_tasks
from p2p.dht import DhtSettings, open_dht
from p2p.peers import Host
from tessella.core.addresses import is_loopback
from tessella.core.peers import PeerRow
from tessella.worker.config import WorkerConfig
from tessella.worker.ground import Ground
from tessella.worker.membership import Membership
from tessella.worker.mesh import BothMeshes, Member, Mesh
from tessella.worker.swarm import Swarm, meet_neighbours
from tessella.worker.tracker import Tracker


@asynccontextmanager
async def open_mesh(config: WorkerConfig, ground: Ground, member: Member) -> AsyncIterator[Mesh]:
    """The node's membership, until the context is left; `leave` says goodbye before that."""
    identity, host = ground.identity, ground.host
    musivum = None
    if config.musivum:
        tracker = Tracker(host, identity, config.musivum, ground.clock)
        musivum = Membership(tracker, member)
    if not config.kademlia and musivum is not None:
        yield musivum
        return
    # musivum is a bootstrap peer too: whoever can register finds the swarm through it.
    peers = (*config.bootstrap, *config.musivum)
    settings = DhtSettings(
        bootstrap=peers, snapshot=config.snapshot, allow_private=config.allow_private
    )
    async with (
        open_dht(host, identity, settings, clock=ground.clock) as dht,
        background_tasks() as nursery,
    ):
        # Who listens on the loopback interface alone has no neighbours.
        if config.lan and not all(map(is_loopback, host.address.addrs)):
            nursery.start_soon(meet_neighbours, dht, host.address)
        row = partial(_row, member, host)
        swarm = Swarm(dht, settings.beat, config.layers, row, member.failed)
        yield BothMeshes(musivum, swarm, config.layers) if musivum is not None else swarm


def _row(member: Member, host: Host) -> PeerRow:
    """The node as the swarm lists it at this moment."""
    news, register, ourselves = member.news(), member.register, host.address
    return PeerRow(
        peer_id=ourselves.peer_id,
        model=register.model,
        contract=register.contract,
        layers=news.layers,
        total_layers=member.total_layers,
        status=news.said.status,
        addrs=ourselves.addrs,
        device=register.device,
        dtype=register.dtype,
        queue_depth=news.said.queue_depth,
        step_ms=news.said.step_ms,
        api_url=register.api_url,
    )
