"""Defects of libp2p as it comes, each shown once: `python -m tests.p2p.stock.defects NAME`.

Run in a process of its own, because our fixes change libp2p for a whole process. Each function
returns what it saw if the defect is there, and None if it is not. Ports are free ones of the
loopback interface.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import struct
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

import trio
from libp2p import new_host
from libp2p.crypto.ed25519 import create_new_key_pair
from libp2p.crypto.x25519 import create_new_key_pair as new_noise_keys
from libp2p.custom_types import TProtocol
from libp2p.host.basic_host import BasicHost
from libp2p.io.utils import read_exactly
from libp2p.network.config import ConnectionConfig
from libp2p.network.stream.exceptions import StreamEOF, StreamError
from libp2p.peer.id import ID
from libp2p.peer.peerinfo import PeerInfo
from libp2p.protocol_muxer.multiselect_communicator import MultiselectCommunicator
from libp2p.security.insecure.transport import PLAINTEXT_PROTOCOL_ID, InsecureTransport
from libp2p.security.noise.io import MAX_PLAINTEXT_LENGTH
from libp2p.security.noise.transport import PROTOCOL_ID as NOISE
from libp2p.security.noise.transport import Transport as Noise
from libp2p.stream_muxer.mplex.mplex import Mplex
from libp2p.stream_muxer.yamux import yamux
from multiaddr import Multiaddr

LISTEN = [Multiaddr("/ip4/127.0.0.1/tcp/0")]
HELLO = b"\x13/multistream/1.0.0\n"
PROTOCOL = TProtocol("/h/1")
MIB = 1024 * 1024
# After a connect: identify has to be over.
SETTLE = 0.5

Defect = Callable[[], Awaitable[str | None]]
DEFECTS: dict[str, Defect] = {}


def defect(show: Defect) -> Defect:
    """Make a function one of DEFECTS, by its name."""
    DEFECTS[show.__name__] = show
    return show


def host(number: int, *, like_ours: bool = True, **settings: Any) -> BasicHost:
    """Noise only, and nothing dialled by itself; all else as it comes."""
    keys = create_new_key_pair(bytes([number]) * 32)
    config = {"min_connections": 0, "low_watermark": 0, "max_connections_per_peer": 1, **settings}
    noise = Noise(keys, noise_privkey=new_noise_keys().private_key)
    made = new_host(
        key_pair=keys,
        sec_opt={NOISE: noise} if like_ours else None,
        listen_addrs=LISTEN,
        connection_config=ConnectionConfig(**config),
    )
    assert isinstance(made, BasicHost)
    return made


def info(of: BasicHost) -> PeerInfo:
    return PeerInfo(of.get_id(), of.get_addrs())


def swarm(of: BasicHost) -> Any:
    return of.get_network()


@dataclass
class Two:
    """Two hosts, connected, and a stream between them."""

    a: BasicHost
    b: BasicHost
    mine: Any
    theirs: Any

    async def open(self) -> Any:
        """One more stream from a to b."""
        return await self.a.new_stream(self.b.get_id(), [PROTOCOL])


@asynccontextmanager
async def two() -> AsyncIterator[Two]:
    a, b = host(2), host(1)
    send, arrived = trio.open_memory_channel[Any](100)

    async def hold(stream: Any) -> None:
        await send.send(stream)
        await trio.sleep_forever()

    b.set_stream_handler(PROTOCOL, hold)
    async with b.run(LISTEN), a.run(LISTEN):
        await a.connect(info(b))
        await trio.sleep(SETTLE)
        mine = await a.new_stream(b.get_id(), [PROTOCOL])
        yield Two(a, b, mine, await arrived.receive())


async def died(handler: Callable[[Any], Awaitable[None]] | None, said: bytes) -> str | None:
    """How a node ended that was sent some bytes on a stream."""
    a, b = host(2), host(1)
    if handler is not None:
        b.set_stream_handler(PROTOCOL, handler)
    try:
        async with b.run(LISTEN), a.run(LISTEN):
            await a.connect(info(b))
            await trio.sleep(SETTLE)
            stream = await swarm(a).new_stream(b.get_id())
            await stream.write(said)
            await trio.sleep(SETTLE)
            if swarm(b).get_manager().is_cancelled:
                raise RuntimeError("the service of the host ended")
    except BaseException as exc:  # noqa: BLE001 - that it ends at all is the defect
        return f"the node ended: {leaf(exc)!r:.60}"
    return None


def leaf(exc: BaseException) -> BaseException:
    return leaf(exc.exceptions[0]) if isinstance(exc, BaseExceptionGroup) else exc


@defect
async def remote_kill() -> str | None:
    return await died(None, b"\x03\xff\xfe\n")


@defect
async def handler_kills_node() -> str | None:
    async def broken(stream: Any) -> None:
        raise ValueError("a bug of the application")

    return await died(broken, HELLO + b"\x05/h/1\n")


@defect
async def zombie_connection() -> str | None:
    a, b = host(2), host(1)

    async def handler(stream: Any) -> None:
        await stream.read(10)

    b.set_stream_handler(PROTOCOL, handler)
    async with b.run(LISTEN), a.run(LISTEN):
        await a.connect(info(b))
        await trio.sleep(SETTLE)
        await (await a.new_stream(b.get_id(), [PROTOCOL])).close()
        await trio.sleep(SETTLE)
        listed = len(swarm(a).get_connections())
        with trio.move_on_after(3) as scope:
            await a.new_stream(b.get_id(), [PROTOCOL])
        return (
            f"{listed} connection listed, and no stream opens" if scope.cancelled_caught else None
        )


@defect
async def plaintext() -> str | None:
    b = host(1, like_ours=False)
    keys = create_new_key_pair(b"\x02" * 32)
    insecure = {PLAINTEXT_PROTOCOL_ID: InsecureTransport(keys)}
    a = new_host(key_pair=keys, sec_opt=insecure, listen_addrs=LISTEN)
    async with b.run(LISTEN), a.run(LISTEN):
        await a.connect(info(b))
        return f"{len(a.get_network().get_connections())} connection in the clear"


@defect
async def inbound_slots() -> str | None:
    b = host(1, max_connections=3, high_watermark=3)
    async with b.run(LISTEN):
        for number in range(5):
            a = host(10 + number)
            async with a.run(LISTEN):
                try:
                    with trio.fail_after(5):
                        await a.connect(info(b))
                except Exception:  # noqa: BLE001 - a refusal has many names
                    return f"{number} connections came and went; the next is refused"
                await a.disconnect(b.get_id())
                await trio.sleep(0.3)
    return None


@defect
async def own_key_evicted() -> str | None:
    await trio.lowlevel.checkpoint()
    a = host(1)
    for number in range(1005):
        peer = ID(b"\0$\x08\x01\x12 " + number.to_bytes(32, "big"))
        a.get_peerstore().add_addrs(peer, [Multiaddr("/ip4/1.2.3.4/tcp/1")], 3600)
    try:
        a.get_private_key()
    except Exception as exc:  # noqa: BLE001 - which error does not matter
        return f"{type(exc).__name__} for the own key, with 1005 peers known"
    return None


class Asked:
    """A stream that claims 3 GiB and notes how much is asked for."""

    def __init__(self) -> None:
        self.data = b"\x80\x80\x80\x80\x0c"
        self.asked = 0

    async def read(self, n: int = 0) -> bytes:
        self.asked = max(self.asked, n)
        if n > MIB:
            raise EOFError
        taken, self.data = self.data[:n], self.data[n:]
        return taken


@defect
async def unbounded_negotiation() -> str | None:
    stream: Any = Asked()
    with suppress(Exception):  # whatever follows the allocation
        await MultiselectCommunicator(stream).read()
    return f"{stream.asked // MIB} MiB wanted before the handshake" if stream.asked > MIB else None


@defect
async def window_overrun() -> str | None:
    async with two() as both:
        connection = both.mine.muxed_stream.muxed_conn
        body = bytes(65_000)
        frame = struct.pack("!BBHII", 0, 0, 0, both.mine.muxed_stream.stream_id, 65_000) + body
        for _ in range(400):
            await connection.secured_conn.write(frame)
        await trio.sleep(SETTLE)
        held = len(await both.theirs.read())
        return f"{held / MIB:.0f} MiB kept in a window of 0.25" if held > 20 * MIB else None


@defect
async def syn_flood() -> str | None:
    async with two() as both:
        connection: Any = both.mine.muxed_stream.muxed_conn
        theirs: Any = both.theirs.muxed_stream.muxed_conn
        for at in range(0, 3000, 500):
            syns = (struct.pack("!BBHII", 0, 1, 1, 1001 + 2 * n, 0) for n in range(at, at + 500))
            await connection.secured_conn.write(b"".join(syns))
        # A stream a few milliseconds: it makes a task and a negotiation for each.
        await trio.sleep(4)
        held = len(theirs.streams)
        return f"{held} streams held of 3000 raw SYNs" if held > 256 else None


@defect
async def idle_sockets() -> str | None:
    a, b = host(2), host(1)
    async with b.run(LISTEN), a.run(LISTEN), AsyncExitStack() as stack:
        port = int(str(b.get_addrs()[0]).split("/")[4])
        for _ in range(500):
            await stack.enter_async_context(await trio.open_tcp_stream("127.0.0.1", port))
        started, refusals = trio.current_time(), 0
        while not swarm(a).get_connections():
            swarm(a).unblock_peer(b.get_id())
            try:
                with trio.fail_after(15):
                    await a.connect(info(b))
            except Exception:  # noqa: BLE001 - a refusal has many names
                refusals += 1
        seconds = trio.current_time() - started
        return f"{seconds:.1f} s and {refusals} refusals to connect" if seconds > 1 else None


@defect
async def cancelled_write() -> str | None:
    # It takes a cancellation while a frame is half written, and when that is depends on the
    # machine: the write is cut at many moments, each on a connection of its own.
    for milliseconds in (1, 2, 3, 5, 8, 12, 18, 25, 35, 50, 70, 100):
        shown = await _write_cancelled_after(milliseconds / 1000)
        if shown is not None:
            return shown
    return None


async def _write_cancelled_after(seconds: float) -> str | None:
    async with two() as both, trio.open_nursery() as nursery:

        async def slow() -> None:
            try:
                while True:
                    await both.theirs.read(1000)
                    await trio.sleep(0.001)
            except StreamError:
                pass

        nursery.start_soon(slow)
        with trio.move_on_after(seconds):
            await both.mine.write(bytes(3 * MIB))
        await trio.sleep(SETTLE)
        listed = len(swarm(both.a).get_connections())
        with trio.move_on_after(3) as scope:
            try:
                await both.open()
            except Exception as exc:  # noqa: BLE001 - which error does not matter
                return f"{listed} connection listed; the next stream: {type(exc).__name__}"
        nursery.cancel_scope.cancel()
        return f"{listed} connection listed, no stream opens" if scope.cancelled_caught else None


@defect
async def backpressure() -> str | None:
    async with two() as both:
        started = trio.current_time()
        try:
            with trio.move_on_after(9):
                await both.mine.write(bytes(24 * MIB))
        except StreamError as exc:
            return (
                f"{type(exc).__name__} after {trio.current_time() - started:.1f} s of a full window"
            )
    return None


async def after_reset(both: Two, reader: Any) -> object:
    """What a reader sees when our end is reset; None if it sees nothing."""
    seen: list[object] = []

    async def read() -> None:
        try:
            seen.append(await reader.read(10))
        except Exception as exc:  # noqa: BLE001 - what it is, is the question
            seen.append(exc)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(read)
        await trio.sleep(0.1)
        await both.mine.reset()
        await trio.sleep(1)
        nursery.cancel_scope.cancel()
    return seen[0] if seen else None


@defect
async def local_reset() -> str | None:
    async with two() as both:
        seen = await after_reset(both, both.mine)
        return "the local reader still waits after 1 s" if seen is None else None


@defect
async def remote_reset() -> str | None:
    async with two() as both:
        seen = await after_reset(both, both.theirs)
        return f"a reset is read as {seen!r:.40}" if isinstance(seen, StreamEOF | bytes) else None


@defect
async def read_exactly_gives_up() -> str | None:
    async with two() as both, trio.open_nursery() as nursery:
        nursery.start_soon(both.mine.write, bytes(12 * MIB))
        try:
            await read_exactly(both.theirs, 12 * MIB)
        except Exception as exc:  # noqa: BLE001 - which error does not matter
            nursery.cancel_scope.cancel()
            return f"{type(exc).__name__} within 12 MiB of a healthy stream"
    return None


@defect
async def frames_a_read() -> str | None:
    async with two() as both:
        connection: Any = both.theirs.muxed_stream.muxed_conn
        stock, written = connection.secured_conn.write, []

        async def count(data: bytes) -> None:
            written.append(len(data))
            await stock(data)

        connection.secured_conn.write = count
        for _ in range(20):
            await both.mine.write(bytes(100))
            await both.theirs.read(100)
        return f"{len(written)} frames of credit for 20 reads of 100 bytes" if written else None


@defect
async def full_frame_is_two_messages() -> str | None:
    async with two() as both:
        session: Any = both.mine.muxed_stream.muxed_conn.secured_conn
        stock, written = session.write, []

        async def count(data: bytes) -> None:
            written.append(len(data))
            await stock(data)

        session.write = count
        await both.mine.write(bytes(200_000))
        split = [size for size in written if size > MAX_PLAINTEXT_LENGTH]
        return (
            f"a frame of {split[0]} bytes, messages carry {MAX_PLAINTEXT_LENGTH}" if split else None
        )


@defect
async def streams_never_forgotten() -> str | None:
    async with two() as both:
        connection: Any = both.mine.muxed_stream.muxed_conn
        before = len(connection.streams)
        for _ in range(10):
            await (await both.open()).close()
        await trio.sleep(SETTLE)
        kept = len(connection.streams) - before
        return f"{kept} of 10 closed streams are kept" if kept > 0 else None


@defect
async def no_keepalive() -> str | None:
    async with two() as both:
        packets = both.mine.muxed_stream.muxed_conn.secured_conn.conn.read_writer
        sock = packets.read_write_closer.stream.stream.socket
        kept = sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        waits = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)
        return f"SO_KEEPALIVE={kept} TCP_USER_TIMEOUT={waits}" if not (kept or waits) else None


@defect
async def muxer_choice_ignored() -> str | None:
    class Own(yamux.Yamux):
        """Another muxer of the same protocol."""

    keys = create_new_key_pair(b"\x02" * 32)
    noise = {NOISE: Noise(keys, noise_privkey=new_noise_keys().private_key)}
    muxers: Any = {TProtocol(yamux.PROTOCOL_ID): Own}
    a, b = new_host(key_pair=keys, sec_opt=noise, muxer_opt=muxers, listen_addrs=LISTEN), host(1)
    async with b.run(LISTEN), a.run(LISTEN):
        await a.connect(info(b))
        used = type(a.get_network().get_connections()[0].muxed_conn)
        return f"muxer_opt=Own, and {used.__name__} is used" if used not in (Own, Mplex) else None


@defect
async def dead_first_address() -> str | None:
    a, b = host(2), host(1)
    async with b.run(LISTEN), a.run(LISTEN):
        addrs = [Multiaddr("/ip4/127.0.0.2/tcp/9"), *b.get_addrs()]
        try:
            with trio.fail_after(20):
                await a.connect(PeerInfo(b.get_id(), addrs))
        except Exception as exc:  # noqa: BLE001 - which error does not matter
            blocked = swarm(a)._negative_peer_cache.is_blocked(str(b.get_id()))
            return f"{type(exc).__name__} with a good second address; blocked for 60 s: {blocked}"
    return None


@defect
async def slow_dial() -> str | None:
    a, b = host(2, max_connections_per_peer=3), host(1)
    async with b.run(LISTEN), a.run(LISTEN):
        started = trio.current_time()
        await a.connect(info(b))
        ms = 1000 * (trio.current_time() - started)
        return f"{ms:.0f} ms to connect on loopback" if ms > 240 else None


@defect
async def wildcard_advertised() -> str | None:
    a = host(1)
    async with a.run([Multiaddr("/ip4/0.0.0.0/tcp/0")]):
        told = str(a.get_addrs()[0])
        return f"advertises {told.split('/tcp')[0]}" if "0.0.0.0" in told else None


@defect
async def ipv6_has_no_address() -> str | None:
    listen = [Multiaddr("/ip6/::1/tcp/0")]
    a, b = host(2), host(1)
    async with b.run(listen), a.run(listen):
        await a.connect(info(b))
        await trio.sleep(0.2)
        muxed: Any = swarm(b).get_connections()[0].muxed_conn
        found = muxed.secured_conn.get_remote_address()
        return "the remote address of an IPv6 peer is None" if found is None else None


@defect
async def port_taken_twice() -> str | None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    listen = [Multiaddr(f"/ip4/127.0.0.1/tcp/{port}")]
    a, b = host(1), host(2)
    async with a.run(listen), b.run(listen):
        both = str(a.get_addrs()[0]).split("/p2p")[0] == str(b.get_addrs()[0]).split("/p2p")[0]
        return "two nodes listen on one port without an error" if both else None


@defect
async def dials_by_itself() -> str | None:
    await trio.lowlevel.checkpoint()
    config = ConnectionConfig()
    wanted = (config.low_watermark + config.high_watermark) // 2
    return f"dials known peers until {wanted} connections are open" if wanted > 0 else None


@defect
async def slow_leaving() -> str | None:
    b = host(1)
    async with b.run(LISTEN), trio.open_nursery() as nursery:
        done = trio.Event()

        async def client(number: int) -> None:
            async with (a := host(10 + number)).run(LISTEN):
                await a.connect(info(b))
                await done.wait()

        for number in range(5):
            nursery.start_soon(client, number)
        while len(swarm(b).get_connections()) < 5:  # noqa: ASYNC110 - it has no such event
            await trio.sleep(0.05)
        started = trio.current_time()
        await swarm(b).close()
        seconds = trio.current_time() - started
        done.set()
        return f"{seconds:.1f} s to close 5 connections" if seconds > 0.45 else None


async def show(name: str) -> None:
    with trio.move_on_after(40) as scope:
        print(json.dumps({"shown": await DEFECTS[name]()}), flush=True)  # noqa: T201
    if scope.cancelled_caught:
        print(json.dumps({"shown": None, "late": True}), flush=True)  # noqa: T201
    # A stock host that is broken may take minutes to leave.
    os._exit(0)


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    trio.run(show, sys.argv[1])
