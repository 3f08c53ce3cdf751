"""musivum by its URL: its key is pinned, and all that a node says goes over HTTP as well."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import httpx
import pytest
import trio
from trio.testing import MockClock

from musivum.testing import QUIET, a_registration, clock
from musivum.testing_http import Door, answering
from p2p.testing import MemoryNetwork
from tessella.core.addresses import PeerAddress
from tessella.core.errors import BadAddress, BadFrame, PeerUnreachable, RemoteFailure, TessellaError
from tessella.core.identity import Identity
from tessella.core.ids import ModelId
from tessella.core.layers import LayerRange
from tessella.core.messages import (
    Accepted,
    Announce,
    Assigned,
    Deregister,
    Message,
    Ready,
    ReportFailure,
)
from tessella.worker.musivum_http import HttpMusivum, find_musivum
from tessella.worker.tracker import HTTP_SECONDS, Tracker

SEED, NODE = b"m" * 32, Identity(b"n" * 32)
# Nobody resolves it: the requests never leave this process.
URL = "http://10.9.9.9"
CONFIG = replace(QUIET, min_vram_mb=0, heartbeat_seconds=7.0, dial_back=False)
OTHER = Identity(b"o" * 32).peer_id


def http_of(door: Door, identity: Identity = NODE) -> HttpMusivum:
    return HttpMusivum(
        client=door.client, url=URL, peer_id=door.peer.peer_id, identity=identity, clock=clock
    )


@asynccontextmanager
async def a_door(net: MemoryNetwork) -> AsyncIterator[Door]:
    async with answering(net, SEED, CONFIG) as door, net.host(NODE):
        yield door


async def test_the_url_names_the_key_and_where_it_answers(autojump_clock: MockClock) -> None:
    async with a_door(MemoryNetwork()) as door:
        found = await find_musivum(door.client, URL + "/")
        assert found == PeerAddress(door.peer.peer_id, door.peer.addrs)


async def test_a_node_lives_over_http_as_it_does_over_libp2p(autojump_clock: MockClock) -> None:
    async with a_door(MemoryNetwork()) as door:
        http = http_of(door)
        assigned = await http.call(a_registration())
        assert isinstance(assigned, Assigned)
        assert assigned.heartbeat_seconds == 7.0
        assert await http.call(Ready(assigned.layers)) == Accepted()
        assert await http.call(Announce("Healthy", 1, 2.5)) == Accepted()
        (row,) = await http.peers(ModelId("small"))
        assert (row.peer_id, row.layers, row.status) == (NODE.peer_id, assigned.layers, "Healthy")
        assert (row.queue_depth, row.step_ms, row.canary) == (1, 2.5, False)
        assert row == door.opened.rooms.books.roster.node(NODE.peer_id).row
        assert await http.call(ReportFailure(OTHER, "peer_silent")) == Accepted()
        assert await http.call(Deregister()) == Accepted()
        with pytest.raises(RemoteFailure) as caught:
            await http.call(Announce("Healthy", 0, 0.0))
        assert caught.value.code == "unknown_worker"


async def test_a_call_for_another_musivum_is_worth_nothing_here(autojump_clock: MockClock) -> None:
    async with a_door(MemoryNetwork()) as door:
        stranger = replace(http_of(door), peer_id=OTHER)
        with pytest.raises(RemoteFailure) as caught:
            await stranger.call(a_registration())
        assert caught.value.code == "bad_signature"


def answers(body: Any) -> httpx.AsyncClient:
    return httpx.AsyncClient(
        transport=httpx.MockTransport(lambda _: httpx.Response(200, json=body))
    )


MUSIVUM = Identity(SEED).peer_id


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ([], "names no peer"),
        ({"peer_id": MUSIVUM}, "names no peer"),
        ({"peer_id": "x", "multiaddrs": []}, "no musivum"),
        ({"peer_id": MUSIVUM, "multiaddrs": ["/ip4/1.2.3.4"]}, "no musivum"),
        (
            {"peer_id": MUSIVUM, "multiaddrs": [f"/ip4/10.0.0.1/tcp/1/p2p/{OTHER}"]},
            "names two peers",
        ),
    ],
)
async def test_who_does_not_speak_as_a_musivum_is_named(body: Any, said: str) -> None:
    async with answers(body) as client:
        with pytest.raises(BadFrame, match=said):
            await find_musivum(client, URL)


async def test_a_key_is_not_pinned_from_a_public_page_that_anyone_could_change() -> None:
    async with answers({}) as client:
        with pytest.raises(BadAddress):
            await find_musivum(client, "http://93.184.216.34")


@pytest.mark.parametrize(
    "assignment",
    [{}, {"layer_ranges": []}, {"layer_ranges": [[3]]}, {"layer_ranges": [[3, 1]]}, 7],
)
async def test_an_answer_that_is_none_is_musivums_fault(assignment: Any) -> None:
    async with answers({"assignment": assignment}) as client:
        http = HttpMusivum(
            client=client, url=URL, peer_id=MUSIVUM, identity=NODE, clock=clock, heartbeat=7.0
        )
        with pytest.raises(BadFrame, match="/announce"):
            await http.call(Announce("Healthy", 0, 0.0))


async def test_another_range_that_is_wanted_keeps_the_heartbeat() -> None:
    async with answers({"ok": True, "assignment": {"layer_ranges": [[1, 3]]}}) as client:
        http = HttpMusivum(
            client=client, url=URL, peer_id=MUSIVUM, identity=NODE, clock=clock, heartbeat=7.0
        )
        assert await http.call(Announce("Healthy", 0, 0.0)) == Assigned(LayerRange(1, 3), 7.0)


class Way:
    """One way to musivum: it answers, or is away, or refuses."""

    def __init__(self) -> None:
        self.error: TessellaError | None = None
        self.calls = 0

    async def call(self, message: Message) -> Accepted:
        self.calls += 1
        if self.error is not None:
            raise self.error
        return Accepted()


async def test_http_serves_while_libp2p_leads_nowhere_and_not_for_good(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    net = MemoryNetwork()
    async with a_door(net) as door, net.host(b"t" * 32) as host:
        identity = Identity(b"t" * 32)
        tracker = Tracker(host, identity, [door.peer], clock, http_of(door, identity))
        libp2p = Way()
        monkeypatch.setattr(tracker, "_call", libp2p.call)
        await tracker.call(Deregister())
        assert (tracker.way, libp2p.calls) == ("libp2p", 1)
        libp2p.error = PeerUnreachable("a firewall")
        await tracker.call(Deregister())
        assert (tracker.way, libp2p.calls) == ("http", 2)
        await tracker.call(Deregister())
        assert libp2p.calls == 2
        await trio.sleep(HTTP_SECONDS)
        libp2p.error = None
        await tracker.call(Deregister())
        assert (tracker.way, libp2p.calls) == ("libp2p", 3)


async def test_a_refusal_is_not_asked_for_again_on_another_way(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    net = MemoryNetwork()
    async with a_door(net) as door, net.host(b"t" * 32) as host:
        identity = Identity(b"t" * 32)
        http = Way()
        tracker = Tracker(host, identity, [door.peer], clock, http)  # type: ignore[arg-type]
        libp2p = Way()
        monkeypatch.setattr(tracker, "_call", libp2p.call)
        libp2p.error = RemoteFailure("claim_too_small", "no", retry=False)
        with pytest.raises(RemoteFailure):
            await tracker.call(Deregister())
        assert http.calls == 0
