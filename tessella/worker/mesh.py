"""Where a node meets the others: at musivum, in the swarm, or at both."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import trio

from tessella.core.errors import TessellaError
from tessella.core.ids import ModelId, PeerId
from tessella.core.layers import LayerRange
from tessella.core.messages import Announce, Register
from tessella.core.peers import PeerRow
from tessella.worker.tracker import is_away

logger = logging.getLogger(__name__)

# How long musivum is waited for where the swarm could answer, and to be told that a node serves:
# who is away then is told by the next heartbeat.
MUSIVUM_SECONDS = 1.0
READY_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class News:
    """What a node says of itself at one moment."""

    layers: LayerRange
    """The range that is loaded, or being loaded."""
    said: Announce


@dataclass(frozen=True, slots=True)
class Member:
    """A node, as its mesh deals with it."""

    register: Register
    """What it joins with."""
    total_layers: int
    news: Callable[[], News]
    assigned: Callable[[LayerRange], None]
    """Called with the range that musivum wants it to hold. Raises Refused."""
    failed: Callable[[Exception], None]
    """Called with what kept the mesh from hearing of it."""


class Mesh(Protocol):
    """A node's membership: what it is given, what it says of itself, and whom it learns of."""

    @property
    def way(self) -> str:
        """How its mesh was reached last: `libp2p` or `http`, to musivum, or `swarm`."""

    async def join(self) -> LayerRange:
        """The range to load. Raises the refusal, BadConfig, or PeerGone where nobody can say."""

    async def ready(self, layers: LayerRange) -> None:
        """Be listed as serving the range."""

    def changed(self) -> None:
        """The node's status, or its range, is another: said soon, not at the next heartbeat."""

    async def run(self) -> None:
        """Say the node's news until cancelled, from joining on, whoever comes and goes."""

    async def rows(self, model: ModelId) -> list[PeerRow]:
        """The nodes of a model. Raises a TessellaError if nobody answers."""

    def report(self, peer: PeerId, error: TessellaError) -> None:
        """A peer failed us; told to whom it concerns when there is time."""

    async def leave(self) -> None:
        """Say goodbye if somebody is there to hear it. Bounded, and never fails.

        To be called once `run` and `ready` are cancelled: what is said later lists us again.
        """


class BothMeshes:
    """A node of a musivum's mesh that is in the swarm as well: the range comes from musivum.

    While musivum is away the swarm answers for it. A node that insists on a range starts without
    musivum too.
    """

    def __init__(self, musivum: Mesh, swarm: Mesh, insists: LayerRange | None) -> None:
        self._musivum = musivum
        self._swarm = swarm
        self._insists = insists
        self._joined = False

    @property
    def way(self) -> str:
        """musivum's."""
        return self._musivum.way

    async def join(self) -> LayerRange:
        """musivum's range; our own if musivum is away and we insist on one."""
        try:
            layers = await self._musivum.join()
        except TessellaError as exc:
            if self._insists is None or not is_away(exc):
                raise
            logger.warning("musivum is away, going on in the swarm alone: %s", exc)
            return self._insists
        self._joined = True
        return layers

    async def ready(self, layers: LayerRange) -> None:
        """Be listed at both."""
        await self._swarm.ready(layers)
        if self._joined:
            with trio.move_on_after(READY_SECONDS):
                await self._musivum.ready(layers)

    def changed(self) -> None:
        """Both are told soon."""
        self._swarm.changed()
        self._musivum.changed()

    async def run(self) -> None:
        """Stay listed at both."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._musivum.run)
            nursery.start_soon(self._swarm.run)

    async def rows(self, model: ModelId) -> list[PeerRow]:
        """What musivum lists; what the swarm knows, if musivum does not answer."""
        try:
            with trio.fail_after(MUSIVUM_SECONDS):
                return await self._musivum.rows(model)
        except (TessellaError, trio.TooSlowError) as exc:
            logger.info("musivum did not answer, asking the swarm: %s", exc)
            return await self._swarm.rows(model)

    def report(self, peer: PeerId, error: TessellaError) -> None:
        """musivum acts on reports; the swarm has nobody who could."""
        self._musivum.report(peer, error)

    async def leave(self) -> None:
        """Goodbye to both."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._swarm.leave)
            nursery.start_soon(self._musivum.leave)
