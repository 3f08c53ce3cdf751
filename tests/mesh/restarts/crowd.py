"""Nodes that keep a musivum busy: they come, are listed, and die."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

import trio

from musivum.testing import SMALL, a_registration
from p2p.host import open_host
from tessella.core.addresses import PeerAddress
from tessella.core.errors import Refused, TessellaError
from tessella.core.identity import Identity
from tessella.core.ids import ModelId, PeerId
from tessella.core.layers import LayerRange
from tessella.core.messages import Announce
from tessella.core.peers import NodeStatus
from tessella.worker.membership import Membership
from tessella.worker.mesh import Member, News
from tessella.worker.tracker import Tracker, is_away
from tests.mesh.restarts.musivum_program import HOST, Listed
from tests.mesh.restarts.program import LOOK_SECONDS, START_SECONDS

LISTEN = f"/ip4/{HOST}/tcp/0"
# Each is a host with its sockets and tasks, in the process of the test.
CROWD = 12
# Between two that come: at most moments one is on its way in.
COME_SECONDS = 0.15
# Then it gives up, and another comes: who waits for a musivum waits longer each time.
JOIN_SECONDS = 1.0
# Longest load: who dies or loses its musivum meanwhile was admitted, and never said more.
LOAD_SECONDS = 0.6


@dataclass
class Crowd:
    """Nodes that join, are listed, stay, and die without a word: a mesh that is never at rest.

    Each is the worker's own membership over a real host that listens, so it is dialled back.
    """

    musivums: list[PeerAddress]
    chance: random.Random
    acknowledged: set[PeerId] = field(default_factory=set)
    """Whose registration was answered with a range."""
    alive: dict[PeerId, trio.CancelScope] = field(default_factory=dict)
    """Those that were listed as ready, and live."""
    dead: set[PeerId] = field(default_factory=set)
    refused: list[str] = field(default_factory=list)
    _came: trio.Event = field(default_factory=trio.Event)

    async def full(self) -> None:
        """Return once as many live as may."""
        with trio.fail_after(START_SECONDS):
            while len(self.alive) < CROWD:  # noqa: ASYNC110 - no event tells of it
                await trio.sleep(LOOK_SECONDS)

    async def one_more(self) -> None:
        """Return at the moment in which an admission is acknowledged; others die to make room."""
        came = self._came = trio.Event()
        with trio.fail_after(START_SECONDS):
            while not came.is_set():
                self.kill(1)
                with trio.move_on_after(JOIN_SECONDS):
                    await came.wait()

    async def run(self) -> None:
        """Let them come, until cancelled."""
        places = trio.Semaphore(CROWD)
        async with trio.open_nursery() as nursery:
            while True:
                await places.acquire()
                nursery.start_soon(self._one, places)
                await trio.sleep(COME_SECONDS)

    async def _one(self, places: trio.Semaphore) -> None:
        identity = Identity(self.chance.randbytes(32))
        try:
            async with open_host(identity, listen=[LISTEN]) as host:
                tracker = Tracker(host, identity, self.musivums)
                register = replace(
                    a_registration(host.address.addrs), model=ModelId("crowd"), claim_mb=64
                )
                member = Member(register, SMALL.layers, _news, _unmoved, lambda _: None)
                await self._live(identity.peer_id, Membership(tracker, member))
        except TessellaError as exc:
            if not is_away(exc):
                self.refused.append(f"{exc.code}: {exc}")
        finally:
            places.release()

    async def _live(self, peer_id: PeerId, membership: Membership) -> None:
        with trio.move_on_after(JOIN_SECONDS):
            layers = await membership.join()
            self.acknowledged.add(peer_id)
            self._came.set()
        if peer_id not in self.acknowledged:
            return
        await trio.sleep(self.chance.uniform(0, LOAD_SECONDS))
        with trio.CancelScope() as scope:
            await membership.ready(layers)
            self.alive[peer_id] = scope
            await membership.run()
        del self.alive[peer_id]

    def kill(self, count: int) -> None:
        """Some of them die, and say nothing."""
        for peer_id in self.chance.sample(sorted(self.alive), min(count, len(self.alive))):
            self.dead.add(peer_id)
            self.alive[peer_id].cancel()

    def lost(self, listed: Listed) -> set[PeerId]:
        """Whose admission was acknowledged, and who is not listed."""
        return self.acknowledged - listed.keys()

    def undead(self, listed: Listed) -> set[PeerId]:
        """Who is dead, and listed as one that serves."""
        return self.dead & _healthy(listed)

    def unheard(self, listed: Listed) -> set[PeerId]:
        """Who serves, and is not listed as one that does."""
        return self.alive.keys() - _healthy(listed)


def _healthy(listed: Listed) -> set[PeerId]:
    return {peer for peer, row in listed.items() if row["status"] == NodeStatus.HEALTHY.value}


def _news() -> News:
    whole = LayerRange(0, SMALL.layers)
    return News(whole, Announce(NodeStatus.HEALTHY.value, queue_depth=0, step_ms=0.0))


def _unmoved(layers: LayerRange) -> None:
    if layers != _news().layers:
        raise Refused("nobody of a crowd moves")
