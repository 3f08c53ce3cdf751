"""A network in memory: the same hosts, streams and errors, and nothing real below.

    net = MemoryNetwork(latency=0.020)
    async with net.host(seed_a) as a, net.host(seed_b) as b:
        await a.connect(b.address, timeout=5)

Latency is one way, for each write, and order is kept. On trio's virtual clock every run of one
program with one `seed` sees the same losses. What networks do to nodes is done here by hand:
`cut` ends a connection, `silence` holds back all bytes of it, `heal` lets them arrive, and
leaving the context of a host is its death.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import trio

from p2p.background import background_tasks
from p2p.memory import Wire, stream_pair
from p2p.peers import BytesHandler, Handler, Proof
from p2p.proving import prove_each
from p2p.router import Router
from p2p.streams import ByteStream, FrameStream, frame_stream
from tessella.core.addresses import Ip, PeerAddress, read_ip
from tessella.core.errors import (
    LocalError,
    PeerClosed,
    PeerReset,
    PeerSilent,
    PeerUnreachable,
    Refused,
)
from tessella.core.identity import Identity
from tessella.core.ids import PeerId
from tessella.core.messages import HOP

Pair = frozenset[PeerId]


class MemoryNetwork:
    """Hosts that reach each other by their addresses, as on one flat network."""

    def __init__(self, latency: float = 0.0, loss: float = 0.0, seed: int = 0) -> None:
        """`latency` in seconds one way; `loss` is the chance that a write ends a connection."""
        self.latency = latency
        self._loss = loss
        self._seed = seed
        self._born = 0
        self._wires: dict[Pair, Wire] = {}
        self._silent: set[Pair] = set()
        self._cuts: Counter[Pair] = Counter()
        self.hosts: dict[PeerId, MemoryHost] = {}

    def host(self, identity: Identity | bytes) -> AbstractAsyncContextManager[MemoryHost]:
        """A host, from its identity or 32-byte seed, until the context is left."""
        known = identity if isinstance(identity, Identity) else Identity(identity)
        return self._host(known)

    @asynccontextmanager
    async def _host(self, identity: Identity) -> AsyncIterator[MemoryHost]:
        if identity.peer_id in self.hosts:
            raise LocalError(f"{identity.peer_id} is on this network already")
        self._born += 1
        addr = f"/ip4/10.{self._born >> 16 & 255}.{self._born >> 8 & 255}.{self._born & 255}"
        async with background_tasks() as nursery:
            address = PeerAddress(identity.peer_id, (f"{addr}/tcp/4001",))
            host = self.hosts[identity.peer_id] = MemoryHost(self, address, nursery)
            try:
                yield host
            finally:
                del self.hosts[identity.peer_id]
                for peer in host.connected():
                    self.end(identity.peer_id, peer, PeerClosed(f"{identity.peer_id} left"))

    def stream_pair(self, protocol: str = HOP) -> tuple[FrameStream, FrameStream]:
        """A stream between two peers that have no hosts: the asking end and the serving end."""
        asking, serving = Identity(bytes(31) + b"\1").peer_id, Identity(bytes(31) + b"\2").peer_id
        left, right = stream_pair(self._new_wire(), asking, serving)
        return (
            frame_stream(left, protocol, opened=True),
            frame_stream(right, protocol, opened=False),
        )

    def cut(self, a: PeerId, b: PeerId) -> None:
        """End the connection between two peers now: PeerGone on both ends. They may redial.

        A proof on its way between them fails too.
        """
        self._cuts[frozenset((a, b))] += 1
        self.end(a, b, PeerReset("the connection broke"))

    def silence(self, a: PeerId, b: PeerId) -> None:
        """Nothing arrives between two peers until `heal`; connections stay, dials time out."""
        self._silent.add(frozenset((a, b)))
        wire = self.wire(a, b)
        if wire is not None:
            wire.silence(True)

    def heal(self, a: PeerId, b: PeerId) -> None:
        """What was held back arrives, and dials succeed again."""
        self._silent.discard(frozenset((a, b)))
        wire = self.wire(a, b)
        if wire is not None:
            wire.silence(False)

    def wire(self, a: PeerId, b: PeerId) -> Wire | None:
        """The live connection between two peers."""
        found = self._wires.get(frozenset((a, b)))
        return found if found is not None and found.death is None else None

    def peers_of(self, peer: PeerId) -> tuple[PeerId, ...]:
        """Who a live connection leads to, in the order they were made."""
        live = (pair for pair, wire in self._wires.items() if peer in pair and not wire.death)
        return tuple(next(iter(pair - {peer})) for pair in live)

    async def dial(self, a: PeerId, target: PeerAddress) -> None:
        """Make a connection; one round trip. Raises PeerUnreachable, and waits while silenced."""
        pair = frozenset((a, target.peer_id))
        await trio.sleep(2 * self.latency)
        while pair in self._silent:
            await trio.sleep_forever()
        host = self.hosts.get(target.peer_id)
        if host is None or not set(host.address.addrs) & set(target.addrs):
            raise PeerUnreachable(f"{target.peer_id} does not listen on {list(target.addrs)}")
        if self.wire(a, target.peer_id) is None:
            self._wires.pop(pair, None)
            self._wires[pair] = self._new_wire()

    async def answer(self, a: PeerId, target: PeerId, addr: str) -> None:
        """Return when `target` answers at an address, to a dial that makes no connection.

        One round trip. Raises PeerUnreachable, and waits while silenced.
        """
        found = (host for host in self.hosts.values() if addr in host.address.addrs)
        there = next(found, None)
        pair = frozenset((a, target if there is None else there.address.peer_id))
        cuts = self._cuts[pair]
        await trio.sleep(2 * self.latency)
        while pair in self._silent:
            await trio.sleep_forever()
        if there is None or self.hosts.get(there.address.peer_id) is not there:
            raise PeerUnreachable("failed: nobody listens there")
        if self._cuts[pair] != cuts:
            raise PeerUnreachable("failed: the connection broke")
        if there.address.peer_id != target:
            raise PeerUnreachable(f"answers as {there.address.peer_id}")

    def _new_wire(self) -> Wire:
        self._born += 1
        return Wire(self.latency, self._loss, f"{self._seed}:{self._born}")

    def end(self, a: PeerId, b: PeerId, death: PeerClosed | PeerReset) -> None:
        """End the live connection between two peers, if there is one, with this error."""
        wire = self._wires.pop(frozenset((a, b)), None)
        if wire is not None:
            wire.cut(death)


class MemoryHost:
    """One peer of a MemoryNetwork: a `p2p.peers.Host`."""

    def __init__(self, net: MemoryNetwork, address: PeerAddress, nursery: trio.Nursery) -> None:
        self.address = address
        self.router = Router()
        self.nursery = nursery
        self._net = net

    @property
    def protocols(self) -> tuple[str, ...]:
        """What is served here."""
        return self.router.protocols

    def serve(self, protocol: str, handler: Handler, *, streams: int, per_peer: int) -> None:
        """Answer a protocol."""
        self.router.serve(protocol, handler, streams=streams, per_peer=per_peer)

    def serve_bytes(
        self, protocol: str, handler: BytesHandler, *, streams: int, per_peer: int
    ) -> None:
        """Answer a protocol that is not of our frames."""
        self.router.serve_bytes(protocol, handler, streams=streams, per_peer=per_peer)

    async def connect(self, peer: PeerAddress, *, timeout: float) -> None:
        """Be connected to the peer."""
        if peer.peer_id == self.address.peer_id:
            raise PeerUnreachable(f"{peer.peer_id} is this node itself")
        await trio.lowlevel.checkpoint()
        if self._net.wire(self.address.peer_id, peer.peer_id) is not None:
            return
        with trio.move_on_after(timeout):
            await self._net.dial(self.address.peer_id, peer)
            return
        raise PeerUnreachable(f"{peer.peer_id} did not answer within {timeout:g} s")

    async def prove(self, peer: PeerAddress, *, timeout: float) -> Proof:
        """Dial the addresses of a peer anew."""

        async def dial(addr: str) -> tuple[Ip, ...]:
            await self._net.answer(self.address.peer_id, peer.peer_id, addr)
            return (read_ip(addr.split("/")[2]),)

        return await prove_each(peer, dial, timeout=timeout)

    async def open_stream(self, peer: PeerId, protocol: str, *, timeout: float) -> FrameStream:
        """A stream to a connected peer; one round trip."""
        opened = await self.open_bytes(peer, protocol, timeout=timeout)
        return frame_stream(opened, protocol, opened=True)

    async def open_bytes(self, peer: PeerId, protocol: str, *, timeout: float) -> ByteStream:
        """The same, without frames."""
        wire = self._net.wire(self.address.peer_id, peer)
        if wire is None:
            raise PeerUnreachable(f"not connected to {peer}")
        with trio.move_on_after(timeout) as scope:
            await trio.sleep(2 * self._net.latency)
            while wire.silent and wire.death is None:
                await wire.change(0)
        wire.check()
        if scope.cancelled_caught:
            raise PeerSilent(f"{peer} did not answer within {timeout:g} s")
        remote = self._net.hosts[peer]
        if protocol not in remote.router.protocols:
            raise Refused(f"{peer} does not speak {protocol}")
        near, far = stream_pair(wire, self.address.peer_id, peer)
        remote.nursery.start_soon(remote.router.accept, protocol, far)
        return near

    def connected(self) -> tuple[PeerId, ...]:
        """The peers a connection is open to."""
        return self._net.peers_of(self.address.peer_id)

    async def disconnect(self, peer: PeerId) -> None:
        """Close the connection to a peer."""
        await trio.lowlevel.checkpoint()
        self._net.end(self.address.peer_id, peer, PeerClosed("the connection was closed"))
