"""Peers that are authenticated and hostile: streams, windows, negotiation, frames."""

from __future__ import annotations

import struct

import msgpack
import pytest
import trio
from libp2p.network.connection.swarm_connection import SwarmConn
from libp2p.peer.id import ID
from libp2p.utils.varint import encode_delim

from p2p.configuration import WORKER_LIMITS
from p2p.host import Libp2pHost
from p2p.router import MAX_PER_PEER
from p2p.yamux.connection import MAX_UNSERVED, YamuxConnection
from p2p.yamux.wire import INITIAL_WINDOW, MAX_BODY, SYN, WINDOW_UPDATE, pack
from tessella.core.identity import Identity
from tests.p2p.hostile.peer import HELLO, HostilePeer, hostile_peer
from tests.p2p.hostile.served import (
    IDLE,
    PROTOCOLS,
    SECONDS,
    Attack,
    descriptors,
    figures,
    rss_mib,
    tasks,
    under_attack,
)

pytestmark = pytest.mark.mesh

HOSTILE = Identity(b"h" * 32).peer_id
MIB = 1024 * 1024


async def their_connection(server: Libp2pHost) -> YamuxConnection:
    """The server's end of the hostile peer's connection, once it is there."""
    swarm, peer = server.below.get_network(), ID.from_base58(HOSTILE)
    with trio.fail_after(SECONDS):
        while not swarm.get_connections(peer):  # noqa: ASYNC110 - the swarm has no such event
            await trio.sleep(0.01)
    (conn,) = swarm.get_connections(peer)
    assert isinstance(conn, SwarmConn)
    assert isinstance(conn.muxed_conn, YamuxConnection)
    return conn.muxed_conn


async def test_10_000_raw_syns_open_a_few_streams_and_cost_nothing() -> None:
    async with under_attack(WORKER_LIMITS) as attack, hostile_peer(attack.server.address) as peer:
        muxed = await their_connection(attack.server)
        rss, running = rss_mib(), tasks()
        most = 0
        with trio.fail_after(SECONDS):
            for at in range(0, 10_000, 500):
                frames = (
                    pack(WINDOW_UPDATE, SYN, 1 + 2 * number, 0) for number in range(at, at + 500)
                )
                await peer.send(b"".join(frames))
                await trio.sleep(0.01)
                most = max(most, sum(number % 2 for number in muxed.streams))
            while peer.acked + peer.refused < 10_000:  # noqa: ASYNC110 - it counts
                await trio.sleep(0.01)
        figures(
            "synflood",
            sent=10_000,
            accepted=peer.acked,
            refused=peer.refused,
            held_at_most=most,
            rss_delta_mib=rss_mib() - rss,
            tasks_delta=tasks() - running,
            honest_p95_ms=attack.p95_ms,
        )
        assert peer.acked <= MAX_UNSERVED
        assert most <= MAX_UNSERVED
        assert rss_mib() - rss < 8
        assert tasks() - running < 3 * MAX_UNSERVED


async def test_a_peer_that_makes_us_owe_and_reads_nothing_loses_its_connection() -> None:
    async with under_attack(WORKER_LIMITS) as attack, hostile_peer(attack.server.address) as peer:
        muxed = await their_connection(attack.server)
        rss = rss_mib()
        ping = pack(2, SYN, 0, 7)
        with trio.fail_after(SECONDS):
            while not peer.ended.is_set() and not muxed.is_closed:
                await peer.send(ping * 5000)
        figures("pingflood", rss_delta_mib=rss_mib() - rss, honest_p95_ms=attack.p95_ms)
        assert rss_mib() - rss < 8


async def test_200_mib_into_a_window_of_a_quarter_end_the_connection() -> None:
    async with under_attack(WORKER_LIMITS) as attack, hostile_peer(attack.server.address) as peer:
        muxed = await their_connection(attack.server)
        rss, sent, most = rss_mib(), 0, 0.0
        number = await peer.open(IDLE)
        frame = peer.data(number, bytes(MAX_BODY))
        with trio.fail_after(SECONDS):
            while sent < 200 * MIB and not peer.ended.is_set():
                await peer.send(frame)
                sent += MAX_BODY
                most = max(most, rss_mib() - rss)
            assert sent < 200 * MIB
            await peer.ended.wait()
        figures(
            "overrun",
            sent_mib=sent / MIB,
            rss_delta_mib=most,
            closed=int(muxed.is_closed),
            honest_p95_ms=attack.p95_ms,
        )
        assert muxed.is_closed
        assert most < 40


async def test_a_full_window_on_every_stream_is_all_that_one_peer_can_leave_here() -> None:
    async with under_attack(WORKER_LIMITS) as attack, hostile_peer(attack.server.address) as peer:
        rss = rss_mib()
        with trio.fail_after(SECONDS):
            for _ in range(MAX_PER_PEER + 40):
                number = await peer.open(IDLE)
                for _ in range(3):
                    await peer.send(peer.data(number, bytes(MAX_BODY)))
                    await trio.sleep(0.01)
            await trio.sleep(0.2)
        limit = MAX_PER_PEER * INITIAL_WINDOW / MIB
        figures("windows", rss_delta_mib=rss_mib() - rss, limit_mib=limit)
        assert not peer.ended.is_set()
        assert rss_mib() - rss < limit + 8


NEGOTIATIONS = {
    "not utf-8 at once": b"\x03\xff\xfe\n",
    "not utf-8": HELLO + b"\x03\xff\xfe\n",
    "4 GiB": HELLO + b"\xff\xff\xff\xff\x0f" + bytes(1000),
    "endless": HELLO + b"\xff" * 1000,
    "empty": HELLO + b"\x00" * 100,
    "no newline": HELLO + b"\x03abc",
    "unknown": HELLO + encode_delim(b"/nobody/1"),
    "list": HELLO + encode_delim(b"ls") * 50,
    "surrogate": HELLO + b"\x04\xed\xa0\x80\n",
}


async def test_no_negotiation_ends_the_connection_or_the_node() -> None:
    async with under_attack(WORKER_LIMITS) as attack, hostile_peer(attack.server.address) as peer:
        rss, running = rss_mib(), tasks()
        with trio.fail_after(SECONDS):
            for _ in range(20):
                for data in NEGOTIATIONS.values():
                    number = await peer.open()
                    await peer.send(peer.data(number, data))
            await trio.sleep(0.2)
        figures(
            "negotiation",
            streams=20 * len(NEGOTIATIONS),
            rss_delta_mib=rss_mib() - rss,
            tasks_delta=tasks() - running,
            honest_p95_ms=attack.p95_ms,
        )
        assert not peer.ended.is_set()
        assert rss_mib() - rss < 8


def framed(body: bytes) -> bytes:
    return struct.pack("!I", len(body)) + body


BOMBS = {
    "length of 4 GiB": b"\xff\xff\xff\xff" + bytes(1000),
    "length over the cap": struct.pack("!I", 16 * MIB + 64 * 1024 + 1),
    "60,000 empty arrays": framed(b"\xdc\xea\x60" + b"\x90" * 60_000),
    "an array of 2^32": framed(b"\xdd\xff\xff\xff\xff" + b"\xc0" * 100),
    "a map of 2^32": framed(b"\xdf\xff\xff\xff\xff" + b"\xc0" * 100),
    "a string of 2^32": framed(b"\xdb\xff\xff\xff\xff" + b"x" * 100),
    "a bin of 2^32": framed(b"\xc6\xff\xff\xff\xff" + b"x" * 100),
    "60,000 deep": framed(b"\x91" * 60_000 + b"\xc0"),
    "an extension": framed(b"\x92\x05" + msgpack.packb(msgpack.ExtType(7, b"x"))),
    "a timestamp": framed(b"\x92\x05" + b"\xd6\xff\x00\x00\x00\x01"),
    "a key twice": framed(b"\x92\x05\x82\xa1a\x01\xa1a\x02"),
    "bad utf-8": framed(b"\x92\x05\xa2\xff\xfe"),
    "bytes after": framed(b"\x91\x05\x00\x00"),
    "no array": framed(b"\xc0"),
    "no kind": framed(b"\x90"),
    "kind -1": framed(b"\x91\xff"),
    "kind 2^63": framed(b"\x91\xcf\x80\x00\x00\x00\x00\x00\x00\x00"),
    "kind of text": framed(b"\x91\xa1x"),
    "a float for a kind": framed(b"\x91\xcb" + struct.pack("!d", 5.0)),
    "empty": framed(b""),
}


async def test_no_frame_costs_more_than_its_stream_on_any_protocol() -> None:
    async with under_attack(WORKER_LIMITS) as attack, hostile_peer(attack.server.address) as peer:
        rss, running, most = rss_mib(), tasks(), 0.0
        with trio.fail_after(SECONDS):
            for protocol in PROTOCOLS:
                for bomb in BOMBS.values():
                    started = trio.current_time()
                    await _drop(peer, protocol, bomb)
                    await attack.ask(0)
                    most = max(most, trio.current_time() - started)
            await trio.sleep(0.2)
        bombs = len(PROTOCOLS) * len(BOMBS)
        figures(
            "msgpack",
            bombs=bombs,
            slowest_ms=1000 * most,
            rss_delta_mib=rss_mib() - rss,
            tasks_delta=tasks() - running,
            honest_p95_ms=attack.p95_ms,
        )
        assert not peer.ended.is_set()
        assert rss_mib() - rss < 8
        muxed = await their_connection(attack.server)
        assert [number for number in muxed.streams if number % 2] == []


async def _drop(peer: HostilePeer, protocol: str, bomb: bytes) -> None:
    number = await peer.open(protocol)
    for at in range(0, len(bomb), MAX_BODY):
        await peer.send(peer.data(number, bomb[at : at + MAX_BODY]))


async def test_1_000_streams_come_and_go_and_nothing_stays() -> None:
    async with under_attack(WORKER_LIMITS) as attack:
        second = Attack(attack.server, attack.client)
        for number in range(20):
            await second.ask(number)
        before, running, rss = descriptors(), tasks(), rss_mib()

        async def come_and_go() -> None:
            for number in range(125):
                await second.ask(number)

        with trio.fail_after(18):
            async with trio.open_nursery() as nursery:
                for _ in range(8):
                    nursery.start_soon(come_and_go)
        await trio.sleep(0.2)
        (conn,) = attack.server.below.get_network().get_connections()
        figures(
            "streams",
            cycles=1000,
            fds_delta=descriptors() - before,
            tasks_delta=tasks() - running,
            rss_delta_mib=rss_mib() - rss,
            honest_p95_ms=attack.p95_ms,
        )
        assert abs(descriptors() - before) <= 2
        assert abs(tasks() - running) <= 4
        assert rss_mib() - rss < 8
        assert len(conn.get_streams()) <= 2
