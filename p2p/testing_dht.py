"""A swarm in memory: nodes that come, serve a model, and die, on a MemoryNetwork.

    async with memory_swarm() as swarm:
        first = await swarm.node()
        worker = await swarm.node([first.address])
        await worker.serve("model")
        await worker.die()

Run it on trio's virtual clock: records are made and end by it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import TypeAlias

import trio

from p2p.background import background_tasks
from p2p.dht import Dht, DhtMode, DhtSettings, open_dht
from p2p.kad_wire import KAD
from p2p.peers import Host
from p2p.streams import ByteStream
from p2p.testing import MemoryHost, MemoryNetwork
from tessella.core.addresses import PeerAddress
from tessella.core.identity import Identity
from tessella.core.ids import ModelId
from tessella.core.layers import LayerRange
from tessella.core.records import NodeRecord, mesh_key, model_key

# The stubs that libp2p brings along are older than trio's own `TaskStatus`.
Started: TypeAlias = "trio.TaskStatus[Node]"  # type: ignore[name-defined, unused-ignore]

LATENCY = 0.02
CLIENT = DhtSettings(mode=DhtMode.CLIENT)


def numbered(number: int) -> Identity:
    """The identity of the swarm's node number n, from 1."""
    return Identity(number.to_bytes(32, "big"))


def sample_record(host: Host, model: str) -> NodeRecord:
    """A record of a node that holds all four layers of a model."""
    return NodeRecord(
        peer_id=host.address.peer_id,
        model=ModelId(model),
        contract="c",
        layers=LayerRange(0, 4),
        total_layers=4,
        status="Healthy",
        addrs=host.address.addrs,
        device="cpu",
        dtype="f32",
        queue_depth=0,
        step_ms=0.0,
        sequence=0,
        made_at=0.0,
        life=0.0,
    )


async def serve(host: Host, dht: Dht, model: str) -> None:
    """Be a node of a model."""
    await dht.provide([model_key(model), model_key(model, "c"), mesh_key()])
    await dht.publish(sample_record(host, model))


class Node:
    """A host and its part in the swarm."""

    def __init__(self, host: MemoryHost, dht: Dht) -> None:
        self.host = host
        self.dht = dht
        self.address = host.address
        self.peer_id = host.address.peer_id
        self.dying = trio.Event()
        self.dead = trio.Event()

    async def serve(self, model: str = "m") -> None:
        """Be a node of a model, and say so."""
        await serve(self.host, self.dht, model)

    async def found(self, model: str = "m", contract: str = "") -> set[str]:
        """The peer ids that a search finds."""
        return {one.peer_id for one in await self.dht.find_nodes(model, contract)}

    async def die(self) -> None:
        """Leave without a word."""
        self.dying.set()
        await self.dead.wait()


class Swarm:
    """Nodes on one memory network, numbered as they come. Made by `memory_swarm`."""

    def __init__(self, net: MemoryNetwork, nursery: trio.Nursery, stack: AsyncExitStack) -> None:
        self.net = net
        self.count = 0
        self._nursery = nursery
        self._stack = stack

    async def node(
        self, bootstrap: Sequence[PeerAddress] = (), settings: DhtSettings | None = None
    ) -> Node:
        """The next node; it lives until it dies or the swarm ends."""
        self.count += 1
        chosen = replace(settings or DhtSettings(), seed=self.count, bootstrap=tuple(bootstrap))
        node = await self._nursery.start(self._live, numbered(self.count), chosen)
        assert isinstance(node, Node)
        return node

    async def _live(
        self,
        who: Identity,
        settings: DhtSettings,
        task_status: Started = trio.TASK_STATUS_IGNORED,
    ) -> None:
        async with (
            self.net.host(who) as host,
            open_dht(host, who, settings, clock=trio.current_time) as dht,
        ):
            node = Node(host, dht)
            task_status.started(node)
            await node.dying.wait()
        node.dead.set()

    async def bare(self) -> MemoryHost:
        """A host that does not answer for the swarm."""
        self.count += 1
        return await self._stack.enter_async_context(self.net.host(numbered(self.count)))

    async def silent(self) -> PeerAddress:
        """A peer that takes connections and streams, and never says a word."""
        host = await self.bare()

        async def sleep(stream: ByteStream) -> None:
            await trio.sleep_forever()

        host.serve_bytes(KAD, sleep, streams=100, per_peer=100)
        return host.address


@asynccontextmanager
async def memory_swarm() -> AsyncIterator[Swarm]:
    """A swarm without nodes, until the context is left."""
    async with background_tasks() as nursery, AsyncExitStack() as stack:
        yield Swarm(MemoryNetwork(latency=LATENCY), nursery, stack)
        nursery.cancel_scope.cancel()
