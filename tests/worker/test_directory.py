from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest
import trio
from trio.testing import MockClock

from p2p.pool import StreamPool
from p2p.streams import FrameStream
from p2p.testing import MemoryHost, MemoryNetwork
from tessella.core.addresses import PeerAddress
from tessella.core.errors import ModelUnavailable, PeerSilent, PeerUnreachable, RemoteFailure
from tessella.core.ids import ModelId, PeerId
from tessella.core.layers import LayerRange
from tessella.core.messages import COMPLETE, HOP, TOKENS
from tessella.core.peers import PeerRow
from tessella.worker.directory import CONNECT_BESIDE_HTTP, HTTP_SECONDS, Directory
from tessella.worker.http_hops.dialling import HttpHops, Route

MODEL = ModelId("toy")
ARow = Callable[..., PeerRow]


@dataclass
class Asked:
    """A musivum that answers with rows, with an error, or not."""

    rows: list[PeerRow] = field(default_factory=list)
    error: Exception | None = None
    takes: float = 0.0
    times: int = 0

    async def __call__(self, model: ModelId) -> list[PeerRow]:
        self.times += 1
        await trio.sleep(self.takes)
        if self.error is not None:
            raise self.error
        return self.rows


@dataclass
class Scene:
    net: MemoryNetwork
    host: MemoryHost
    other: MemoryHost
    asked: Asked
    directory: Directory


@asynccontextmanager
async def scene(a_row: ARow) -> AsyncIterator[Scene]:
    """A node, another that musivum lists, and what it asks."""
    net = MemoryNetwork(latency=0.001)
    async with net.host(b"a" * 32) as host, net.host(b"b" * 32) as other:
        other.serve(HOP, _hold, streams=9, per_peer=9)
        asked = Asked([a_row(other.address, LayerRange(0, 6))])
        yield Scene(net, host, other, asked, Directory(host, StreamPool(host), MODEL, asked))


async def _hold(stream: FrameStream) -> None:
    await trio.sleep_forever()


async def test_rows_are_asked_for_when_they_are_needed_and_too_old(
    a_row: ARow, autojump_clock: MockClock
) -> None:
    async with scene(a_row) as s:
        for _ in range(3):
            assert await s.directory.rows() == s.asked.rows
        assert s.asked.times == 1
        await trio.sleep(2.0)
        s.asked.rows = []
        assert await s.directory.rows() == []
        s.directory.forget_age()
        await s.directory.rows()
        assert s.asked.times == 3


async def test_our_sessions_are_load_from_when_they_begin_until_they_end(
    a_row: ARow, autojump_clock: MockClock
) -> None:
    async with scene(a_row) as s:
        [row] = rows = await s.directory.rows()
        assert s.directory.loaded(rows) == rows
        with s.directory.using([row.peer_id]), s.directory.using([row.peer_id]):
            assert s.directory.loaded(rows) == [replace(row, queue_depth=2)]
            busier = replace(row, queue_depth=3)
            assert s.directory.loaded([busier]) == [busier], "ours are among them"
        assert s.directory.loaded(rows) == rows


async def test_many_who_need_rows_at_once_ask_once(a_row: ARow, autojump_clock: MockClock) -> None:
    async with scene(a_row) as s:
        s.asked.takes = 0.5
        async with trio.open_nursery() as nursery:
            for _ in range(16):
                nursery.start_soon(s.directory.rows)
        assert s.asked.times == 1


@pytest.mark.parametrize(
    ("error", "takes"),
    [
        (PeerUnreachable("nobody there"), 0.0),
        (RemoteFailure("busy", "", retry=True), 0.0),
        (None, 60.0),
    ],
)
async def test_a_musivum_that_is_away_costs_many_requests_a_second_once(
    a_row: ARow, autojump_clock: MockClock, error: Exception | None, takes: float
) -> None:
    async with scene(a_row) as s:
        known = await s.directory.rows()
        s.asked.error, s.asked.takes = error, takes
        await trio.sleep(5.0)
        started = trio.current_time()
        for _ in range(16):
            assert await s.directory.rows() == known
        assert trio.current_time() - started <= 1.0


async def test_where_nothing_is_known_the_error_of_asking_leaves(
    a_row: ARow, autojump_clock: MockClock
) -> None:
    async with scene(a_row) as s:
        s.asked.error = RemoteFailure("busy", "", retry=True)
        with pytest.raises(RemoteFailure):
            await s.directory.rows()
        s.asked.error, s.asked.takes = None, 60.0
        with pytest.raises(PeerSilent, match="within 10 s"):
            await s.directory.rows()


async def test_a_stream_is_used_again_and_one_that_broke_is_not(
    a_row: ARow, autojump_clock: MockClock
) -> None:
    async with scene(a_row) as s:
        peer = s.other.address.peer_id
        first = await s.directory.stream_to(peer, HOP)
        s.directory.give(first)
        again = await s.directory.stream_to(peer, HOP)
        assert again is first
        s.directory.give(again)
        s.net.cut(s.host.address.peer_id, peer)
        fresh = await s.directory.stream_to(peer, HOP)
        assert fresh is not first
        assert fresh.idle


async def test_a_node_that_was_started_again_is_dialled_where_it_is_now(
    a_row: ARow, autojump_clock: MockClock
) -> None:
    async with scene(a_row) as s:
        await s.directory.rows()
        async with s.net.host(b"n" * 32) as node:
            node.serve(HOP, _hold, streams=9, per_peer=9)
            s.asked.rows = [a_row(node.address, LayerRange(0, 6))]
            await trio.sleep(2.0)
            await s.directory.stream_to(node.address.peer_id, HOP)
        async with s.net.host(b"n" * 32) as node:
            node.serve(HOP, _hold, streams=9, per_peer=9)
            before = s.asked.rows[0].addrs
            s.asked.rows = [a_row(node.address, LayerRange(0, 6))]
            assert before != node.address.addrs
            await trio.sleep(2.0)
            await s.directory.stream_to(node.address.peer_id, HOP)


async def test_after_a_dial_that_failed_musivum_is_asked_at_the_next_need(
    a_row: ARow, autojump_clock: MockClock
) -> None:
    async with scene(a_row) as s:
        right = s.asked.rows
        s.asked.rows = [replace(right[0], addrs=("/ip4/10.9.9.9/tcp/1",))]
        with pytest.raises(PeerUnreachable):
            await s.directory.stream_to(s.other.address.peer_id, HOP)
        s.asked.rows = right
        await s.directory.stream_to(s.other.address.peer_id, HOP)


async def test_a_node_that_joined_a_moment_ago_is_asked_for(
    a_row: ARow, autojump_clock: MockClock
) -> None:
    async with scene(a_row) as s:
        listed, s.asked.rows = s.asked.rows, []
        await s.directory.rows()
        s.asked.rows = listed
        await s.directory.stream_to(s.other.address.peer_id, HOP)


async def test_a_node_that_nobody_lists_is_not_called_unreachable(
    a_row: ARow, autojump_clock: MockClock
) -> None:
    async with scene(a_row) as s:
        s.asked.rows = []
        with pytest.raises(ModelUnavailable, match=s.other.address.peer_id):
            await s.directory.stream_to(s.other.address.peer_id, HOP)


async def test_an_address_in_hand_needs_no_list(a_row: ARow, autojump_clock: MockClock) -> None:
    async with scene(a_row) as s:
        stream = await s.directory.stream_at(s.other.address, HOP)
        assert stream.peer_id == s.other.address.peer_id
        assert s.asked.times == 0
        nobody = PeerAddress(s.other.address.peer_id, ("/ip4/10.9.9.9/tcp/1",))
        await s.directory.stream_at(nobody, HOP)  # connected is connected


async def test_a_node_that_loads_is_a_reason_to_try_again(
    a_row: ARow, autojump_clock: MockClock
) -> None:
    async with scene(a_row) as s:
        for take in (
            s.directory.stream_to(s.other.address.peer_id, TOKENS),
            s.directory.stream_at(s.other.address, TOKENS),
        ):
            with pytest.raises(ModelUnavailable, match="does not speak"):
                await take


NOWHERE = ("/ip4/10.9.9.9/tcp/1",)
URL = "https://b.example"


@dataclass
class Http:
    """What opens streams over HTTP, and whether it finds a way."""

    net: MemoryNetwork
    opened: list[tuple[PeerId, Route, str]] = field(default_factory=list)
    ended: list[FrameStream] = field(default_factory=list)
    works: bool = True

    async def open(self, peer: PeerId, route: Route, protocol: str) -> FrameStream:
        self.opened.append((peer, route, protocol))
        if not self.works:
            raise PeerUnreachable("no way over HTTP")
        return self.net.stream_pair(protocol)[0]

    def end(self, stream: FrameStream) -> bool:
        self.ended.append(stream)
        return len(self.ended) == 1


@asynccontextmanager
async def with_http(a_row: ARow, **changes: Any) -> AsyncIterator[tuple[Scene, Http]]:
    """The same, where the other node has a URL."""
    async with scene(a_row) as s:
        http = Http(s.net)
        s.asked.rows = [replace(s.asked.rows[0], api_url=URL, **changes)]
        pool = StreamPool(s.host)
        s.directory = Directory(s.host, pool, MODEL, s.asked, http=cast("HttpHops", http))
        yield s, http


async def test_who_can_be_dialled_is_dialled(a_row: ARow, autojump_clock: MockClock) -> None:
    async with with_http(a_row) as (s, http):
        await s.directory.stream_to(s.other.address.peer_id, HOP)
        assert http.opened == []


@pytest.mark.parametrize("addrs", [NOWHERE, ()], ids=["a dead address", "no address"])
async def test_who_cannot_be_dialled_is_reached_at_its_url(
    addrs: tuple[str, ...], a_row: ARow, autojump_clock: MockClock
) -> None:
    async with with_http(a_row, addrs=addrs) as (s, http):
        peer = s.other.address.peer_id
        stream = await s.directory.stream_to(peer, HOP)
        assert http.opened == [(peer, Route(URL, "/v1/forward"), HOP)]
        s.directory.give(stream)
        assert http.ended == [stream]


async def test_only_hops_have_a_route_over_http(a_row: ARow, autojump_clock: MockClock) -> None:
    async with with_http(a_row, addrs=NOWHERE) as (s, http):
        with pytest.raises(PeerUnreachable):
            await s.directory.stream_to(s.other.address.peer_id, COMPLETE)
        assert http.opened == []


async def test_a_node_without_a_url_is_not_called(a_row: ARow, autojump_clock: MockClock) -> None:
    async with with_http(a_row, addrs=NOWHERE) as (s, http):
        s.asked.rows = [replace(s.asked.rows[0], api_url="")]
        with pytest.raises(PeerUnreachable):
            await s.directory.stream_to(s.other.address.peer_id, HOP)
        assert http.opened == []


async def test_a_dial_in_vain_is_remembered_for_a_while(
    a_row: ARow, autojump_clock: MockClock
) -> None:
    async with with_http(a_row) as (s, http):
        peer = s.other.address.peer_id
        s.net.silence(s.host.address.peer_id, peer)
        await s.directory.stream_to(peer, HOP)
        assert trio.current_time() >= CONNECT_BESIDE_HTTP
        began = trio.current_time()
        await s.directory.stream_to(peer, HOP)
        assert trio.current_time() - began < 0.1
        s.net.heal(s.host.address.peer_id, peer)
        await trio.sleep(HTTP_SECONDS)
        await s.directory.stream_to(peer, HOP)
        assert len(http.opened) == 2


async def test_where_http_leads_nowhere_either_the_next_one_dials(
    a_row: ARow, autojump_clock: MockClock
) -> None:
    async with with_http(a_row, addrs=NOWHERE) as (s, http):
        peer = s.other.address.peer_id
        await s.directory.stream_to(peer, HOP)
        http.works = False
        with pytest.raises(PeerUnreachable, match="over HTTP"):
            await s.directory.stream_to(peer, HOP)
        s.asked.rows = [replace(s.asked.rows[0], addrs=s.other.address.addrs)]
        s.directory.forget_age()
        stream = await s.directory.stream_to(peer, HOP)
        assert stream.peer_id == peer
        assert len(http.opened) == 2


async def test_a_stream_that_is_not_over_http_goes_back_to_the_pool(
    a_row: ARow, autojump_clock: MockClock
) -> None:
    async with with_http(a_row) as (s, http):
        peer = s.other.address.peer_id
        http.ended.append(s.net.stream_pair()[0])
        first = await s.directory.stream_to(peer, HOP)
        s.directory.give(first)
        assert await s.directory.stream_to(peer, HOP) is first
