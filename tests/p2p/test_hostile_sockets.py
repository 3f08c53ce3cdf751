"""Strangers that are not authenticated: floods, slow handshakes, bytes that are not ours."""

from __future__ import annotations

import socket
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

import pytest
import trio
from libp2p.network.swarm import Swarm
from libp2p.utils.varint import encode_delim

from p2p.configuration import WORKER_LIMITS, HostLimits
from p2p.fixes.inbound import gate_of
from p2p.gates import InboundLimits
from p2p.host import Libp2pHost
from tests.p2p.hostile.peer import HELLO, dial, hostile_peer, is_closed, shake_hands
from tests.p2p.hostile.served import (
    SECONDS,
    STRICT,
    descriptors,
    figures,
    rss_mib,
    tasks,
    under_attack,
)

pytestmark = pytest.mark.mesh


def gate(host: Libp2pHost) -> Any:
    swarm = host.below.get_network()
    assert isinstance(swarm, Swarm)
    return gate_of(swarm)


async def flood(stack: AsyncExitStack, host: Libp2pHost, count: int) -> list[trio.SocketStream]:
    sockets = []
    for _ in range(count):
        sockets.append(await stack.enter_async_context(await dial(host.address)))
    return sockets


@pytest.mark.parametrize("limits", [STRICT, WORKER_LIMITS], ids=["stranger", "exempt"])
async def test_500_idle_sockets_do_not_keep_an_honest_peer_out(limits: HostLimits) -> None:
    async with under_attack(limits) as attack, AsyncExitStack() as stack:
        with trio.fail_after(SECONDS):
            await flood(stack, attack.server, 500)
            held = gate(attack.server).pending.total
            first = await attack.newcomer()
        figures(
            "connflood",
            sockets=500,
            held=held,
            refused=gate(attack.server).refused,
            honest_first_connect_s=first,
            honest_p95_ms=attack.p95_ms,
        )
        assert first < 1.0
        if limits is STRICT:
            assert held <= STRICT.inbound.pending_per_address


async def test_handshakes_that_drip_are_given_up_and_hold_nothing() -> None:
    limits = replace(WORKER_LIMITS, upgrade_seconds=1.0)
    async with under_attack(limits) as attack, AsyncExitStack() as stack:
        before = descriptors()
        started = trio.current_time()
        sockets = await flood(stack, attack.server, 200)

        async def drip(stream: trio.SocketStream) -> None:
            for byte in HELLO + encode_delim(b"/noise") + bytes(100):
                try:
                    await stream.send_all(bytes([byte]))
                except trio.BrokenResourceError:
                    return
                await trio.sleep(0.25)

        with trio.fail_after(SECONDS):
            async with trio.open_nursery() as nursery:
                for stream in sockets:
                    nursery.start_soon(drip, stream)
                first = await attack.newcomer()
        seconds = trio.current_time() - started
        await stack.aclose()
        await trio.sleep(0.1)
        figures(
            "slowloris",
            sockets=200,
            all_dropped_s=seconds,
            honest_first_connect_s=first,
            honest_p95_ms=attack.p95_ms,
            fds_delta=descriptors() - before,
        )
        assert gate(attack.server).pending.total == 0
        assert seconds < 4
        assert first < 1.5
        assert descriptors() <= before


GARBAGE = {
    "http": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "tls": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500),
    "not utf-8": HELLO + b"\x03\xff\xfe\n",
    "4 GiB": HELLO + b"\xff\xff\xff\xff\x0f" + bytes(1000),
    "endless": b"\xff" * 5000,
    "empty": HELLO + b"\x00" * 100,
    "noise of zeros": HELLO + encode_delim(b"/noise") + b"\xff\xff" + bytes(65535),
    "noise too short": HELLO + encode_delim(b"/noise") + b"\x00\x01x",
    "noise of length 0": HELLO + encode_delim(b"/noise") + b"\x00\x00" * 1000,
}


async def test_bytes_that_are_no_handshake_cost_their_own_socket() -> None:
    limits = replace(WORKER_LIMITS, upgrade_seconds=1.0)
    async with under_attack(limits) as attack:
        rss, before, running = rss_mib(), descriptors(), tasks()
        with trio.fail_after(SECONDS):
            for _ in range(10):
                async with trio.open_nursery() as nursery:
                    for data in GARBAGE.values():
                        nursery.start_soon(_send_and_see_it_closed, attack.server, data)
        figures(
            "garbage",
            sockets=10 * len(GARBAGE),
            closed=10 * len(GARBAGE),
            rss_delta_mib=rss_mib() - rss,
            fds_delta=descriptors() - before,
            tasks_delta=tasks() - running,
            honest_p95_ms=attack.p95_ms,
        )
        assert descriptors() <= before
        assert rss_mib() - rss < 8


async def _send_and_see_it_closed(server: Libp2pHost, data: bytes) -> None:
    async with await dial(server.address) as stream:
        try:
            await stream.send_all(data)
            await stream.send_eof()
        except (trio.BrokenResourceError, OSError):
            return
        assert await is_closed(stream)


async def test_garbage_after_the_handshake_ends_that_connection_only() -> None:
    async with under_attack(replace(WORKER_LIMITS, upgrade_seconds=1.0)) as attack:
        ends = 0
        for number, data in enumerate((b"\0" * 400, b"\xff" * 65000, b"GET / HTTP/1.1\r\n\r\n")):
            with trio.fail_after(SECONDS):
                async with await dial(attack.server.address) as stream:
                    session = await shake_hands(stream, bytes([100 + number]) * 32)
                    await session.write(data)
                    ends += await is_closed(stream)
                async with hostile_peer(attack.server.address, bytes([110 + number]) * 32) as peer:
                    await peer.send(b"\x07" + data)
                    await peer.ended.wait()
                    ends += 1
                async with await dial(attack.server.address) as stream:
                    await shake_hands(stream, bytes([120 + number]) * 32)
                    await stream.send_all(b"\x00\x20" + data[:32])
                    ends += await is_closed(stream)
        figures("garbage_inside", connections=9, ended=ends, honest_p95_ms=attack.p95_ms)
        assert ends == 9


async def test_300_connections_come_and_go_and_nothing_stays() -> None:
    async with under_attack(WORKER_LIMITS) as attack:

        async def come_and_go(times: int, seed: int) -> None:
            for _ in range(times):
                async with hostile_peer(attack.server.address, bytes([seed]) * 32):
                    pass

        with trio.fail_after(18):
            await come_and_go(5, 60)
            await _settled(attack.server)
            before, running = descriptors(), tasks()
            async with trio.open_nursery() as nursery:
                for seed in range(70, 76):
                    nursery.start_soon(come_and_go, 50, seed)
            await _settled(attack.server)
        figures(
            "connections",
            cycles=300,
            fds_delta=descriptors() - before,
            tasks_delta=tasks() - running,
            honest_p95_ms=attack.p95_ms,
        )
        assert abs(descriptors() - before) <= 2
        assert abs(tasks() - running) <= 4


async def _settled(server: Libp2pHost) -> None:
    while len(server.connected()) > 1:  # noqa: ASYNC110 - the host has no such event
        await trio.sleep(0.01)
    await trio.sleep(0.3)


async def test_one_address_has_so_many_connections_and_others_have_theirs() -> None:
    limits = replace(STRICT, inbound=InboundLimits(exempt=(), per_address=3))
    async with under_attack(limits) as attack, AsyncExitStack() as stack:
        for number in range(3):
            await stack.enter_async_context(
                hostile_peer(attack.server.address, bytes([130 + number]) * 32)
            )
        with trio.fail_after(SECONDS):
            async with await dial(attack.server.address) as fourth:
                assert await is_closed(fourth)
            await attack.newcomer()


async def test_a_half_open_connection_is_watched_by_the_kernel() -> None:
    """Whether it is noticed takes a firewall to see; that the kernel was told is read back."""
    async with under_attack() as attack:
        (conn,) = attack.client.below.get_network().get_connections()
        muxed: Any = conn.muxed_conn
        sock = muxed.secured_conn.conn.read_writer.read_write_closer.stream.stream.socket
        options = {
            "SO_KEEPALIVE": (socket.SOL_SOCKET, 1),
            "TCP_KEEPIDLE": (socket.IPPROTO_TCP, 10),
            "TCP_KEEPINTVL": (socket.IPPROTO_TCP, 5),
            "TCP_KEEPCNT": (socket.IPPROTO_TCP, 3),
            "TCP_USER_TIMEOUT": (socket.IPPROTO_TCP, 20_000),
        }
        found = {
            name: sock.getsockopt(level, getattr(socket, name))
            for name, (level, _) in options.items()
        }
        figures("halfopen", **found)
        assert found == {name: value for name, (_, value) in options.items()}
