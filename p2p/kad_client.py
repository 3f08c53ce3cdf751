"""What a node asks of the swarm: one peer, all peers on the way to a key, or some about many.

Every answer and every failure is reported to whoever keeps the table.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Protocol

import trio

from p2p.kad_streams import converse
from p2p.kad_wire import KadMessage, Kind
from p2p.peers import Host
from tessella.core.addresses import Cidr, PeerAddress, judge_addr
from tessella.core.buckets import RoutingTable
from tessella.core.errors import LocalError, TessellaError
from tessella.core.ids import PeerId
from tessella.core.kademlia import ALPHA, MAX_QUERIES, Lookup, point

logger = logging.getLogger(__name__)

# A dial of three round trips, a stream and a question, each of half a second at worst.
QUERY_TIMEOUT = 5.0
# Questions to one peer about many keys, on one stream.
BATCH_TIMEOUT = 15.0

Take = Callable[[PeerAddress, KadMessage], None]
Enough = Callable[[], bool]


@lru_cache(maxsize=4096)  # the same peers are named in answer after answer
def _judged(peer: PeerAddress, allow_private: bool | tuple[Cidr, ...]) -> PeerAddress:
    """A peer with those of its addresses that lead to it, and not into our own network."""
    good = tuple(addr for addr in peer.addrs if not judge_addr(addr, allow_private))
    return PeerAddress(peer.peer_id, good)


class Keeper(Protocol):
    """Who is told how peers answer."""

    def heard(self, peer: PeerAddress) -> None:
        """It answered for the swarm."""

    def lost(self, peer: PeerId) -> None:
        """It did not."""


class KadClient:
    """Questions to the swarm over one host. Nothing of it needs to be closed."""

    def __init__(
        self,
        host: Host,
        table: RoutingTable,
        keeper: Keeper,
        allow_private: bool | tuple[Cidr, ...] = True,
    ) -> None:
        """Peers that others name are dialled where `judge_addr` allows it, and nowhere else."""
        self._allow_private = allow_private
        self.asked = 0
        """Messages sent since the start."""
        self._host = host
        self._table = table
        self._keeper = keeper

    async def ask(
        self, peer: PeerAddress, *questions: KadMessage, timeout: float = QUERY_TIMEOUT
    ) -> list[KadMessage]:
        """The answers of one peer. Raises PeerGone, Refused and RemoteError."""
        self.asked += len(questions)
        try:
            answers = await converse(self._host, peer, questions, timeout)
        except TessellaError:
            self._keeper.lost(peer.peer_id)
            raise
        self._keeper.heard(peer)
        return [replace(answer, closer=self._dialable(answer.closer)) for answer in answers]

    def _dialable(self, peers: Iterable[PeerAddress]) -> tuple[PeerAddress, ...]:
        judged = (_judged(peer, self._allow_private) for peer in peers)
        return tuple(peer for peer in judged if peer.addrs)

    async def try_ask(
        self, peer: PeerAddress, *questions: KadMessage, timeout: float = QUERY_TIMEOUT
    ) -> list[KadMessage] | None:
        """`ask`, with None where the peer fails in any way.

        A bug of ours below costs this question and a line in the log: whoever can bring it about
        must not end the node with it.
        """
        try:
            return await self.ask(peer, *questions, timeout=timeout)
        except LocalError:
            logger.exception("question failed: %s", peer.peer_id)
        except TessellaError as exc:
            logger.debug("question failed: %s: %s", peer.peer_id, exc)
        return None

    async def walk(
        self,
        question: KadMessage,
        *,
        take: Take = lambda _peer, _answer: None,
        enough: Enough = lambda: False,
        most: int = MAX_QUERIES,
    ) -> list[PeerAddress]:
        """Put a question to the peers nearest to its key, and to those on the way.

        `take` sees every answer; the walk ends early when `enough` says so. Returns the nearest
        peers that answered, nearest first. Bounded by `most` questions, ALPHA at a time.
        """
        target = point(question.key)
        own = self._host.address.peer_id
        lookup = Lookup(target, self._table.nearest(target), own=own, most=most)
        changed = trio.Event()

        async def query(peer: PeerAddress) -> None:
            answers = await self.try_ask(peer, question)
            if answers is None:
                lookup.failed(peer.peer_id)
            else:
                take(peer, answers[0])
                lookup.answered(peer.peer_id, answers[0].closer)
            changed.set()

        async with trio.open_nursery() as nursery:
            while not (lookup.done or enough()):
                for peer in lookup.next():
                    nursery.start_soon(query, peer)
                await changed.wait()
                changed = trio.Event()
            nursery.cancel_scope.cancel()
        return lookup.closest()

    async def closest(self, key: bytes) -> list[PeerAddress]:
        """The peers nearest to a key that answer, at most K, nearest first."""
        return await self.walk(KadMessage(Kind.FIND_NODE, key))

    async def ask_each(
        self,
        questions: Sequence[tuple[PeerAddress, Sequence[KadMessage]]],
        *,
        timeout: float = BATCH_TIMEOUT,
    ) -> list[tuple[PeerAddress, list[KadMessage] | None]]:
        """Put to each peer its own questions, ALPHA peers at a time; None where one fails."""
        found: list[tuple[PeerAddress, list[KadMessage] | None]] = []
        limit = trio.CapacityLimiter(ALPHA)

        async def one(peer: PeerAddress, asks: Sequence[KadMessage]) -> None:
            async with limit:
                found.append((peer, await self.try_ask(peer, *asks, timeout=timeout)))

        async with trio.open_nursery() as nursery:
            for peer, asks in questions:
                nursery.start_soon(one, peer, asks)
        return found
