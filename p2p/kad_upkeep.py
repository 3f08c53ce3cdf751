"""The table of a node, kept true: who asks is probed, who is silent is asked, who fails goes.

A peer enters the table when it has answered for the swarm, and in no other way: clients ask and
never answer, so they are never offered to others. Whoever asks us is therefore asked back, over
the connection that it made, who it is; its answer to that names its addresses.
"""

from __future__ import annotations

import random
from collections import OrderedDict
from contextlib import suppress

import trio

from p2p.kad_client import KadClient
from p2p.kad_wire import KadMessage, Kind
from p2p.peers import Host
from tessella.core.addresses import Cidr, PeerAddress
from tessella.core.buckets import PingFirst, RoutingTable, Taken
from tessella.core.ids import PeerId
from tessella.core.kademlia import common_prefix, peer_bytes, peer_from_bytes, point

# Peers that wait to be probed; with more at once, who asks again is probed then.
MAX_PROBES = 64
PROBERS = 4
# One that does not answer for the swarm is not probed again for this long.
PROBE_AGAIN = 60.0
# A peer silent for longer is asked whether it is there, a few at each round.
STALE = 300.0
ROUND = 60.0
PER_ROUND = 10
# A bucket in which nothing was looked up for this long is looked up in.
REFRESH = 600.0
# Prefixes for which a key is found by trying: the last takes a thousand hashes.
MAX_PREFIX = 10
# Peers remembered beyond the table, for the day on which the table is empty.
MAX_REMEMBERED = 200

_PING = KadMessage(Kind.PING)


class Upkeep:
    """Keeps one table. Start `run` in a nursery; it ends with it."""

    def __init__(
        self,
        host: Host,
        table: RoutingTable,
        chance: random.Random,
        allow_private: bool | tuple[Cidr, ...] = True,
    ) -> None:
        self.client = KadClient(host, table, self, allow_private)
        self.filled = trio.Event()
        """Set while the table holds anybody."""
        self.remembered: OrderedDict[PeerId, PeerAddress] = OrderedDict()
        """Who has answered before, the latest last."""
        self._host = host
        self._table = table
        self._chance = chance
        self._probed: OrderedDict[PeerId, float] = OrderedDict()
        self._to_probe, self._probes = trio.open_memory_channel[PeerId](MAX_PROBES)
        self._to_check, self._checks = trio.open_memory_channel[tuple[PeerAddress, PeerAddress]](
            PROBERS
        )
        self._refreshed = dict.fromkeys(range(MAX_PREFIX), 0.0)
        self._joined_at = -REFRESH

    def heard(self, peer: PeerAddress) -> None:
        """A peer answered for the swarm: it belongs into the table."""
        now = trio.current_time()
        if not peer.addrs:
            self._table.seen(peer.peer_id, now)
            return
        self.remembered[peer.peer_id] = peer
        self.remembered.move_to_end(peer.peer_id)
        if len(self.remembered) > MAX_REMEMBERED:
            self.remembered.popitem(last=False)
        offer = self._table.offer(peer, now)
        if isinstance(offer, Taken):
            self.filled.set()
        elif isinstance(offer, PingFirst):
            with suppress(trio.WouldBlock):  # it will be heard of again
                self._to_check.send_nowait((offer.oldest, peer))

    def lost(self, peer: PeerId) -> None:
        """A peer did not answer."""
        self._table.remove(peer)
        if not len(self._table) and self.filled.is_set():
            self.filled = trio.Event()

    def met(self, peer: PeerId) -> None:
        """A peer asked us something. Whether it answers too is found out soon."""
        now = trio.current_time()
        if peer in self._table:
            self._table.seen(peer, now)
            return
        if now - self._probed.get(peer, -PROBE_AGAIN) < PROBE_AGAIN:
            return
        try:
            self._to_probe.send_nowait(peer)
        except trio.WouldBlock:
            return
        self._probed[peer] = now
        self._probed.move_to_end(peer)
        if len(self._probed) > 1024:
            self._probed.popitem(last=False)

    async def run(self) -> None:
        """Probe, check and refresh until cancelled."""
        async with trio.open_nursery() as nursery:
            for _ in range(PROBERS):
                nursery.start_soon(self._probe_each)
            nursery.start_soon(self._check_each)
            nursery.start_soon(self._rounds)

    async def _probe_each(self) -> None:
        async for peer in self._probes:
            await self._probe(peer)

    async def _probe(self, peer: PeerId) -> None:
        """Ask a connected peer for itself."""
        question = KadMessage(Kind.FIND_NODE, peer_bytes(peer))
        answers = await self.client.try_ask(PeerAddress(peer, ()), question)
        for found in answers[0].closer if answers else ():
            if found.peer_id == peer:
                self.heard(found)

    async def _check_each(self) -> None:
        async for oldest, offered in self._checks:
            if await self.client.try_ask(oldest, _PING) is None:
                self._table.offer(offered, trio.current_time())

    async def _rounds(self) -> None:
        while True:
            await trio.sleep(ROUND * self._chance.uniform(0.8, 1.2))
            silent = self._table.stale(trio.current_time() - STALE, PER_ROUND)
            await self.client.ask_each([(peer, [_PING]) for peer in silent])
            await self._refresh_one()

    async def _refresh_one(self) -> None:
        """Look up a random key in the bucket that was left alone for longest."""
        deepest = min(self._table.deepest(), MAX_PREFIX - 1)
        prefix = min(range(deepest + 1), key=self._refreshed.__getitem__)
        if trio.current_time() - self._refreshed[prefix] >= REFRESH:
            await self.refresh(prefix)

    async def refresh(self, prefix: int) -> None:
        """Get to know peers that share so many bits with this node, and not one more."""
        self._refreshed[prefix] = trio.current_time()
        await self.client.closest(self._key_in(prefix))

    def _key_in(self, prefix: int) -> bytes:
        own = peer_bytes(self._host.address.peer_id)
        while True:
            # In the shape of a peer id, as FIND_NODE of other implementations insists.
            key = own[:6] + self._chance.randbytes(32)
            if common_prefix(point(key), point(own)) == prefix and peer_from_bytes(key):
                return key

    async def join(self, *, thin: int) -> None:
        """Look for this node's own neighbours, if the table has under `thin` or it is long ago."""
        now = trio.current_time()
        if len(self._table) >= thin and now - self._joined_at < REFRESH:
            return
        first = self._joined_at < 0
        self._joined_at = now
        await self.client.closest(peer_bytes(self._host.address.peer_id))
        if first:
            await self.refresh(0)
