"""Who is there: the record of one node, and the nodes of a model, as the network knows them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence

import trio

from p2p.kad_client import KadClient
from p2p.kad_store import ProviderStore, ValueStore
from p2p.kad_wire import KadMessage, Kind
from tessella.core.addresses import PeerAddress
from tessella.core.errors import RemoteError
from tessella.core.ids import PeerId
from tessella.core.records import NodeRecord, mesh_key, model_key, node_key

# Copies of one record that end a search: they differ by a beat at most.
QUORUM = 3
# Holders that are asked for a record before its node counts as gone.
TRIES = 3
# Records that no holder of the model has are looked for under their own keys, so many in one
# search, drawn by chance: most are of nodes that died since they said that they are providers.
MAX_LOOKUPS = 3
# Nodes of one answer: as many as one key has providers.
MAX_FOUND = 1024


class Search:
    """Searches over one client. What is found is verified, and kept in the own store."""

    def __init__(
        self,
        own: PeerId,
        client: KadClient,
        stores: tuple[ValueStore, ProviderStore],
        *,
        clock: Callable[[], float],
        fresh: float,
        chance: random.Random,
    ) -> None:
        """A record younger than `fresh` seconds is not asked for again."""
        self._own = own
        self._client = client
        self._values, self._providers = stores
        self._clock = clock
        self._fresh = fresh
        self._chance = chance

    def _held(self, peer: PeerId) -> NodeRecord | None:
        held = self._values.get(peer, self._clock())
        return held.record if held else None

    def _take(self, key: bytes, answer: KadMessage) -> bool:
        """Keep the record in an answer. Whether there was one that holds."""
        if answer.value is None:
            return False
        try:
            self._values.put(key, answer.value, self._clock())
        except RemoteError:
            return False
        return True

    async def record(self, peer: PeerId) -> NodeRecord | None:
        """The best record of a node."""
        if peer == self._own:
            return self._held(peer)
        key = node_key(peer)
        copies = 0

        def take(_: PeerAddress, answer: KadMessage) -> None:
            nonlocal copies
            copies += self._take(key, answer)

        question = KadMessage(Kind.GET_VALUE, key)
        await self._client.walk(question, take=take, enough=lambda: copies >= QUORUM)
        return self._held(peer)

    async def nodes(self, model: str, contract: str) -> list[NodeRecord]:
        """The nodes of a model that live, by peer id."""
        key = model_key(model, contract) if model else mesh_key()
        found = dict.fromkeys(peer.peer_id for peer in self._providers.get(key, self._clock()))

        def take(_: PeerAddress, answer: KadMessage) -> None:
            room = MAX_FOUND - len(found)
            found.update(dict.fromkeys([peer.peer_id for peer in answer.providers][:room]))

        holders = await self._client.walk(KadMessage(Kind.GET_PROVIDERS, key), take=take)
        await self._fetch(found, holders)
        records = (self._held(peer) for peer in sorted(found))
        return [
            record
            for record in records
            if record and model in ("", record.model) and contract in ("", record.contract)
        ]

    def _missing(self, peers: Iterable[PeerId]) -> list[PeerId]:
        """Whose record is not held, or might have been followed by another."""
        oldest = self._clock() - self._fresh
        held = ((peer, self._held(peer)) for peer in peers if peer != self._own)
        return [peer for peer, record in held if record is None or record.made_at <= oldest]

    async def _fetch(self, peers: Iterable[PeerId], holders: Sequence[PeerAddress]) -> None:
        missing = self._missing(peers)
        for turn in range(min(TRIES, len(holders))):
            await self._ask_holders(missing, holders, turn)
            missing = self._missing(missing)
        lost = [peer for peer in missing if self._held(peer) is None]
        async with trio.open_nursery() as nursery:
            for peer in self._chance.sample(lost, min(MAX_LOOKUPS, len(lost))):
                nursery.start_soon(self.record, peer)

    async def _ask_holders(
        self, missing: Sequence[PeerId], holders: Sequence[PeerAddress], turn: int
    ) -> None:
        """Ask for each record one holder, another each turn, and each holder once for all."""
        asks: dict[PeerId, tuple[PeerAddress, list[KadMessage]]] = {}
        for place, peer in enumerate(missing):
            holder = holders[(place + turn) % len(holders)]
            question = KadMessage(Kind.GET_VALUE, node_key(peer))
            asks.setdefault(holder.peer_id, (holder, []))[1].append(question)
        for _, answers in await self._client.ask_each(list(asks.values())):
            for answer in answers or ():
                self._take(answer.key, answer)
