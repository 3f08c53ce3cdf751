"""One peer on the real network: `open_host` is where libp2p begins.

    async with open_host(identity, listen=["/ip4/0.0.0.0/tcp/4001"]) as host:
        host.serve("/tessella/status/1", answer, streams=64, per_peer=8)
        await host.connect(peer, timeout=10)

Everything above speaks frames and our errors; everything below is libp2p, configured in
`p2p.configuration` and repaired in `p2p.fixes`.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import cast

import trio
from libp2p.abc import INetStream
from libp2p.custom_types import TProtocol
from libp2p.host.basic_host import BasicHost
from libp2p.io.trio import TrioTCPStream
from libp2p.network.connection.raw_connection import RawConnection
from libp2p.network.connection.swarm_connection import SwarmConn
from libp2p.network.swarm import Swarm
from libp2p.peer.id import ID
from libp2p.security.noise.exceptions import PeerIDMismatchesPubkey
from multiaddr import Multiaddr
from multiaddr.resolvers import DNSResolver

from p2p.background import background_tasks
from p2p.configuration import DEFAULT_LIMITS, HostLimits, safe_host
from p2p.dialling import SharedDials
from p2p.fixes import apply_fixes
from p2p.libp2p_streams import Libp2pStream, negotiate
from p2p.listening import EVERYWHERE, Announcement, check_free
from p2p.peers import BytesHandler, Handler, Proof
from p2p.proving import dial_judged, prove_each
from p2p.router import Router
from p2p.streams import ByteStream, FrameStream, frame_stream
from p2p.supervisor import HostDied
from p2p.translate import ours, translated
from tessella.core.addresses import Cidr, Ip, PeerAddress, read_ip
from tessella.core.errors import BadAddress, LocalError, PeerSilent, PeerUnreachable
from tessella.core.identity import Identity
from tessella.core.ids import PeerId

logger = logging.getLogger(__name__)

# Leaving waits this long for goodbyes; sockets close whether they were said or not.
LEAVE_LIMIT = 0.8


@asynccontextmanager
async def open_host(
    identity: Identity,
    *,
    listen: Sequence[str],
    limits: HostLimits = DEFAULT_LIMITS,
    announce: Sequence[str] = (),
    allow_private: bool | tuple[Cidr, ...] = True,
) -> AsyncIterator[Libp2pHost]:
    """A host that listens on `listen` until the context is left; none means a pure client.

    Others are told `announce` first, then those of this machine's addresses that are listened on
    and public, or allowed; see `p2p.listening.Announcement`.

    Raises PortInUse or BadAddress that names the address, also where nothing is left to tell. If
    libp2p fails underneath, the body is cancelled and HostDied raised: a node is never left half
    alive; `p2p.supervisor` starts it again.
    """
    apply_fixes()
    announcement = Announcement(tuple(announce), allow_private)
    for addr in listen:
        await check_free(addr)
    async with background_tasks() as nursery:
        below = safe_host(identity, limits, announcement)
        host = Libp2pHost(identity, below, nursery, announcement)
        nursery.start_soon(host.run, listen)
        await host.listening.wait()
        try:
            announcement.refuse_unreachable(map(str, below.get_transport_addrs()))
            yield host
        except Exception as exc:
            # What fails on a host because it died may be noticed before its death is.
            if host.died:
                raise HostDied(f"libp2p ended by itself: {_first_line(exc)}") from exc
            raise
        finally:
            with trio.CancelScope(shield=True, deadline=trio.current_time() + LEAVE_LIMIT):
                await host.leave()


class Libp2pHost:
    """A `p2p.peers.Host` over libp2p. Made by `open_host`."""

    def __init__(
        self,
        identity: Identity,
        below: BasicHost,
        nursery: trio.Nursery,
        announcement: Announcement = EVERYWHERE,
    ) -> None:
        self.below = below
        self.router = Router()
        self.listening = trio.Event()
        self._peer_id = identity.peer_id
        self._swarm = cast("Swarm", below.get_network())
        self._dials = SharedDials(nursery)
        self._announcement = announcement
        self._leaving = False

    @property
    def died(self) -> bool:
        """Whether libp2p ended, or is about to, and nobody asked it to."""
        return not self._leaving and self._swarm.get_manager().is_cancelled

    @property
    def address(self) -> PeerAddress:
        """Who we are, and where others can dial us."""
        addrs = self._announcement.of(str(addr) for addr in self.below.get_transport_addrs())
        return PeerAddress(self._peer_id, addrs)

    @property
    def protocols(self) -> tuple[str, ...]:
        """What is served here."""
        return self.router.protocols

    def serve(self, protocol: str, handler: Handler, *, streams: int, per_peer: int) -> None:
        """Answer a protocol."""
        self.router.serve(protocol, handler, streams=streams, per_peer=per_peer)
        self._accept(protocol)

    def serve_bytes(
        self, protocol: str, handler: BytesHandler, *, streams: int, per_peer: int
    ) -> None:
        """Answer a protocol that is not of our frames."""
        self.router.serve_bytes(protocol, handler, streams=streams, per_peer=per_peer)
        self._accept(protocol)

    def _accept(self, protocol: str) -> None:
        async def answer(stream: INetStream) -> None:
            served = Libp2pStream(stream)
            served.serve()
            await self.router.accept(protocol, served)

        self.below.set_stream_handler(TProtocol(protocol), answer)

    async def connect(self, peer: PeerAddress, *, timeout: float) -> None:
        """Be connected to the peer."""
        if peer.peer_id == self._peer_id:
            raise PeerUnreachable(f"{peer.peer_id} is this node itself")
        await trio.lowlevel.checkpoint()
        if self._live(peer.peer_id) is not None:
            return
        with trio.move_on_after(timeout):
            await self._dials.reach(peer, lambda addr: self._dial(peer.peer_id, addr))
            return
        raise PeerUnreachable(f"{peer.peer_id} did not answer within {timeout:g} s")

    async def _dial(self, peer: PeerId, addr: str) -> None:
        try:
            with translated("failed"):
                await self._swarm._dial_addr_single_attempt(Multiaddr(addr), ID.from_base58(peer))
        except LocalError as exc:
            # What the table does not know is a bug elsewhere. Here a stranger's bytes are read by
            # libp2p, and Noise alone raises half a dozen kinds of its own libraries' errors.
            logger.info("dial of %s: %s", addr, exc)
            raise PeerUnreachable("failed: what answers is no peer") from exc

    async def prove(self, peer: PeerAddress, *, timeout: float) -> Proof:
        """Dial the addresses of a peer anew, below libp2p's list of connections."""

        async def dial(addr: str) -> tuple[Ip, ...]:
            return await dial_judged(
                peer,
                addr,
                partial(self._knock, peer.peer_id),
                resolve=_resolved,
                allow_private=self._announcement.allow_private,
            )

        return await prove_each(peer, dial, timeout=timeout)

    async def _knock(self, peer: PeerId, addr: str) -> None:
        """Return when the peer's key answered at a literal. Raises PeerUnreachable."""
        _, _, host, _, port = addr.split("/")
        try:
            async with await trio.open_tcp_stream(host, int(port)) as stream:
                raw = RawConnection(TrioTCPStream(stream), True)
                await self._swarm.upgrader.upgrade_security(raw, True, ID.from_base58(peer))
        except Exception as exc:  # what answers at a claimed address may be anything
            raise PeerUnreachable(_answered(exc)) from exc

    async def open_stream(self, peer: PeerId, protocol: str, *, timeout: float) -> FrameStream:
        """A stream of a protocol to a connected peer; one round trip."""
        opened = await self.open_bytes(peer, protocol, timeout=timeout)
        return frame_stream(opened, protocol, opened=True)

    async def open_bytes(self, peer: PeerId, protocol: str, *, timeout: float) -> ByteStream:
        """The same, without frames."""
        conn = self._live(peer)
        if conn is None:
            raise PeerUnreachable(f"not connected to {peer}")
        try:
            with trio.fail_after(timeout):
                with translated(peer):
                    stream = await conn.new_stream()
                return await negotiate(stream, protocol)
        except trio.TooSlowError:
            raise PeerSilent(f"{peer} did not answer within {timeout:g} s") from None

    def connected(self) -> tuple[PeerId, ...]:
        """The peers a connection is open to."""
        peers = (PeerId(str(peer)) for peer in self._swarm.connections)
        return tuple(peer for peer in peers if self._live(peer) is not None)

    async def disconnect(self, peer: PeerId) -> None:
        """Close the connections to a peer."""
        async with trio.open_nursery() as nursery:
            for conn in self._swarm.get_connections(ID.from_base58(peer)):
                nursery.start_soon(conn.close)

    def _live(self, peer: PeerId) -> SwarmConn | None:
        for conn in self._swarm.get_connections(ID.from_base58(peer)):
            if not (conn.is_closed or conn.muxed_conn.is_closed):
                return cast("SwarmConn", conn)
        return None

    async def run(self, listen: Sequence[str]) -> None:
        """Run libp2p until `leave`. Raises HostDied if it ends by itself."""
        try:
            async with self.below.run([Multiaddr(addr) for addr in listen]):
                missing = set(listen) - set(self._swarm.listeners)
                if missing:
                    raise BadAddress(f"libp2p does not listen on {sorted(missing)}")
                self.listening.set()
                await self._swarm.get_manager().wait_finished()
        except BaseException as exc:
            failed = _without_cancellations(exc)
            if failed is None:
                raise
            refused = _refused(failed)
            if refused is not None:
                raise refused from None
            raise HostDied(f"libp2p failed: {_first_line(failed)}") from exc
        if not self._leaving:
            raise HostDied("libp2p ended by itself")

    async def leave(self) -> None:
        """Close all connections at once, then what is below."""
        self._leaving = True
        async with trio.open_nursery() as nursery:
            for conn in self._swarm.get_connections():
                nursery.start_soon(conn.close)
        await self.below.close()


async def _resolved(addr: str) -> tuple[Ip, ...]:
    """What a name stands for, asked as libp2p asks when it dials. Raises PeerUnreachable."""
    try:
        found = await DNSResolver().resolve(Multiaddr(addr))
    except Exception as exc:  # three libraries on a stranger's name
        raise PeerUnreachable(f"does not resolve: {exc}") from exc
    # A name without addresses comes back as it is.
    parts = (str(each).split("/") for each in found)
    ips = tuple(read_ip(host) for _, family, host, *_ in parts if family in ("ip4", "ip6"))
    if not ips:
        raise PeerUnreachable("does not resolve: the name has no address")
    return ips


def _answered(failure: Exception) -> str:
    cause = failure.__cause__
    if isinstance(cause, PeerIDMismatchesPubkey):
        # Its sentence ends with the id of the key that answered.
        return f"answers as {str(cause).rpartition('=')[2]}"
    return str(ours(failure, "failed"))


def _without_cancellations(raised: BaseException) -> Exception | None:
    """What went wrong, also where it was cancelled at the same moment."""
    if isinstance(raised, BaseExceptionGroup):
        return raised.split(Exception)[0]
    return raised if isinstance(raised, Exception) else None


def _refused(raised: BaseException) -> BadAddress | None:
    if isinstance(raised, BaseExceptionGroup):
        return next(filter(None, map(_refused, raised.exceptions)), None)
    return raised if isinstance(raised, BadAddress) else None


def _first_line(raised: BaseException) -> str:
    while isinstance(raised, BaseExceptionGroup):
        raised = raised.exceptions[0]
    return repr(raised).partition("\n")[0]
