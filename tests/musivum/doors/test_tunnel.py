"""A node that only a tunnel to its HTTP API leads to: how it is listed, and how it is lost."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import httpx
import pytest
import trio
from trio.testing import MockClock

from musivum.config import MusivumConfig
from musivum.testing import calling
from musivum.testing_http import Door, HttpNode, answering, http_node
from p2p.testing import MemoryNetwork
from tessella.core.identity import Identity
from tessella.core.ids import ModelId
from tessella.core.messages import AskPeers, Peers
from tessella.core.peers import decode_rows
from tessella.core.signed_request import PEER, SIGNATURE
from tessella.web.app import make_app
from tessella.worker.api.p2p_id import P2pIdRoom, add_p2p_id

MUSIVUM_SEED, NODE, OTHER = b"m" * 32, Identity(b"n" * 32), Identity(b"o" * 32)
CONFIG = MusivumConfig(min_vram_mb=0)
URL = "http://10.7.0.1:8080"


class Tunnel(httpx.AsyncBaseTransport):
    """Leads to the HTTP API of the node of a key, or to nobody."""

    def __init__(self) -> None:
        self.key: Identity | None = NODE
        self.calls: list[httpx.Request] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.calls.append(request)
        if self.key is None:
            raise httpx.ConnectError("the tunnel is down")
        app = make_app("node", "0", rate=None)
        add_p2p_id(app, P2pIdRoom(self.key, tuple))
        return await httpx.ASGITransport(app).handle_async_request(request)


@dataclass
class Scene:
    net: MemoryNetwork
    door: Door
    tunnel: Tunnel
    node: HttpNode

    async def rows(self) -> list[tuple[str, list[str], str | None]]:
        listed = (await self.door.client.get("/peers")).json()
        return [(row["status"], row["p2p_addrs"], row["http_api_url"]) for row in listed]


@asynccontextmanager
async def scene() -> AsyncIterator[Scene]:
    net, tunnel = MemoryNetwork(), Tunnel()
    async with answering(net, MUSIVUM_SEED, CONFIG, to_nodes=tunnel) as door:
        node = HttpNode(NODE, (), door.peer.peer_id, door.client)
        yield Scene(net, door, tunnel, node)


@pytest.mark.parametrize("addrs", [[], ["/ip4/10.9.9.9/tcp/4001"], ["/ip4/169.254.0.1/tcp/1"]])
async def test_a_node_that_proves_its_key_at_its_url_is_listed_by_it(
    addrs: list[str], autojump_clock: MockClock
) -> None:
    async with scene() as s:
        assert await s.node.join(p2p_addrs=addrs, api_addr=URL) == [0, 4]
        assert await s.rows() == [("Healthy", [], URL)]
        (request,) = s.tunnel.calls
        assert str(request.url) == f"{URL}/p2p_id"
        assert request.headers["tessella-peer"] == s.door.peer.peer_id


async def test_it_is_listed_over_libp2p_too(autojump_clock: MockClock) -> None:
    async with scene() as s, calling(s.net, b"a" * 32, s.door.peer) as asker:
        await s.node.join(p2p_addrs=[], api_addr=URL)
        answer = await asker.ask(AskPeers(ModelId("small")))
        assert isinstance(answer, Peers)
        (row,) = decode_rows(answer.rows)
        assert (row.addrs, row.api_url, row.serves) == ((), URL, True)


async def test_a_whole_chain_may_be_of_such_nodes(autojump_clock: MockClock) -> None:
    async with scene() as s:
        await s.node.join(p2p_addrs=[], api_addr=URL, vram_mb=50)
        chain = (await s.door.client.get("/api/v1/chain", params={"model_id": "small"})).json()
        (stage,) = chain["chain"]
        assert (stage["p2p_addrs"], stage["http_api_url"]) == ([], URL)


@pytest.mark.parametrize("key", [None, OTHER], ids=["nobody", "another key"])
async def test_a_url_of_somebody_else_is_listed_for_nobody(
    key: Identity | None, autojump_clock: MockClock
) -> None:
    async with scene() as s:
        s.tunnel.key = key
        answer = await s.node.register(p2p_addrs=["/ip4/10.9.9.9/tcp/4001"], api_addr=URL)
        error = answer.json()["error"]
        assert (answer.status_code, error["code"]) == (400, "address_unproven")
        for tried in ("/ip4/10.9.9.9/tcp/4001", f"{URL}/p2p_id"):
            assert tried in error["message"]
        async with http_node(s.net, NODE.seed, s.door) as dialled:
            answer = await dialled.register(api_addr=URL)
            error = answer.json()["error"]
            assert (answer.status_code, error["code"]) == (400, "bad_address")
            assert (await dialled.register()).status_code == 200
        assert await s.rows() == [("PendingLoad", [f"{dialled.addrs[0]}/p2p/{NODE.peer_id}"], None)]


async def test_who_is_dialled_may_have_its_url_at_a_tunnel(autojump_clock: MockClock) -> None:
    async with scene() as s, http_node(s.net, NODE.seed, s.door) as node:
        await node.join(api_addr=URL)
        assert await s.rows() == [("Healthy", [f"{node.addrs[0]}/p2p/{NODE.peer_id}"], URL)]


async def test_a_call_that_is_not_let_in_has_nobody_called(autojump_clock: MockClock) -> None:
    async with scene() as s:
        body = json.dumps(s.node.registration(p2p_addrs=[], api_addr=URL)).encode()
        asked = s.node.asked("/register", body)
        unsigned, late = {PEER: NODE.peer_id}, s.node.sign(asked, 0.0)
        forged = {**s.node.sign(asked), SIGNATURE: "00" * 64}
        for headers in (unsigned, late, forged):
            assert (await s.node.send("/register", body, headers)).status_code == 401
        assert s.tunnel.calls == []
        good = s.node.sign(asked)
        for status in (200, 401):
            assert (await s.node.send("/register", body, good)).status_code == status
        assert len(s.tunnel.calls) == 1


async def test_a_report_of_it_has_its_url_asked(autojump_clock: MockClock) -> None:
    async with scene() as s, http_node(s.net, OTHER.seed, s.door) as reporter:
        await s.node.join(p2p_addrs=[], api_addr=URL)
        await reporter.join()
        report = {"peer_id": NODE.peer_id, "code": "peer_silent"}
        for key, status in ((NODE, "Healthy"), (None, "Offline")):
            s.tunnel.key = key
            assert (await reporter.call("/report_failure", report)).status_code == 200
            await trio.sleep(5)
            assert [found for found, _, url in await s.rows() if url == URL] == [status]
