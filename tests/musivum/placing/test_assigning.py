"""A node is told its range: over libp2p, over HTTP where only that leads to it, and by us alone."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

import httpx
import pytest
import trio
from trio.testing import MockClock

from musivum.config import MusivumConfig
from musivum.nodes.registration import read_registration
from musivum.nodes.roster import Roster
from musivum.placing.assigning import ANSWER_TIMEOUT, CONNECT_TIMEOUT, HTTP_PATH, Assigner
from musivum.placing.node_calls import Http
from musivum.testing import HOUSE, Caller, a_registration, calling, clock, running
from p2p.streams import FrameStream
from p2p.testing import MemoryHost, MemoryNetwork
from tessella.core.errors import (
    BadAddress,
    BadSignature,
    OutOfTurn,
    PeerUnreachable,
    Refused,
    RemoteFailure,
    TessellaError,
    UnknownWorker,
)
from tessella.core.identity import PURPOSE_TRACKER, Identity, check_signature
from tessella.core.ids import PeerId
from tessella.core.layers import LayerRange
from tessella.core.messages import (
    ASSIGN,
    Accepted,
    Announce,
    Assign,
    Assigned,
    Call,
    Fail,
    Message,
    Peers,
    Ready,
    Signed,
    decode,
)
from tessella.core.signed_request import PURPOSE_HTTP, Request, read_proof, signed_text
from tessella.web.client import open_client

OURS, NODE = Identity(b"m" * 32), Identity(b"n" * 32)
NEW = LayerRange(4, 10)
URL = "http://10.0.0.7:8000"
WISH = read_registration(a_registration(), HOUSE)
Handler = Callable[[httpx.Request], httpx.Response]


@dataclass
class Bench:
    """A musivum's host, and a node that is told something."""

    net: MemoryNetwork
    roster: Roster
    assigner: Assigner
    node: MemoryHost
    heard: list[Message]
    requests: list[httpx.Request]

    def list_node(self, *, api_url: str = "", addrs: tuple[str, ...] | None = None) -> None:
        where = self.node.address.addrs if addrs is None else addrs
        wish = replace(WISH, addrs=where, api_url=api_url)
        self.roster.join(NODE.peer_id, wish, 0.0)

    def answer(self, answer: Message) -> None:
        """What the node says to an order."""

        async def told(stream: FrameStream) -> None:
            self.heard.append(await stream.receive(timeout=5))
            await stream.send(answer)

        self.node.serve(ASSIGN, told, streams=8, per_peer=8)

    async def push(self) -> None:
        await self.assigner.push(NODE.peer_id, NEW)


def done(_: httpx.Request) -> httpx.Response:
    return httpx.Response(200, json={"ok": True})


@asynccontextmanager
async def a_bench(handler: Handler = done, allow_private: bool = True) -> AsyncIterator[Bench]:
    net, requests = MemoryNetwork(latency=0.01), list[httpx.Request]()

    def noting(request: httpx.Request) -> httpx.Response:
        requests.append(request)
        return handler(request)

    roster = Roster(MusivumConfig(min_vram_mb=0))
    async with (
        net.host(OURS) as host,
        net.host(NODE) as node,
        open_client(httpx.MockTransport(noting)) as client,
    ):
        assigner = Assigner(host, OURS, roster, clock, Http(client, allow_private))
        yield Bench(net, roster, assigner, node, [], requests)


def the_call(heard: list[Message], purpose: bytes = PURPOSE_TRACKER) -> Call:
    """What a node reads in an order, once it is sure who signed it."""
    (signed,) = heard
    assert isinstance(signed, Signed)
    call = decode(check_signature(OURS.peer_id, purpose, signed.payload, signed.signature))
    assert isinstance(call, Call)
    return call


async def test_a_node_is_told_in_a_call_that_only_this_musivum_can_sign(
    autojump_clock: MockClock,
) -> None:
    async with a_bench() as bench:
        bench.list_node(api_url=URL)
        bench.answer(Accepted())
        await bench.push()
        call = the_call(bench.heard)
        assert call.peer_id == OURS.peer_id
        assert decode(call.message) == Assign(NEW)
        assert 0 <= clock() - call.created < 1
        assert len(call.nonce) == 16
        with pytest.raises(BadSignature):
            the_call(bench.heard, PURPOSE_HTTP)
        assert bench.requests == [], "libp2p led to it"


async def test_no_two_calls_have_one_nonce(autojump_clock: MockClock) -> None:
    async with a_bench() as bench:
        bench.list_node()
        bench.answer(Accepted())
        for _ in range(5):
            await bench.push()
        assert len({the_call([signed]).nonce for signed in bench.heard}) == 5


async def test_the_no_of_a_node_is_its_own(autojump_clock: MockClock) -> None:
    async with a_bench() as bench:
        bench.list_node(api_url=URL)
        bench.answer(Fail("refused", "layers 0:4 are kept", retry=False))
        with pytest.raises(RemoteFailure, match="layers 0:4 are kept") as caught:
            await bench.push()
        assert (caught.value.code, caught.value.retry) == ("refused", False)
        assert bench.requests == [], "it was told, and said no"


async def test_an_answer_that_is_none_is_out_of_turn(autojump_clock: MockClock) -> None:
    async with a_bench() as bench:
        bench.list_node()
        bench.answer(Peers(b"[]"))
        with pytest.raises(OutOfTurn, match="Peers for an assignment"):
            await bench.push()


async def test_a_node_that_takes_no_orders_is_not_called_otherwise(
    autojump_clock: MockClock,
) -> None:
    async with a_bench() as bench:
        bench.list_node(api_url=URL)
        with pytest.raises(Refused, match="does not speak"):
            await bench.push()
        assert bench.requests == []


async def test_who_is_not_listed_is_not_told() -> None:
    async with a_bench() as bench:
        with pytest.raises(UnknownWorker):
            await bench.push()


async def test_without_a_url_a_node_that_libp2p_does_not_reach_is_not_told(
    autojump_clock: MockClock,
) -> None:
    async with a_bench() as bench:
        bench.list_node(addrs=("/ip4/10.9.9.9/tcp/1",))
        with pytest.raises(PeerUnreachable):
            await bench.push()


async def says_nothing(stream: FrameStream) -> None:
    await trio.sleep_forever()


@pytest.mark.parametrize("way", ["no address", "unreachable", "dial", "answer"])
async def test_where_libp2p_does_not_lead_to_a_node_http_does(
    way: str, autojump_clock: MockClock
) -> None:
    async with a_bench() as bench:
        where = {"no address": (), "unreachable": ("/ip4/10.9.9.9/tcp/1",)}.get(way)
        bench.list_node(api_url=URL + "/", addrs=where)
        if way == "dial":
            bench.net.silence(OURS.peer_id, NODE.peer_id)
        if way == "answer":
            bench.node.serve(ASSIGN, says_nothing, streams=8, per_peer=8)
        began = trio.current_time()
        await bench.push()
        assert trio.current_time() - began < 2 * CONNECT_TIMEOUT + ANSWER_TIMEOUT + 1
        (request,) = bench.requests
        assert str(request.url) == "http://10.0.0.7:8000/api/v1/update_assignment"
        assert request.method == "POST"
        assert json.loads(request.content) == {
            "model_repo": "small",
            "layer_ranges": [[4, 10]],
            "replica_group_id": 0,
            "expert_range": None,
        }


def verified(request: httpx.Request, audience: PeerId) -> PeerId:
    """Who called, as the node that is called finds out."""
    proof = read_proof(request.headers)
    asked = Request(request.method, request.url.path, (), request.content, audience)
    created, nonce = request.headers["tessella-created"], request.headers["tessella-nonce"]
    text = signed_text(asked, proof.peer_id, created, nonce)
    check_signature(proof.peer_id, PURPOSE_HTTP, text, proof.signature)
    assert 0 <= clock() - proof.created < 1
    return proof.peer_id


async def test_a_call_over_http_is_signed_for_that_node_alone(autojump_clock: MockClock) -> None:
    async with a_bench() as bench:
        bench.list_node(api_url=URL, addrs=("/ip4/10.9.9.9/tcp/1",))
        await bench.push()
        (request,) = bench.requests
        assert verified(request, NODE.peer_id) == OURS.peer_id
        with pytest.raises(BadSignature):
            verified(request, Identity(b"o" * 32).peer_id)
        changed = httpx.Request("POST", request.url, headers=request.headers, content=b"{}")
        with pytest.raises(BadSignature):
            verified(changed, NODE.peer_id)
        assert request.url.path == HTTP_PATH


@pytest.mark.parametrize(
    ("url", "allow_private"),
    [
        (URL, False),
        ("http://127.0.0.1:8000", False),
        ("http://169.254.169.254", True),
        ("http://localhost:8000", False),
        ("http://8.8.8.8:8000", True),
        ("https://8.8.8.8:22", True),
    ],
)
async def test_a_url_that_leads_where_nobody_may_be_sent_is_not_called(
    url: str, allow_private: bool, autojump_clock: MockClock
) -> None:
    async with a_bench(allow_private=allow_private) as bench:
        bench.list_node(api_url=url, addrs=("/ip4/10.9.9.9/tcp/1",))
        with pytest.raises(BadAddress, match="not a URL that is called from here"):
            await bench.push()
        assert bench.requests == []


async def test_a_public_node_is_called_over_https(autojump_clock: MockClock) -> None:
    async with a_bench(allow_private=False) as bench:
        bench.list_node(api_url="https://8.8.8.8:8443", addrs=("/ip4/10.9.9.9/tcp/1",))
        await bench.push()
        assert str(bench.requests[0].url) == "https://8.8.8.8:8443/api/v1/update_assignment"


def refusing(_: httpx.Request) -> httpx.Response:
    error = {"code": "refused", "message": "layers 0:4 are kept", "type": "refused"}
    return httpx.Response(409, json={"error": error})


def broken(_: httpx.Request) -> httpx.Response:
    raise httpx.ConnectError("nobody listens")


@pytest.mark.parametrize(("handler", "code"), [(refusing, "refused"), (broken, "peer_unreachable")])
async def test_a_no_over_http_is_raised_as_any_other(
    handler: Handler, code: str, autojump_clock: MockClock
) -> None:
    async with a_bench(handler) as bench:
        bench.list_node(api_url=URL, addrs=("/ip4/10.9.9.9/tcp/1",))
        with pytest.raises(TessellaError) as caught:
            await bench.push()
        assert caught.value.code == code
        assert isinstance(caught.value, RemoteFailure) == (handler is refusing)


async def join(node: Caller) -> str:
    answer = await node.register()
    assert isinstance(answer, Assigned)
    assert await node.call(Ready(answer.layers)) == Accepted()
    return str(answer.layers)


async def beat(nodes: list[Caller], seconds: int, status: str = "Healthy") -> list[Message]:
    """The last answers to heartbeats of that many seconds."""
    for _ in range(seconds // 5):
        await trio.sleep(5)
        answers = [await node.call(Announce(status, 0, 20.0)) for node in nodes]
    return answers


async def test_when_a_node_dies_a_spare_one_is_told_its_layers_and_takes_them(
    autojump_clock: MockClock,
) -> None:
    net, heard = MemoryNetwork(), list[Message]()

    async def told(stream: FrameStream) -> None:
        heard.append(await stream.receive(timeout=5))
        await stream.send(Accepted())

    config = MusivumConfig(min_vram_mb=0, heal_seconds=20.0)
    async with (
        running(net, b"m" * 32, config) as tracker,
        calling(net, b"b" * 32, tracker) as b,
        calling(net, b"c" * 32, tracker) as c,
        calling(net, b"d" * 32, tracker) as d,
    ):
        async with calling(net, b"a" * 32, tracker) as a:
            assert [await join(node) for node in (a, b, c, d)] == ["0:4", "4:10", "10:12", "4:10"]
        for node in (b, d):
            node.host.serve(ASSIGN, told, streams=8, per_peer=8)
        answers = await beat([b, c, d], 60)
        first = LayerRange(0, 4)
        assert decode(the_call(heard).message) == Assign(first)
        assert answers.count(Assigned(first, 10.0)) == 1
        spare = (b, c, d)[answers.index(Assigned(first, 10.0))]
        assert await beat([spare], 5, "PendingLoad") == [Accepted()]
        assert await spare.call(Ready(first)) == Accepted()
        assert await beat([b, c, d], 60) == [Accepted()] * 3
        assert len(heard) == 1
