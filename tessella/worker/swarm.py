"""A node in the swarm: what it says of itself is a signed record, and nobody assigns a range."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

import trio

from p2p.dht import Dht
from p2p.lan import open_lan
from tessella.core.addresses import PeerAddress
from tessella.core.errors import BadConfig, TessellaError
from tessella.core.ids import ModelId, PeerId
from tessella.core.layers import LayerRange
from tessella.core.peers import NodeStatus, PeerRow
from tessella.core.records import NodeRecord, mesh_key, model_key, to_row
from tessella.worker.retries import keep_going

logger = logging.getLogger(__name__)

# How long a node waits for anybody before it starts alone: the first of a swarm has nobody.
JOIN_SECONDS = 10.0
LEAVE_TIMEOUT = 2.0


async def meet_neighbours(dht: Dht, ourselves: PeerAddress) -> None:
    """Introduce whoever is found on the local network, until cancelled.

    A network without multicast is none to look at: one line, and the bootstrap peers remain.
    """
    try:
        async with open_lan(ourselves) as found:
            async for peer in found:
                await dht.introduce(peer)
    except OSError as exc:
        logger.warning("no multicast on this network, so nobody is found on it: %s", exc)


class Swarm:
    """Membership by records alone. The Dht is the caller's, to close afterwards."""

    def __init__(
        self,
        dht: Dht,
        beat: float,
        wanted: LayerRange | None,
        row: Callable[[], PeerRow],
        failed: Callable[[Exception], None],
    ) -> None:
        """`wanted` is the range the operator chose, `row` what may be said of the node just then.

        `failed` is called with what kept the swarm from hearing of it.
        """
        self._dht = dht
        self._beat = beat
        self._wanted = wanted
        self._row = row
        self._failed = failed
        self._changed = trio.Event()
        # Whether anything was published: before the first `ready` there is nothing to replace.
        self._known = False

    @property
    def way(self) -> str:
        """There is one way."""
        return "swarm"

    async def join(self) -> LayerRange:
        """The range that the operator chose, with a warning for those that hold it already."""
        wanted = self._wanted
        if wanted is None:
            raise BadConfig("layers: the swarm assigns no range, choose one")
        if not await self._dht.joined(JOIN_SECONDS):
            logger.warning("nobody of the swarm answers yet: starting alone, and looking on")
            return wanted
        ourselves = self._row()
        for other in await self.rows(ourselves.model):
            overlaps = other.layers.start < wanted.stop and wanted.start < other.layers.stop
            if overlaps and other.serves and other.peer_id != ourselves.peer_id:
                logger.warning("%s serves layers %s already", other.peer_id, other.layers)
        return wanted

    async def ready(self, layers: LayerRange) -> None:
        """Be found under the mesh, the model, and the model of just these tensors."""
        self._known = True
        row = self._row()
        await self._dht.publish(NodeRecord.of(row))
        keys = [mesh_key(), model_key(row.model), model_key(row.model, row.contract)]
        await self._dht.provide(keys)

    def changed(self) -> None:
        """The next record is due."""
        self._changed.set()

    async def run(self) -> None:
        """Have each beat's record say what is new, and a change at once, until cancelled."""
        await keep_going(self._keep_record, self._failed)

    async def _keep_record(self) -> None:
        while True:
            with trio.move_on_after(self._beat / 2):
                await self._changed.wait()
            changed, self._changed = self._changed.is_set(), trio.Event()
            if self._known and changed:
                await self._dht.publish(NodeRecord.of(self._row()))
            elif self._known:
                self._dht.update(NodeRecord.of(self._row()))

    async def rows(self, model: ModelId) -> list[PeerRow]:
        """The nodes of a model whose records hold now."""
        return [to_row(record) for record in await self._dht.find_nodes(model)]

    def report(self, peer: PeerId, error: TessellaError) -> None:
        """Nobody is told: a dead node's record ends by itself, within two beats."""
        logger.info("%s failed us: %s: %s", peer, error.code, error)

    async def leave(self) -> None:
        """Publish a last record that says so: it replaces the one that says we serve."""
        if self._known:
            self._known = False
            gone = replace(self._row(), status=NodeStatus.OFFLINE.value)
            with trio.CancelScope(shield=True), trio.move_on_after(LEAVE_TIMEOUT):
                try:
                    await self._dht.publish(NodeRecord.of(gone))
                except TessellaError as exc:
                    logger.info("left without a goodbye: %s: %s", exc.code, exc)
        self._dht.withdraw()
