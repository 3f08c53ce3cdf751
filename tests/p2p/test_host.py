"""The real host: how it starts, dials, defends itself and leaves. Loopback sockets only."""

from __future__ import annotations

import os
import socket
import sys
import textwrap
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
from libp2p.abc import INetStream
from libp2p.custom_types import TProtocol
from libp2p.network.connection.swarm_connection import SwarmConn
from libp2p.network.stream.exceptions import StreamEOF
from libp2p.network.swarm import Swarm
from libp2p.peer.id import ID
from libp2p.stream_muxer.exceptions import MuxedStreamReset
from libp2p.tools.anyio_service import TrioManager
from multiaddr import Multiaddr

from p2p.configuration import HostLimits
from p2p.host import Libp2pHost, open_host
from p2p.streams import FrameStream
from p2p.yamux.stream import YamuxStream
from tessella.core.addresses import PeerAddress
from tessella.core.errors import BadAddress, LocalError, PeerUnreachable, PortInUse
from tessella.core.identity import Identity
from tessella.core.ids import PeerId, SessionId
from tessella.core.messages import HOP, Cancel

pytestmark = pytest.mark.mesh

LOOPBACK = "/ip4/127.0.0.1/tcp/0"
SECONDS = 5.0
PING = Cancel(SessionId(bytes(16)), 1)
HANDSHAKE = b"\x13/multistream/1.0.0\n"


def identity(number: int) -> Identity:
    return Identity(bytes([number]) * 32)


@asynccontextmanager
async def two_hosts(
    limits: HostLimits | None = None, listen: str = LOOPBACK
) -> AsyncIterator[tuple[Libp2pHost, Libp2pHost]]:
    """A client and a host that echoes one message a stream, connected."""

    async def echo(stream: FrameStream) -> None:
        await stream.send(await stream.receive())

    async with (
        open_host(identity(1), listen=[]) as client,
        open_host(identity(2), listen=[listen], limits=limits or HostLimits()) as server,
    ):
        server.serve(HOP, echo, streams=16, per_peer=16)
        await client.connect(server.address, timeout=SECONDS)
        yield client, server


async def works(client: Libp2pHost, server: Libp2pHost) -> bool:
    """Whether a message goes there and back over the connection they have."""
    async with await client.open_stream(server.address.peer_id, HOP, timeout=SECONDS) as stream:
        await stream.send(PING)
        return bool(await stream.receive(SECONDS) == PING)


def connection(host: Libp2pHost, peer: PeerId) -> SwarmConn:
    (found,) = host.below.get_network().get_connections(ID.from_base58(peer))
    assert isinstance(found, SwarmConn)
    return found


async def raw_stream(client: Libp2pHost, server: Libp2pHost) -> YamuxStream:
    """A stream on which nothing was negotiated yet."""
    muxed = connection(client, server.address.peer_id).muxed_conn
    stream = await muxed.open_stream()
    assert isinstance(stream, YamuxStream)
    return stream


@pytest.mark.parametrize(
    "hostile",
    [
        b"\x03\xff\xfe\n",
        HANDSHAKE + b"\x03\xff\xfe\n",
        HANDSHAKE + b"\x01\n",
        HANDSHAKE + b"\x00",
        HANDSHAKE + b"\xff" * 11,
        HANDSHAKE + b"\xff\xff\xff\x7f",
        HANDSHAKE + b"\x03abc",
    ],
)
async def test_no_negotiation_bytes_end_the_node_or_the_connection(hostile: bytes) -> None:
    async with two_hosts() as (client, server):
        stream = await raw_stream(client, server)
        await stream.write(hostile)
        await trio.sleep(0.05)
        assert await works(client, server)


async def test_a_stream_that_never_negotiates_is_given_up() -> None:
    async with two_hosts(HostLimits(negotiation_seconds=1.0)) as (client, server):
        stream = await raw_stream(client, server)
        await stream.write(HANDSHAKE[:5])
        with trio.fail_after(SECONDS):
            assert await stream.read() == HANDSHAKE
            with pytest.raises(MuxedStreamReset):
                await stream.read()


@pytest.mark.parametrize("raised", [ValueError("a bug"), StreamEOF("an end")])
async def test_a_bare_libp2p_handler_that_raises_costs_its_stream_only(raised: Exception) -> None:
    async with two_hosts() as (client, server):

        async def broken(stream: INetStream) -> None:
            raise raised

        server.below.set_stream_handler(TProtocol("/broken/1"), broken)
        stream = await raw_stream(client, server)
        await stream.write(HANDSHAKE + b"\x0a/broken/1\n")
        await trio.sleep(0.05)
        assert await works(client, server)


async def test_closed_connections_give_their_slots_back() -> None:
    async with open_host(
        identity(2), listen=[LOOPBACK], limits=HostLimits(connections=3)
    ) as server:
        for number in range(10, 18):
            async with open_host(identity(number), listen=[]) as client:
                await client.connect(server.address, timeout=SECONDS)
            with trio.fail_after(SECONDS):
                while server.connected():  # noqa: ASYNC110 - the host has no such event
                    await trio.sleep(0.005)


async def test_a_connection_that_never_says_who_it_is_holds_nothing_for_long() -> None:
    limits = HostLimits(connections=1, upgrade_seconds=0.2)
    async with open_host(identity(2), listen=[LOOPBACK], limits=limits) as server:
        port = int(server.address.addrs[0].rsplit("/", 1)[1])
        silent = await trio.open_tcp_stream("127.0.0.1", port)
        async with silent:
            assert await silent.receive_some(100)
            await silent.send_all(HANDSHAKE)
            with trio.fail_after(SECONDS):
                while await silent.receive_some(100):
                    pass
        async with open_host(identity(1), listen=[]) as client:
            await client.connect(server.address, timeout=SECONDS)


@pytest.mark.parametrize("security", [b"/plaintext/2.0.0", b"/secio/1.0.0", b"/tls/1.0.0"])
async def test_only_noise_is_spoken(security: bytes) -> None:
    async with open_host(identity(2), listen=[LOOPBACK]) as server:
        port = int(server.address.addrs[0].rsplit("/", 1)[1])
        async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
            await stream.send_all(HANDSHAKE + bytes([len(security) + 1]) + security + b"\n")
            got = b""
            with trio.fail_after(SECONDS):
                while not got.endswith(b"\x03na\n"):
                    got += await stream.receive_some(100)


async def test_the_kernel_watches_every_connection() -> None:
    async with two_hosts() as (client, server):
        for host, peer in ((client, server), (server, client)):
            muxed = connection(host, peer.address.peer_id).muxed_conn
            packets = muxed.secured_conn.conn.read_writer  # type: ignore[attr-defined]
            sock = packets.read_write_closer.stream.stream.socket
            assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 10
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 20_000


async def test_a_peer_over_ipv6_has_an_address() -> None:
    async with two_hosts(listen="/ip6/::1/tcp/0") as (client, server):
        muxed = connection(server, client.address.peer_id).muxed_conn
        address = muxed.get_remote_address()  # type: ignore[attr-defined]
        assert address is not None
        assert address[0] == "::1"


async def test_a_port_that_is_taken_is_refused_by_name() -> None:
    async with open_host(identity(2), listen=[LOOPBACK]) as server:
        (taken,) = server.address.addrs
        with pytest.raises(PortInUse, match=taken):
            async with open_host(identity(1), listen=[taken]):
                pass


@pytest.mark.parametrize(
    "addr", ["/ip4/203.0.113.7/tcp/0", "/dns4/localhost/tcp/0", "/ip4/127.0.0.1/udp/1"]
)
async def test_an_address_that_is_not_ours_is_refused_by_name(addr: str) -> None:
    with pytest.raises(BadAddress, match=addr):
        async with open_host(identity(1), listen=[addr]):
            pass


async def test_wildcards_are_advertised_as_real_addresses() -> None:
    async with open_host(identity(1), listen=["/ip4/0.0.0.0/tcp/0"]) as host:
        assert host.address.addrs
        for addr in host.address.addrs:
            assert "/0.0.0.0/" not in addr
            assert not addr.endswith("/tcp/0")
        advertised = {str(addr) for addr in host.below.get_addrs()}
        assert advertised == set(host.address.full())


async def test_what_the_operator_announces_is_told_first() -> None:
    public = "/dns4/node.example.org/tcp/4001"
    async with open_host(identity(1), listen=[LOOPBACK], announce=[public]) as host:
        assert host.address.addrs[0] == public
        assert len(host.address.addrs) == 2
        assert {str(addr) for addr in host.below.get_addrs()} == set(host.address.full())


async def test_a_node_that_nobody_could_dial_does_not_start() -> None:
    with pytest.raises(BadAddress, match=r"no peer could dial this node: 127\.0\.0\.1"):
        async with open_host(identity(1), listen=[LOOPBACK], allow_private=False):
            pass
    announce = ["/dns4/node.example.org/tcp/4001"]
    async with open_host(
        identity(1), listen=[LOOPBACK], announce=announce, allow_private=False
    ) as host:
        assert list(host.address.addrs) == announce


@pytest.mark.parametrize("announce", ["", "/ip4/0.0.0.0/tcp/4001", "/ip4/169.254.0.1/tcp/1"])
async def test_an_announcement_that_leads_nowhere_is_refused_by_name(announce: str) -> None:
    with pytest.raises(BadAddress, match=announce or "not a multiaddr"):
        async with open_host(identity(1), listen=[LOOPBACK], announce=[announce]):
            pass


async def test_every_interface_is_told_and_any_of_them_will_do() -> None:
    listen = [f"/ip4/127.0.0.{n}/tcp/0" for n in (1, 2, 3)]
    async with open_host(identity(1), listen=listen) as server:
        addrs = server.address.addrs
        hosts = sorted(addr.split("/")[2] for addr in addrs)
        assert hosts == ["127.0.0.1", "127.0.0.2", "127.0.0.3"]
        dead = ["/ip4/127.0.0.4/tcp/1", "/ip4/127.0.0.5/tcp/1"]
        for number, addr in enumerate(addrs):
            async with open_host(identity(10 + number), listen=[]) as client:
                started = trio.current_time()
                target = PeerAddress(server.address.peer_id, (*dead, addr))
                await client.connect(target, timeout=SECONDS)
                assert trio.current_time() - started < 1


async def test_a_client_that_does_not_listen_has_no_address() -> None:
    async with open_host(identity(1), listen=[]) as host:
        assert host.address == PeerAddress(identity(1).peer_id, ())


async def test_knowing_many_peers_does_not_cost_the_own_key() -> None:
    async with two_hosts() as (client, server):
        store = client.below.get_peerstore()
        for number in range(1100):
            peer = ID(b"\0$\x08\x01\x12 " + number.to_bytes(32, "big"))
            store.add_addrs(peer, [Multiaddr("/ip4/127.0.0.1/tcp/1")], 1000)
        assert client.below.get_private_key().to_bytes() == identity(1).seed
        assert await works(client, server)


async def test_a_dial_on_this_machine_is_quick() -> None:
    async with two_hosts() as (_, server), open_host(identity(3), listen=[]) as client:
        started = trio.current_time()
        await client.connect(server.address, timeout=SECONDS)
        assert trio.current_time() - started < 0.2


async def test_nobody_is_dialled_unasked() -> None:
    async with two_hosts() as (client, server), open_host(identity(3), listen=[LOOPBACK]) as third:
        store = client.below.get_peerstore()
        known = ID.from_base58(third.address.peer_id)
        store.add_addrs(known, [Multiaddr(addr) for addr in third.address.addrs], 1000)
        swarm = client.below.get_network()
        assert isinstance(swarm, Swarm)
        await swarm.auto_connector.maybe_connect()
        swarm._schedule_auto_connect()
        await trio.sleep(0.2)
        assert client.connected() == (server.address.peer_id,)
        assert third.connected() == ()


async def test_a_dead_first_address_does_not_hide_the_second() -> None:
    async with two_hosts() as (_, server), open_host(identity(3), listen=[]) as client:
        addrs = ("/ip4/127.0.0.1/tcp/1", *server.address.addrs)
        started = trio.current_time()
        await client.connect(PeerAddress(server.address.peer_id, addrs), timeout=SECONDS)
        assert trio.current_time() - started < 1
        assert await works(client, server)


async def test_a_failed_dial_says_why_and_may_be_tried_again_at_once() -> None:
    async with two_hosts() as (_, server), open_host(identity(3), listen=[]) as client:
        dead = PeerAddress(server.address.peer_id, ("/ip4/127.0.0.1/tcp/1",))
        with pytest.raises(PeerUnreachable, match=r"/tcp/1 .*refused"):
            await client.connect(dead, timeout=SECONDS)
        await client.connect(server.address, timeout=SECONDS)
        assert await works(client, server)


async def test_equal_wishes_share_one_dial() -> None:
    async with two_hosts() as (_, server), open_host(identity(3), listen=[]) as client:
        async with trio.open_nursery() as nursery:
            for _ in range(8):
                nursery.start_soon(lambda: client.connect(server.address, timeout=SECONDS))
        peer = ID.from_base58(client.address.peer_id)
        assert len(server.below.get_network().get_connections(peer)) == 1


async def test_two_nodes_that_dial_each_other_stay_connected() -> None:
    async with (
        open_host(identity(1), listen=[LOOPBACK]) as a,
        open_host(identity(2), listen=[LOOPBACK]) as b,
    ):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: a.connect(b.address, timeout=SECONDS))
            nursery.start_soon(lambda: b.connect(a.address, timeout=SECONDS))
        await trio.sleep(0.3)
        assert a.connected() == (b.address.peer_id,)
        assert b.connected() == (a.address.peer_id,)


async def test_a_host_whose_libp2p_died_ends_instead_of_living_on() -> None:
    async def fail() -> None:
        raise RuntimeError("a task of libp2p")

    async def live() -> None:
        async with open_host(identity(1), listen=[LOOPBACK]) as host:
            manager = host.below.get_network().get_manager()
            assert isinstance(manager, TrioManager)
            manager.run_task(fail)
            await trio.sleep_forever()

    with trio.fail_after(SECONDS), pytest.raises(LocalError, match="libp2p"):
        await live()


async def test_leaving_is_quick_and_leaves_nothing() -> None:
    async with open_host(identity(2), listen=[LOOPBACK]) as warm:
        assert warm.address.addrs
    tasks = trio.lowlevel.current_statistics().tasks_living
    files = len(os.listdir("/proc/self/fd"))
    async with trio.open_nursery() as nursery, open_host(identity(2), listen=[LOOPBACK]) as server:
        stop = trio.Event()

        async def be_client(number: int) -> None:
            async with open_host(identity(number), listen=[]) as client:
                await client.connect(server.address, timeout=SECONDS)
                await stop.wait()

        for number in range(10, 15):
            nursery.start_soon(be_client, number)
        with trio.fail_after(SECONDS):
            while len(server.connected()) < 5:  # noqa: ASYNC110 - the host has no such event
                await trio.sleep(0.01)
        started = time.monotonic()
        await server.leave()
        assert time.monotonic() - started < 1
        stop.set()
    await trio.sleep(0.05)
    assert trio.lowlevel.current_statistics().tasks_living <= tasks
    assert len(os.listdir("/proc/self/fd")) <= files


PROGRAM = """
    import trio
    from p2p.host import open_host
    from tessella.core.identity import Identity
    from tessella.core.addresses import PeerAddress
    from tessella.core.errors import PeerUnreachable

    async def main():
        async with open_host(Identity(b"s" * 32), listen=["/ip4/127.0.0.1/tcp/0"]) as server:
            async with open_host(Identity(b"c" * 32), listen=[]) as client:
                await client.connect(server.address, timeout=5)
                await client.disconnect(server.address.peer_id)
                await client.connect(server.address, timeout=5)
                dead = PeerAddress(client.address.peer_id, ("/ip4/127.0.0.1/tcp/1",))
                try:
                    await server.connect(dead, timeout=5)
                except PeerUnreachable:
                    pass
                port = int(server.address.addrs[0].rsplit("/", 1)[1])
                async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
                    await stream.send_all(b"GET / HTTP/1.1\\r\\n\\r\\n")
                    await trio.sleep(0.1)

    trio.run(main)
"""


async def test_nothing_is_printed() -> None:
    done = await trio.run_process(
        [sys.executable, "-c", textwrap.dedent(PROGRAM)],
        capture_stdout=True,
        capture_stderr=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
