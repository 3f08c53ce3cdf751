"""What a node says of itself: its record each beat, and that it is a provider every few minutes.

The record goes to the peers nearest to its own key, where `find_record` looks, and to those nearest
to each key the node provides: who looks for the nodes of a model then gets their records from the
very peers that named them, without a lookup for each and without waiting for those that died.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace

import trio

from p2p.kad_client import QUERY_TIMEOUT, KadClient
from p2p.kad_store import MAX_KEYS_PER_PEER, PROVIDER_LIFE, ProviderStore, ValueStore
from p2p.kad_wire import KadMessage, Kind
from p2p.peers import Host
from tessella.core.addresses import PeerAddress
from tessella.core.buckets import RoutingTable
from tessella.core.errors import Busy, LocalError, RemoteError
from tessella.core.identity import Identity
from tessella.core.ids import PeerId
from tessella.core.kademlia import K
from tessella.core.records import MAX_LIFE, NodeRecord, is_multihash, node_key, seal_record

# Holders of a key are looked for again after this long, and at once when one fails.
LOOK_AGAIN = 240.0
# Two announcements may be lost before a provider is forgotten.
PROVIDE_AGAIN = 0.4 * PROVIDER_LIFE
# Shorter would be a flood: a thousand nodes of one model store at its twenty holders each beat.
SHORTEST_BEAT = 1.0


@dataclass(slots=True)
class _Holders:
    """Who keeps what this node says under one key."""

    peers: list[PeerAddress]
    looked_at: float
    known: int
    """How many peers the table had then."""
    told_at: dict[PeerId, float] = field(default_factory=dict)
    """When each last heard that this node is a provider."""

    def due(self, peer: PeerAddress, now: float) -> bool:
        """Whether it should hear so again."""
        return now - self.told_at.get(peer.peer_id, -math.inf) >= PROVIDE_AGAIN


class Publisher:
    """Publishes one node's record. Start `run` in a nursery for it to live on."""

    def __init__(
        self,
        host: Host,
        identity: Identity | None,
        client: KadClient,
        table: RoutingTable,
        stores: tuple[ValueStore, ProviderStore],
        *,
        clock: Callable[[], float],
        beat: float,
    ) -> None:
        """`clock` gives seconds since 1970, `beat` is in seconds; a record lives two.

        Without an identity there is nothing that could be signed, and so published.
        """
        self._host = host
        self._identity = identity
        self._client = client
        self._table = table
        self._values, self._providers = stores
        self._clock = clock
        self._beat = min(max(SHORTEST_BEAT, beat), MAX_LIFE / 2)
        self._record: NodeRecord | None = None
        self._keys: dict[bytes, None] = {}
        self._holders: dict[bytes, _Holders] = {}
        self._sequence = 0
        self._telling = trio.Lock()

    async def publish(self, record: NodeRecord) -> None:
        """Say this from now on, each beat, and once at once.

        Raises BadConfig for a record that is too long and LocalError for one against its rules.
        """
        self._seal(record)
        self._record = record
        await self.tell()

    def update(self, record: NodeRecord) -> None:
        """Say this from the next beat on."""
        self._record = record

    async def provide(self, keys: Iterable[bytes]) -> None:
        """Be a provider of these keys, and of no others, from now on. Raises LocalError."""
        wanted = dict.fromkeys(keys)
        if len(wanted) > MAX_KEYS_PER_PEER or not all(map(is_multihash, wanted)):
            raise LocalError(f"not at most {MAX_KEYS_PER_PEER} keys that are SHA-256 multihashes")
        self._keys = wanted
        await self.tell()

    def withdraw(self) -> None:
        """Say nothing any more: what was said ends with its life."""
        self._record = None
        self._keys = {}

    async def run(self, filled: Callable[[], trio.Event], chance: random.Random) -> None:
        """Repeat each beat until cancelled, and as soon as the first peer is known."""
        while True:
            alone = not len(self._table)
            # From the start of one beat to that of the next: a slow holder must not stretch them.
            next_beat = trio.current_time() + self._beat * chance.uniform(0.9, 1.0)
            await self.tell()
            with trio.move_on_at(next_beat):
                if alone:
                    await filled().wait()
                else:
                    await trio.sleep_forever()

    def _seal(self, record: NodeRecord) -> bytes:
        """The record as it holds from now on, signed; kept in the own store as well."""
        if self._identity is None:
            raise LocalError("a record is published by whoever can sign it")
        now = self._clock()
        # Milliseconds since 1970: higher than before a restart, without a file.
        self._sequence = max(self._sequence + 1, int(now * 1000))
        stamped = replace(record, sequence=self._sequence, made_at=now, life=2 * self._beat)
        data = seal_record(stamped, self._identity)
        try:
            self._values.put(node_key(self._identity.peer_id), data, now)
        except RemoteError as exc:
            raise LocalError(f"the own record breaks its rules: {exc}") from exc
        return data

    async def tell(self) -> None:
        """One beat: the record to all holders, and to those due that this node is a provider."""
        async with self._telling:
            data = self._seal(self._record) if self._record else None
            for key in self._keys:
                with suppress(Busy):  # full of others: this node is found through its holders
                    self._providers.add(key, self._host.address, self._clock())
            own_key = node_key(self._host.address.peer_id)
            keys = ([own_key] if data else []) + list(self._keys)
            self._holders = {key: held for key, held in self._holders.items() if key in keys}
            async with trio.open_nursery() as nursery:
                for key in keys:
                    nursery.start_soon(self._look, key)
            await self._send(own_key, data)

    async def _look(self, key: bytes) -> None:
        """Know who holds a key: the nearest peers, as they were a few minutes ago at most."""
        now = trio.current_time()
        held = self._holders.get(key)
        if held is not None and now - held.looked_at < LOOK_AGAIN:
            grown = len(held.peers) < K and len(self._table) > held.known
            if not grown:
                return
        found = await self._client.closest(key)
        told = held.told_at if held else {}
        self._holders[key] = _Holders(
            found,
            now,
            len(self._table),
            {peer.peer_id: told[peer.peer_id] for peer in found if peer.peer_id in told},
        )

    def _questions(
        self, own_key: bytes, data: bytes | None, now: float
    ) -> list[tuple[PeerAddress, list[KadMessage]]]:
        """What each holder is told now."""
        found: dict[PeerId, tuple[PeerAddress, list[KadMessage]]] = {}
        for key, held in self._holders.items():
            for peer in held.peers:
                asks = found.setdefault(peer.peer_id, (peer, []))[1]
                if key != own_key and held.due(peer, now):
                    told = (self._host.address,)
                    asks.append(KadMessage(Kind.ADD_PROVIDER, key, providers=told))
        if data is not None:
            for _, asks in found.values():
                asks.append(KadMessage(Kind.PUT_VALUE, own_key, data))
        return [(peer, asks) for peer, asks in found.values() if asks]

    async def _send(self, own_key: bytes, data: bytes | None) -> None:
        now = trio.current_time()
        asks = self._questions(own_key, data, now)
        found = await self._client.ask_each(asks, timeout=QUERY_TIMEOUT)
        answered = {peer.peer_id: answers is not None for peer, answers in found}
        for held in self._holders.values():
            for peer in held.peers:
                if not answered.get(peer.peer_id, True):
                    held.looked_at = -math.inf
                elif peer.peer_id in answered and held.due(peer, now):
                    held.told_at[peer.peer_id] = now
