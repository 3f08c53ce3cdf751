"""Moving running nodes to other ranges: one at a time in each model, and never through a gap.

An operator asks for it, or layers are served by nobody for a while. What is moved, and whether,
is `core.resplit`'s to say; here it is done, told to the node, and taken back if the node does not
begin with it. One that says no is not asked again before it registers again.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import NoReturn

import trio

from musivum.nodes.node import Node
from musivum.nodes.roster import Group, Roster
from musivum.placing.orchestrator import Orchestrator
from tessella.core.errors import Refused, RemoteFailure, StoreUnavailable, TessellaError
from tessella.core.ids import PeerId
from tessella.core.layers import LayerRange
from tessella.core.peers import NodeStatus
from tessella.core.plan import Holding, MemoryTerms
from tessella.core.resplit import Move, next_move

logger = logging.getLogger(__name__)

# A node may let its sessions finish before it begins: half a minute, and some heartbeats.
PATIENCE_SECONDS = 120.0
# One that did not begin is passed over for as long, so that it does not keep others from moving.
PASSED_OVER_SECONDS = 600.0
TICK_SECONDS = 1.0

# Told at a time, of different models. One that does not answer takes fifteen seconds.
PUSHES = 64

Push = Callable[[PeerId, LayerRange], Awaitable[None]]
"""Tells a node its range. Raises a TessellaError if it could not be told."""


class Moves:
    """What is being moved. Start `run` once."""

    def __init__(
        self, roster: Roster, orchestrator: Orchestrator, push: Push, *, heal_seconds: float
    ) -> None:
        self._roster = roster
        self._orchestrator = orchestrator
        self._push = push
        self._heal_seconds = heal_seconds
        self._began: dict[PeerId, float] = {}
        self._holes_since: dict[Group, float] = {}
        self._wanted: set[Group] = set()
        # The listing for which nothing was worth it: of thousands of nodes that took a while.
        self._idle_at: dict[Group, int] = {}
        self._passed_over: dict[PeerId, float] = {}
        # Whom we moved, until it serves again or is gone.
        self._under_way: set[PeerId] = set()
        # Who said no, by when it had registered.
        self._said_no: dict[PeerId, float] = {}

    async def rebalance(self) -> list[Move]:
        """Begin with the next move of each model, and go on with it until none is worth it.

        Gives the moves that were begun. Raises StoreUnavailable.
        """
        groups = set(self._roster.groups())
        # What nodes measure is no part of the listing, and an operator asks because of that.
        self._idle_at.clear()
        begun = await self._begin(groups)
        self._wanted = groups
        return begun

    async def run(self) -> NoReturn:
        """Go on with what was begun, and close holes, until cancelled."""
        while True:
            await trio.sleep(TICK_SECONDS)
            try:
                await self.tick(trio.current_time())
            except StoreUnavailable as exc:
                logger.info("nothing is moved for now: %s", exc)

    async def tick(self, now: float) -> None:
        """What there is to do by now. Raises StoreUnavailable."""
        await self._take_back(now)
        groups = set(self._roster.groups())
        self._idle_at = {group: self._idle_at[group] for group in self._idle_at if group in groups}
        await self._begin((self._wanted & groups) | self._broken(groups, now))
        # Whatever was worth it has been begun: where nothing is under way, nothing is left.
        self._wanted = {group for group in self._wanted if self._is_moving(group)}

    def _broken(self, groups: set[Group], now: float) -> set[Group]:
        """Models with layers that nobody holds, for longer than a node takes to come back."""
        if not self._heal_seconds:
            return set()
        without = {group for group in groups if self._roster.has_gaps(group)}
        since = {group: self._holes_since.get(group, now) for group in without}
        self._holes_since = since
        return {group for group in without if now - since[group] >= self._heal_seconds}

    def _is_moving(self, group: Group) -> bool:
        nodes = self._roster.members(group)
        return any(node.target or node.status is NodeStatus.PENDING_LOAD for node in nodes)

    async def _begin(self, groups: set[Group]) -> list[Move]:
        """The next move of each model, side by side: a node that does not answer delays its own."""
        begun: dict[Group, Move] = {}
        failed: list[StoreUnavailable] = []
        limiter = trio.CapacityLimiter(PUSHES)

        async def begin(group: Group) -> None:
            try:
                async with limiter:
                    while (move := self._next(group)) is not None:
                        if await self._start(move):
                            begun[group] = move
                            break
            except StoreUnavailable as exc:
                failed.append(exc)

        async with trio.open_nursery() as nursery:
            for group in sorted(groups):
                nursery.start_soon(begin, group)
        if failed:
            raise failed[0]
        return [begun[group] for group in sorted(begun)]

    def _next(self, group: Group) -> Move | None:
        nodes = [node for node in self._roster.members(group) if node.is_here]
        # While one was told, all nodes of the next model may have left.
        if not nodes or self._idle_at.get(group) == self._roster.version_of(group):
            return None
        terms = _usual(nodes)
        move = next_move(terms, self._held(group, terms))
        if move is None:
            self._idle_at[group] = self._roster.version_of(group)
        return move

    def _held(self, group: Group, terms: MemoryTerms) -> list[Holding]:
        """What the nodes of a model hold. Those that may not be moved have no claim to move with:
        who said no, and who keeps its layers in another way than most. Where layers are missing,
        somebody who loads others is no reason to wait."""
        held = self._roster.holdings(group)
        waits = not self._roster.has_gaps(group)
        return [self._holding(one, terms, waits=waits) for one in held]

    def _holding(self, one: Holding, terms: MemoryTerms, *, waits: bool) -> Holding:
        usual = self._roster.node(one.peer_id).terms == terms
        claim_mb = one.claim_mb if usual and self._may_be_asked(one.peer_id) else 0
        is_ours = waits or one.peer_id in self._under_way
        if one.status is NodeStatus.PENDING_LOAD and not is_ours:
            return replace(one, claim_mb=claim_mb, status=NodeStatus.DRAINING)
        return replace(one, claim_mb=claim_mb)

    def _may_be_asked(self, peer_id: PeerId) -> bool:
        said_no_at = self._said_no.get(peer_id)
        return peer_id not in self._passed_over and said_no_at != self._roster.node(peer_id).joined

    async def _start(self, move: Move) -> bool:
        """Want the move, and tell the node; whether it did not say no. Raises StoreUnavailable."""
        logger.info(
            "moving: %s: layers %s to %s: %s", move.peer_id, move.old, move.new, move.reason
        )
        joined = self._roster.node(move.peer_id).joined
        try:
            await self._orchestrator.move(move.peer_id, move.new)
        except StoreUnavailable:
            # What is not kept is not wanted either.
            known = self._roster.find(move.peer_id)
            if known is not None:
                self._roster.move(known.peer_id, known.row.layers)
            raise
        self._began[move.peer_id] = trio.current_time()
        self._under_way.add(move.peer_id)
        if await self._told(move.peer_id, move.new):
            return True
        self._said_no[move.peer_id] = joined
        refusing = self._roster.find(move.peer_id)
        if refusing is not None:
            await self._orchestrator.move(move.peer_id, refusing.row.layers)
        return False

    async def _told(self, peer_id: PeerId, layers: LayerRange) -> bool:
        """Tell a node its range; whether it did not say no, be it that it did not hear."""
        try:
            await self._push(peer_id, layers)
        except TessellaError as exc:
            logger.info("not taken: %s: %s: %s", peer_id, exc.code, exc)
            return not (isinstance(exc, RemoteFailure) and exc.code == Refused.code)
        return True

    async def _take_back(self, now: float) -> None:
        """Nodes that do not begin keep what they have, and nobody waits for them any longer."""
        if any(until <= now for until in self._passed_over.values()):
            self._passed_over = {who: at for who, at in self._passed_over.items() if at > now}
            self._idle_at.clear()
        self._said_no = {who: at for who, at in self._said_no.items() if self._roster.find(who)}
        moving = [node for node in self._roster.nodes() if node.target is not None]
        self._under_way = {who for who in self._under_way if self._is_on_its_way(who)}
        self._under_way.update(node.peer_id for node in moving)
        # One that was begun before a restart begins anew.
        self._began = {node.peer_id: self._began.get(node.peer_id, now) for node in moving}
        for node in moving:
            if now - self._began[node.peer_id] > PATIENCE_SECONDS:
                await self._give_up(node.peer_id, now)

    def _is_on_its_way(self, peer_id: PeerId) -> bool:
        node = self._roster.find(peer_id)
        return node is not None and bool(node.target or node.status is NodeStatus.PENDING_LOAD)

    async def _give_up(self, peer_id: PeerId, now: float) -> None:
        node = self._roster.find(peer_id)
        # While another was given up, it may have begun, or left.
        if node is None or node.target is None:
            return
        logger.info("move taken back: %s did not begin", peer_id)
        if node.is_here:
            self._passed_over[peer_id] = now + PASSED_OVER_SECONDS
        # What is listed is as before, but not what is promised.
        self._idle_at.clear()
        await self._orchestrator.move(peer_id, node.row.layers)


def _usual(nodes: Sequence[Node]) -> MemoryTerms:
    """The prices of most of the nodes, the dearer of two: one that keeps its layers absurdly
    stops nobody."""
    counted = Counter(node.terms for node in nodes)
    return max(counted, key=lambda terms: (counted[terms], terms.mem_per_layer_mb, repr(terms)))
