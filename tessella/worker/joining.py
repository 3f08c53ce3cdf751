"""Which mesh a node joins, as its operator decided: musivum's, the swarm, or both."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from p2p.background import background_tasks
from p2p.dht import DhtSettings, open_dht
from tessella.core.addresses import is_loopback
from tessella.core.layers import LayerRange
from tessella.core.messages import Announce, Register
from tessella.core.peers import PeerRow
from tessella.worker.config import WorkerConfig
from tessella.worker.ground import Ground
from tessella.worker.membership import Membership
from tessella.worker.mesh import BothMeshes, Mesh
from tessella.worker.swarm import Swarm, meet_neighbours
from tessella.worker.tracker import Tracker

News = Callable[[], Announce]


@asynccontextmanager
async def open_mesh(
    config: WorkerConfig,
    ground: Ground,
    facts: tuple[Register, int],
    news: News,
) -> AsyncIterator[Mesh]:
    """The node's membership, until the context is left; `leave` says goodbye before that.

    `facts` are what it registers with and the layers of the whole model; `news` is its heartbeat
    of the moment.
    """
    register, total_layers = facts
    identity, host = ground.identity, ground.host
    musivum = None
    if config.musivum is not None:
        musivum = Membership(Tracker(host, identity, config.musivum, ground.clock), register, news)
    if not config.kademlia and musivum is not None:
        yield musivum
        return

    def row(layers: LayerRange) -> PeerRow:
        said = news()
        return PeerRow(
            peer_id=identity.peer_id,
            model=register.model,
            contract=register.contract,
            layers=layers,
            total_layers=total_layers,
            status=said.status,
            addrs=host.address.addrs,
            device=register.device,
            dtype=register.dtype,
            queue_depth=said.queue_depth,
            step_ms=said.step_ms,
        )

    # musivum is a bootstrap peer too: whoever can register finds the swarm through it.
    peers = (*config.bootstrap, *([config.musivum] if config.musivum else []))
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
        swarm = Swarm(dht, settings.beat, config.layers, row)
        yield BothMeshes(musivum, swarm, config.layers) if musivum is not None else swarm
