"""What nodes may have done, once they were let in: the one room behind both doors.

Each method takes a peer id that was proven. What has to outlive a restart is in the store before
its answer is given; what is only measured follows within a second.
"""

from __future__ import annotations

import logging

import trio

from musivum.config import MusivumConfig
from musivum.nodes.books import Books
from musivum.nodes.node import Node
from musivum.nodes.registration import House, Wish, read_registration
from musivum.nodes.roster import Forgotten, WentOffline
from musivum.nodes.saved import saved_node
from musivum.placing.listing import listed
from musivum.placing.probes import Probes
from musivum.store import Change, DropNode, PutNode, PutReputation, SavedReputation
from tessella.core.errors import ClaimTooSmall, Refused, StoreUnavailable, TooManySessions
from tessella.core.ids import PeerId
from tessella.core.layers import LayerRange
from tessella.core.messages import Accepted, Announce, Assigned, Register, ReportFailure

logger = logging.getLogger(__name__)


class Orchestrator:
    """The calls of nodes. Holds no resource."""

    def __init__(self, config: MusivumConfig, books: Books, probes: Probes) -> None:
        self._config = config
        self._books = books
        self._roster = books.roster
        self._store = books.store
        self._probes = probes
        self._house = House(
            usable_vram_pct=config.usable_vram_pct,
            min_vram_mb=config.least_claim_mb,
            allow_private=config.allow_private,
        )

    async def register(self, peer_id: PeerId, asked: Register) -> Assigned:
        """Reserve a range for a node, or keep the one it holds.

        Raises BadFrame, BadManifest, BadAddress or AddressUnproven for what it says of itself,
        ClaimTooSmall for what it offers, TooManyRequests, TooManySessions and StoreUnavailable
        where there is no room for it.
        """
        wish = read_registration(asked, self._house)
        self._books.manifests.check(wish)
        shown = await self._probes.prove(
            peer_id, wish.addrs, wish.api_url, dial_back=self._config.dial_back
        )
        wish = listed(peer_id, wish, shown)
        node = await self._joined(peer_id, wish)
        logger.info("joined: %s: layers %s of %s", peer_id, node.row.layers, wish.model)
        return Assigned(node.row.layers, self._config.heartbeat_seconds)

    async def _joined(self, peer_id: PeerId, wish: Wish) -> Node:
        try:
            node = self._roster.join(peer_id, wish, trio.current_time())
        except (ClaimTooSmall, TooManySessions):
            # What it held before is free by now.
            self._keep_soon(DropNode(peer_id))
            raise
        joined = self._books.reputations.joined(peer_id)
        try:
            await self._store.save(self._put(node), PutReputation(joined))
        except StoreUnavailable:
            # What is not kept was not reserved either; but it may have come again meanwhile.
            found = self._roster.find(peer_id)
            if found is not None and found.wish is wish:
                self._roster.leave(peer_id)
            raise
        return node

    async def ready(self, peer_id: PeerId, layers: LayerRange) -> Accepted:
        """The node serves its range. Raises UnknownWorker, Refused, StoreUnavailable."""
        before = self._roster.node(peer_id)
        node = self._roster.ready(peer_id, layers, trio.current_time())
        if not before.is_ready or before.row.layers != layers:
            await self._store.save(self._put(node))
        logger.info("ready: %s: layers %s", peer_id, layers)
        return Accepted()

    def announce(self, peer_id: PeerId, said: Announce) -> Accepted | Assigned:
        """A heartbeat; answered with the range that is wanted, where the node does not hold that,
        or lets go of it for one that is wanted no more.

        Raises UnknownWorker, and BadFrame for what no node may say.
        """
        strays = self._roster.node(peer_id).strays(said)
        node = self._roster.announce(peer_id, said, trio.current_time())
        self._keep_soon(self._put(node))
        wanted = node.row.layers if strays else node.target
        if wanted is not None:
            return Assigned(wanted, self._config.heartbeat_seconds)
        return Accepted()

    async def deregister(self, peer_id: PeerId) -> Accepted:
        """The node leaves; one that is not here is no error. Raises StoreUnavailable."""
        self._roster.leave(peer_id)
        await self._store.save(DropNode(peer_id))
        logger.info("left: %s", peer_id)
        return Accepted()

    def report_failure(self, peer_id: PeerId, report: ReportFailure) -> Accepted:
        """Have an accused node looked at.

        Raises UnknownWorker for a reporter that is no node here, Refused for one that accuses
        itself, and TooManyRequests beyond what one reporter, or all, may have looked at.
        """
        self._roster.node(peer_id)
        if report.peer_id == peer_id:
            raise Refused("a node that reports itself may deregister instead")
        if self._probes.report(peer_id, report.peer_id, trio.current_time()):
            self._note_reputation(self._books.reputations.reported(peer_id, report.peer_id))
        return Accepted()

    def lost(self, reporter: PeerId, accused: PeerId) -> None:
        """A node that was reported does not answer us either."""
        self._roster.lost(accused, trio.current_time())
        self._note(accused)
        self._note_reputation(self._books.reputations.confirmed(reporter, accused))

    def expire(self, connected: frozenset[PeerId]) -> None:
        """Have silence mean what it means by now; `connected` are the peers of open connections."""
        for decision in self._roster.expire(trio.current_time(), connected):
            match decision:
                case Forgotten(peer_id):
                    logger.info("forgotten: %s", peer_id)
                    self._keep_soon(DropNode(peer_id))
                case WentOffline(peer_id, reason):
                    logger.info("offline: %s: %s", peer_id, reason)
                    self._note(peer_id)
                    self._note_reputation((self._books.reputations.went_offline(peer_id),))

    async def move(self, peer_id: PeerId, layers: LayerRange) -> None:
        """Want another range of a node; it is told with its next heartbeat at the latest.

        Raises UnknownWorker and StoreUnavailable.
        """
        await self._store.save(self._put(self._roster.move(peer_id, layers)))

    def _note(self, peer_id: PeerId) -> None:
        node = self._roster.find(peer_id)
        if node is not None:
            self._keep_soon(self._put(node))

    def _note_reputation(self, changed: tuple[SavedReputation, ...]) -> None:
        self._keep_soon(*map(PutReputation, changed))

    def _keep_soon(self, *changes: Change) -> None:
        """Note what nobody waits for. A store that is full loses it, and nothing ends by that."""
        try:
            self._store.note(*changes)
        except StoreUnavailable as exc:
            logger.warning("not kept: %s", exc)

    def _put(self, node: Node) -> PutNode:
        return PutNode(saved_node(node, self._books.clocks))
