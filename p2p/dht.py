"""The swarm without a hub: nodes find each other through a Kademlia table that all of them hold.

    async with open_dht(host, identity, bootstrap=peers) as dht:
        await dht.provide([mesh_key(), model_key(model)])
        await dht.publish(record)                        # again each beat, until withdrawn
        nodes = await dht.find_nodes(model)              # whoever lives, asked of the network

The protocol is libp2p's kad-dht under an id of our own, so js-libp2p and go-libp2p can take part;
what is stored are signed records of two beats' life (`tessella.core.records`) and nothing else.

    kad_wire      the messages             kad_server      the answers
    kad_store     what is kept for others  kad_client      the questions
    kad_upkeep    the table                kad_publishing  the own record
    kad_bootstrap the way in               kad_snapshot    the way back in
"""

from __future__ import annotations

import random
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TypeAlias

import trio

from p2p.background import background_tasks
from p2p.kad_bootstrap import Bootstrap
from p2p.kad_publishing import Publisher
from p2p.kad_search import Search
from p2p.kad_server import STREAMS, STREAMS_PER_PEER, KadServer
from p2p.kad_snapshot import load_peers, save_peers
from p2p.kad_store import ProviderStore, ValueStore
from p2p.kad_upkeep import Upkeep
from p2p.kad_wire import KAD
from p2p.peers import Host
from p2p.streams import ByteStream
from tessella.core.addresses import Cidr, PeerAddress
from tessella.core.buckets import RoutingTable, address_groups
from tessella.core.errors import Refused
from tessella.core.identity import Identity
from tessella.core.ids import PeerId
from tessella.core.kademlia import K
from tessella.core.records import NodeRecord

# The stubs that libp2p brings along are older than trio's own `TaskStatus`.
Started: TypeAlias = "trio.TaskStatus[None]"  # type: ignore[name-defined, unused-ignore]

# Seconds between two records of a node; each lives for two, so one may be lost.
BEAT = 30.0
# How often the peers are written to disk.
SNAPSHOT_SECONDS = 60.0


class DhtMode(Enum):
    """Whether a node answers for the swarm."""

    SERVER = "server"
    """It can be dialled: it holds records of others and is offered to them."""
    CLIENT = "client"
    """It asks, publishes and is never asked: commands, and workers behind a NAT."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DhtSettings:
    """How one node takes part."""

    mode: DhtMode = DhtMode.SERVER
    bootstrap: tuple[PeerAddress, ...] = ()
    """Peers to begin with; the own address among them is left out."""
    snapshot: Path | None = None
    """Where known peers are kept between runs."""
    beat: float = BEAT
    """Seconds between two records. At least 1, and 300 at most: a record lives two, and 600."""
    allow_private: bool | tuple[Cidr, ...] = True
    """Private networks in which peers may be dialled that others name; see `judge_addr`."""
    per_group: int | None = None
    """Peers of one public /24 or /48 in the table; None for any number."""
    exempt: tuple[str, ...] = ()
    """Networks that this does not hold for, as `203.0.113.0/24`."""
    seed: int | None = None
    """Of the waits by chance; None draws one."""


@asynccontextmanager
async def open_dht(
    host: Host,
    identity: Identity | None = None,
    settings: DhtSettings | None = None,
    *,
    bootstrap: Sequence[PeerAddress] | None = None,
    clock: Callable[[], float] = time.time,
) -> AsyncIterator[Dht]:
    """Take part in the swarm until the context is left. One for each host.

    `identity` is the host's own, for those that publish; `bootstrap` replaces that of the
    settings; `clock` gives seconds since 1970.
    """
    chosen = settings or DhtSettings()
    peers = chosen.bootstrap if bootstrap is None else bootstrap
    dht = Dht(host, identity, chosen, peers, clock)
    async with background_tasks() as nursery:
        await nursery.start(dht.run)
        yield dht


class Dht:
    """One node's part in the swarm. `run` is its life; the rest may be called while it runs."""

    def __init__(
        self,
        host: Host,
        identity: Identity | None,
        settings: DhtSettings,
        bootstrap: Iterable[PeerAddress],
        clock: Callable[[], float],
    ) -> None:
        chance = self._chance = random.Random(settings.seed)
        own = host.address.peer_id
        groups = address_groups(settings.exempt) if settings.per_group else lambda _: ()
        self.table = RoutingTable(own, groups=groups, per_group=settings.per_group or K)
        self.values = ValueStore(own)
        self.providers = ProviderStore(chance.randbytes(16))
        self._host = host
        self._settings = settings
        self._clock = clock
        self._serving = False
        self._upkeep = Upkeep(host, self.table, chance, settings.allow_private)
        self.client = self._upkeep.client
        self._bootstrap = Bootstrap(self._upkeep, self.table, bootstrap, chance)
        stores = (self.values, self.providers)
        self._publisher = Publisher(
            host, identity, self.client, self.table, stores, clock=clock, beat=settings.beat
        )
        self._search = Search(
            own, self.client, stores, clock=clock, fresh=settings.beat, chance=chance
        )
        self._server = KadServer(host, self.table, *stores, clock=clock, met=self._upkeep.met)

    async def run(self, task_status: Started = trio.TASK_STATUS_IGNORED) -> None:
        """Take part until cancelled. Started means: it answers, and is looking for the swarm."""
        await self._remember()
        if self._settings.mode is DhtMode.SERVER:
            self._host.serve_bytes(KAD, self._answer, streams=STREAMS, per_peer=STREAMS_PER_PEER)
        self._serving = True
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._upkeep.run)
                nursery.start_soon(self._bootstrap.run)
                nursery.start_soon(self._publisher.run, lambda: self._upkeep.filled, self._chance)
                nursery.start_soon(self._keep_snapshot)
                task_status.started()
        finally:
            self._serving = False
            with trio.CancelScope(shield=True):
                await self._save()

    async def _answer(self, stream: ByteStream) -> None:
        if not self._serving:
            raise Refused("this node has left the swarm")
        await self._server.handle(stream)

    def peers(self) -> list[PeerAddress]:
        """Who is in the table: peers that answered for the swarm."""
        return self.table.peers()

    async def joined(self, timeout: float) -> bool:
        """Wait until anybody is known; False after `timeout` seconds alone."""
        with trio.move_on_after(timeout):
            await self._upkeep.filled.wait()
        return bool(len(self.table))

    async def introduce(self, peer: PeerAddress) -> bool:
        """Meet a peer found by other means (`p2p.lan`). Whether it answers for the swarm."""
        return await self._bootstrap.introduce(peer)

    async def publish(self, record: NodeRecord) -> None:
        """Say this of the node from now on: at once, and again each beat.

        `sequence`, `made_at` and `life` are stamped here each time. Returns when the nearest peers
        were told; with nobody known the first of them is told as soon as there is one. Raises
        BadConfig if the record is too long, LocalError if it breaks its own rules.
        """
        await self._publisher.publish(record)

    def update(self, record: NodeRecord) -> None:
        """Say this from the next beat on: the same node as published, with other news."""
        self._publisher.update(record)

    async def provide(self, keys: Iterable[bytes]) -> None:
        """Be found under these keys (`model_key`, `mesh_key`), and no others, from now on."""
        await self._publisher.provide(keys)

    def withdraw(self) -> None:
        """Stop saying anything: the last record ends with its life."""
        self._publisher.withdraw()

    async def find_record(self, peer: PeerId) -> NodeRecord | None:
        """The best record of a node that holds now, asked of the network; None if there is none."""
        return await self._search.record(peer)

    async def find_nodes(self, model: str, contract: str = "") -> list[NodeRecord]:
        """The nodes of a model, asked of the network, by peer id; an empty name means all models.

        Each stands once, with a record that its node signed less than its life ago.
        """
        return await self._search.nodes(model, contract)

    async def _remember(self) -> None:
        if self._settings.snapshot is not None:
            for peer in await trio.to_thread.run_sync(load_peers, self._settings.snapshot):
                self._upkeep.remembered[peer.peer_id] = peer

    async def _keep_snapshot(self) -> None:
        while self._settings.snapshot is not None:
            await trio.sleep(SNAPSHOT_SECONDS)
            await self._save()

    async def _save(self) -> None:
        if self._settings.snapshot is None or not self._upkeep.remembered:
            return
        peers = list(reversed(self._upkeep.remembered.values()))
        await trio.to_thread.run_sync(save_peers, self._settings.snapshot, peers)
