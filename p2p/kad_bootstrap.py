"""How a node finds the swarm, and finds it again: it never gives up, and nobody delays another.

Each address that the operator gave is tried by itself. It is asked again from time to time when
all is well, so that two halves of a swarm that lost each other meet. If the table runs empty, those
who answered once, also before a restart, are tried beside them.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Iterable

import trio

from p2p.kad_upkeep import Upkeep
from p2p.kad_wire import KadMessage, Kind
from tessella.core.addresses import PeerAddress, merge
from tessella.core.buckets import RoutingTable
from tessella.core.errors import TessellaError
from tessella.core.kademlia import ALPHA, K, peer_bytes

logger = logging.getLogger(__name__)

FIRST_WAIT = 1.0
LONGEST_WAIT = 60.0
# A bootstrap that answered is asked again after this long.
ASK_AGAIN = 60.0
# With fewer peers than this the remembered ones are tried.
FEW = 3
# How often it is looked whether there are that many.
LOOK_AGAIN = 10.0


def wait_after(failures: int, chance: random.Random) -> float:
    """Seconds until the next try: doubled by each failure, up to a minute, half of it by chance."""
    longest = min(LONGEST_WAIT, FIRST_WAIT * 2.0 ** min(failures - 1, 10))
    return max(FIRST_WAIT, longest * chance.uniform(0.5, 1.0))


class Bootstrap:
    """Keeps one node in the swarm. Start `run` in a nursery."""

    def __init__(
        self,
        upkeep: Upkeep,
        table: RoutingTable,
        addresses: Iterable[PeerAddress],
        chance: random.Random,
    ) -> None:
        """`addresses` may hold this node's own; it is left out."""
        self._upkeep = upkeep
        self._table = table
        self._addresses = [peer for peer in merge(addresses) if peer.peer_id != table.own]
        self._chance = chance
        self._hello = KadMessage(Kind.FIND_NODE, peer_bytes(table.own))

    async def run(self) -> None:
        """Try, and keep trying, until cancelled."""
        async with trio.open_nursery() as nursery:
            for peer in self._addresses:
                nursery.start_soon(self._keep_asking, peer)
            nursery.start_soon(self._revive)

    async def _keep_asking(self, peer: PeerAddress) -> None:
        failures = 0
        while True:
            try:
                await self._upkeep.client.ask(peer, self._hello)
            except TessellaError as exc:
                failures += 1
                level = logging.WARNING if failures == 1 else logging.DEBUG
                logger.log(level, "bootstrap failed: %s: %s: %s", peer.peer_id, exc.code, exc)
                await trio.sleep(wait_after(failures, self._chance))
            else:
                failures = 0
                await self._upkeep.join(thin=K)
                await trio.sleep(ASK_AGAIN * self._chance.uniform(0.8, 1.2))

    async def introduce(self, peer: PeerAddress) -> bool:
        """Ask a peer that somebody else found. Whether it answers for the swarm."""
        if peer.peer_id == self._table.own:
            return False
        answered = await self._upkeep.client.try_ask(peer, self._hello) is not None
        if answered:
            await self._upkeep.join(thin=K)
        return answered

    async def _revive(self) -> None:
        failures = 0
        while True:
            tried = len(self._table) < FEW and await self._try_remembered()
            failures = failures + 1 if tried and not len(self._table) else 0
            wait = wait_after(failures, self._chance) if failures else LOOK_AGAIN
            await trio.sleep(wait)

    async def _try_remembered(self) -> bool:
        """Ask some of those who answered once. Whether there was anybody to ask."""
        known = [
            peer for peer in self._upkeep.remembered.values() if peer.peer_id != self._table.own
        ]
        some = self._chance.sample(known, min(ALPHA, len(known)))
        await self._upkeep.client.ask_each([(peer, [self._hello]) for peer in some])
        if len(self._table):
            await self._upkeep.join(thin=K)
        return bool(some)
