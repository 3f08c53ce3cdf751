"""A peer that says whatever a test wants said, at each floor: socket, Noise, yamux, stream."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import trio
from libp2p.crypto.ed25519 import create_new_key_pair
from libp2p.crypto.x25519 import create_new_key_pair as new_noise_keys
from libp2p.custom_types import TProtocol
from libp2p.io.exceptions import ConnectionClosedError
from libp2p.io.trio import TrioTCPStream
from libp2p.network.connection.raw_connection import RawConnection
from libp2p.peer.id import ID
from libp2p.protocol_muxer.multiselect_client import MultiselectClient
from libp2p.protocol_muxer.multiselect_communicator import MultiselectCommunicator
from libp2p.security.noise.patterns import PatternXX
from libp2p.security.noise.transport import PROTOCOL_ID as NOISE
from libp2p.security.secure_session import SecureSession
from libp2p.stream_muxer.yamux.yamux import PROTOCOL_ID as YAMUX
from libp2p.utils.varint import encode_delim

from p2p.yamux.wire import DATA, INITIAL_WINDOW, SYN, WINDOW_UPDATE, Body, Header, Parser, pack
from tessella.core.addresses import PeerAddress

MULTISTREAM = b"/multistream/1.0.0"
HELLO = encode_delim(MULTISTREAM)
# An address of this machine that no honest test uses: a stranger's own.
STRANGER = "127.0.0.66"


def port_of(server: PeerAddress) -> tuple[str, int]:
    """Host and port of the first address."""
    _, _, host, _, port = server.addrs[0].split("/")
    return host, int(port)


async def dial(server: PeerAddress, source: str = STRANGER) -> trio.SocketStream:
    """A bare socket to a peer, from another address of this machine."""
    host, port = port_of(server)
    return await trio.open_tcp_stream(host, port, local_address=source)


async def is_closed(stream: trio.SocketStream) -> bool:
    """Read until the other side ends the socket; the caller bounds the wait."""
    with suppress(trio.BrokenResourceError):
        while await stream.receive_some(4096):
            pass
    return True


async def shake_hands(stream: trio.SocketStream, seed: bytes) -> SecureSession:
    """Authenticate as the peer of `seed`: what costs an attacker nothing."""
    keys = create_new_key_pair(seed)
    raw = RawConnection(TrioTCPStream(stream), True)
    await MultiselectClient().select_one_of((NOISE,), MultiselectCommunicator(raw))
    noise = PatternXX(
        ID.from_pubkey(keys.public_key), keys.private_key, new_noise_keys().private_key
    )
    session = await noise.handshake_outbound(raw, None)
    assert isinstance(session, SecureSession)
    return session


class HostilePeer:
    """An authenticated peer with yamux below it, and no manners."""

    def __init__(self, session: SecureSession) -> None:
        self.session = session
        self.refused = 0
        self.acked = 0
        self.ended = trio.Event()
        self._next = 1

    async def send(self, data: bytes) -> None:
        """Any bytes, as the body of Noise messages.

        The victim may end the connection in the middle of them: `ended` says so, and no error does.
        """
        try:
            await self.session.write(data)
        except ConnectionClosedError:
            self.ended.set()

    async def open(self, protocol: str = "") -> int:
        """Open a stream, with room for the answer; its id. Names a protocol if there is one."""
        number, self._next = self._next, self._next + 2
        frames = pack(WINDOW_UPDATE, SYN, number, INITIAL_WINDOW)
        if protocol:
            frames += self.data(number, HELLO + encode_delim(protocol.encode()))
        await self.send(frames)
        return number

    @staticmethod
    def data(number: int, body: bytes) -> bytes:
        """A frame of data."""
        return pack(DATA, 0, number, len(body)) + body

    async def read(self) -> None:
        """Take what comes until the end, and count answers to our SYNs."""
        parser = Parser()
        try:
            while True:
                for part in parser.feed(await self.session.read()):
                    self._count(part)
        except Exception:  # noqa: BLE001 - however it ends, it ended
            self.ended.set()

    def _count(self, part: Header | Body) -> None:
        if isinstance(part, Header):
            self.acked += bool(part.flags & 2)
            self.refused += bool(part.flags & 8)


@asynccontextmanager
async def hostile_peer(
    server: PeerAddress, seed: bytes = b"h" * 32, source: str = STRANGER
) -> AsyncIterator[HostilePeer]:
    """An authenticated hostile peer that reads in the background, until the context is left."""
    async with await dial(server, source) as stream, trio.open_nursery() as nursery:
        session = await shake_hands(stream, seed)
        await MultiselectClient().select_one_of(
            (TProtocol(YAMUX),), MultiselectCommunicator(session)
        )
        peer = HostilePeer(session)
        nursery.start_soon(peer.read)
        yield peer
        nursery.cancel_scope.cancel()
