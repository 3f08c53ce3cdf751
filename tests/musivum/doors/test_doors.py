"""Two doors, one room: what is asked over HTTP and over libp2p gets one answer."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
import trio
from trio.testing import MockClock

from musivum.config import MusivumConfig
from musivum.doors.questions import LEDGER, OPERATOR, PUBLIC
from musivum.testing import SMALL, calling, clock
from musivum.testing_http import Body, Door, HttpNode, answering, http_node
from p2p.testing import MemoryNetwork
from tessella.core.contracts import contract_of
from tessella.core.identity import Identity
from tessella.core.layers import LayerRange
from tessella.core.messages import (
    Accepted,
    Announce,
    Ask,
    Deregister,
    Document,
    Fail,
    Message,
    Operate,
    Ready,
)
from tessella.core.shape_json import encode_shape
from tests.core.work import Work, identity

MUSIVUM_SEED, ASKER_SEED = b"m" * 32, b"a" * 32
SEEDS = [bytes([number]) * 32 for number in (1, 2, 3)]
CONFIG = MusivumConfig(min_vram_mb=0)
TOKEN = "the-operators-token"
PEER = Identity(SEEDS[0]).peer_id
MANIFEST = {"model_id": "published", "shape": json.loads(encode_shape(SMALL))}

Told = tuple[str, Any]

ASKED: dict[str, list[Body]] = {
    "/peers": [{}, {"model_id": "small"}, {"model_id": "unknown"}, {"model_id": "x" * 201}],
    "/api/network/models": [{}, {"model_id": "small"}],
    "/workers": [{}, {"model_id": "small"}, {"model_id": "unknown"}],
    "/model_health": [
        {}, {"model_id": "small"}, {"model_id": "unknown"}, {"model_id": "small", "device": "cuda"},
        {"model_id": "small", "device": "tpu"}, {"model_id": "small", "dtype": "INT4"},
    ],
    "/api/v1/assignment": [
        {"model_id": "small", "vram_mb": 8}, {"model_id": "small", "vram_mb": 1},
        {"model_id": "unknown", "vram_mb": 8}, {"model_id": "small"},
    ],
    "/api/v1/chain": [{"model_id": "small"}, {"model_id": "unknown"}, {}],
    "/weights/manifest": [{"model_id": "small"}, {"model_id": "unknown"}, {"model_id": ""}],
    "/weights/manifests": [{}],
    "/p2p_id": [{}, {"x": "1"}],
}  # fmt: skip
ORDERED: dict[str, list[Body]] = {
    "/rebalance": [{}],
    "/weights/manifest": [MANIFEST, {**MANIFEST, "contract": "00" * 32}, {"model_id": "x"}],
    "/reputation": [{"all": True}, {"peer_id": PEER}, {"peer_id": "unknown"}, {}],
    "/ledger": [{}, {"limit": 1}, {"limit": 0}],
    "/ledger/snapshot": [{"since": 1}, {"since": 9}, {"limit": 1001}],
    "/credits": [{"all": True}, {"peer_id": PEER}, {}],
    "/slash": [{"peer_id": "mint", "reason": "x"}, {"peer_id": PEER}],
    "/appeal": [{"peer_id": "mint", "reason": "x"}, {"peer_id": PEER}],
}
READ: dict[str, list[Body]] = {
    "/ledger/head": [{}, {"x": "1"}],
    "/ledger/proof": [
        {"index": 0}, {"index": 1, "count": 5}, {"index": 4}, {"from": 1}, {"from": 1, "to": 2},
        {"from": 5}, {}, {"since": 1}, {"index": -1}, {"index": 0, "count": 1001},
    ],
}  # fmt: skip


def over_http(answer: httpx.Response) -> Told:
    if answer.status_code == 200:
        return "answer", answer.json()
    error = answer.json()["error"]
    return error["code"], error["type"] == "unavailable_error"


def over_libp2p(answer: Message) -> Told:
    if isinstance(answer, Document):
        return "answer", json.loads(answer.document)
    assert isinstance(answer, Fail)
    return answer.code, answer.retry


def settled(name: str, told: Told) -> Told:
    """What is told of a ledger without the secret of its epoch, which is drawn."""
    kind, body = told
    if kind == "answer" and name == "/ledger":
        return kind, [(entry["sequence"], entry["kind"]) for entry in body]
    if kind == "answer" and name == "/ledger/snapshot":
        return kind, (body["since"], body["next"], body["head"]["size"], len(body["entries"]))
    return told


def query(arguments: Body) -> dict[str, str]:
    return {key: str(value).lower() if value is True else value for key, value in arguments.items()}


async def three(door: Door, nodes: list[HttpNode], ready: tuple[int, ...]) -> None:
    """Three nodes share the small model, and some of them serve."""
    for number, node in enumerate(nodes):
        (layers,) = (await node.register(api_addr=node.api_url)).json()["assignment"][
            "layer_ranges"
        ]
        if number in ready:
            (await node.call("/ready", {"layers": layers})).raise_for_status()


@pytest.mark.parametrize("ready", [(), (0,), (0, 2), (0, 1, 2)], ids=str)
async def test_a_public_question_gets_one_answer_at_both_doors(
    ready: tuple[int, ...], autojump_clock: MockClock
) -> None:
    net = MemoryNetwork()
    async with (
        answering(net, MUSIVUM_SEED, CONFIG) as door,
        http_node(net, SEEDS[0], door) as a,
        http_node(net, SEEDS[1], door) as b,
        http_node(net, SEEDS[2], door) as c,
        calling(net, ASKER_SEED, door.peer) as asker,
    ):
        await three(door, [a, b, c], ready)
        assert set(ASKED) == set(PUBLIC)
        seen = set()
        for name, cases in ASKED.items():
            for arguments in cases:
                http = over_http(await door.client.get(name, params=query(arguments)))
                frame = await asker.ask(Ask(name, json.dumps(arguments).encode()))
                assert over_libp2p(frame) == http, (name, arguments)
                seen.add(http[0])
        unavailable = set() if len(ready) == 3 else {"model_unavailable"}
        assert (
            seen == {"answer", "bad_request", "claim_too_small", "unknown_manifest"} | unavailable
        )


async def test_an_order_does_the_same_at_both_doors(autojump_clock: MockClock) -> None:
    assert set(ORDERED) == set(OPERATOR)
    results = [await ordered(by_http=True), await ordered(by_http=False)]
    assert results[0] == results[1]
    codes = [code for code, _ in results[0]]
    assert codes == [
        "answer", "answer", "bad_manifest", "bad_request", "answer", "answer", "answer",
        "bad_request", "answer", "answer", "bad_request", "answer", "unknown_entry", "bad_request",
        "answer", "answer", *["bad_request"] * 5,
    ]  # fmt: skip
    ((move,),) = (told["moves"] for _, told in results[0][:1])
    assert (move["peer_id"], move["old"], move["new"]) == (
        Identity(SEEDS[1]).peer_id,
        [0, 4],
        [4, 10],
    )


async def ordered(*, by_http: bool) -> list[Told]:
    """What the orders are answered in a mesh with a gap that a node could be spared for."""
    net = MemoryNetwork()
    told: list[Told] = []
    async with (
        answering(net, MUSIVUM_SEED, CONFIG, token=TOKEN) as door,
        http_node(net, SEEDS[0], door) as a,
        http_node(net, SEEDS[1], door) as b,
        http_node(net, SEEDS[2], door) as c,
        calling(net, ASKER_SEED, door.peer) as operator,
    ):
        for node, layers in ((a, [0, 4]), (b, [0, 4]), (c, [10, 12])):
            await node.join(layers=layers)
        for name, cases in ORDERED.items():
            for arguments in cases:
                if by_http:
                    told.append(settled(name, over_http(await order(door, name, arguments))))
                else:
                    data = json.dumps(arguments).encode()
                    answer = await operator.ask(Operate(TOKEN, name, data))
                    told.append(settled(name, over_libp2p(answer)))
    return told


async def order(door: Door, name: str, arguments: Body) -> httpx.Response:
    bearer = {"Authorization": f"Bearer {TOKEN}"}
    if OPERATOR[name].method == "GET":
        return await door.client.get(name, params=query(arguments), headers=bearer)
    body = arguments or None
    return await door.client.post(name, json=body, headers=bearer)


async def test_the_ledger_is_shown_alike_at_both_doors(autojump_clock: MockClock) -> None:
    net = MemoryNetwork()
    assert set(READ) == set(LEDGER)
    async with (
        answering(net, MUSIVUM_SEED, CONFIG) as door,
        calling(net, ASKER_SEED, door.peer) as asker,
    ):
        work = Work([identity(1), identity(2), identity(3)], issued_at=clock())
        await door.opened.rooms.ledger.settle([work.proof(place) for place in range(3)])
        seen = []
        for name, cases in READ.items():
            for arguments in cases:
                http = over_http(await door.client.get(name, params=query(arguments)))
                frame = await asker.ask(Ask(name, json.dumps(arguments).encode()))
                assert over_libp2p(frame) == http, (name, arguments)
                seen.append(http[0])
        assert seen == [
            "answer", "bad_request", "answer", "answer", "unknown_entry", "answer", "answer",
            "unknown_entry", "answer", *["bad_request"] * 3,
        ]  # fmt: skip


async def test_a_published_manifest_binds_at_both_doors(autojump_clock: MockClock) -> None:
    net = MemoryNetwork()
    other = {**MANIFEST, "model_id": "small", "shape": {**MANIFEST["shape"], "vocab": 4097}}
    async with (
        answering(net, MUSIVUM_SEED, CONFIG, token=TOKEN) as door,
        http_node(net, SEEDS[0], door) as node,
        calling(net, SEEDS[1], door.peer) as caller,
    ):
        assert (await order(door, "/weights/manifest", other)).status_code == 200
        answer = await node.register()
        assert answer.status_code == 400
        assert over_http(answer)[0] == "bad_manifest"
        frame = await caller.register()
        assert isinstance(frame, Fail)
        assert (frame.code, frame.text) == ("bad_manifest", answer.json()["error"]["message"])
        assert door.opened.rooms.books.roster.nodes() == []
        found = (await door.client.get("/weights/manifest", params={"model_id": "small"})).json()
        assert found["published"] is True
        assert found["contract"] != contract_of(SMALL)


async def test_a_node_may_live_by_http_alone(autojump_clock: MockClock) -> None:
    net = MemoryNetwork()
    async with (
        answering(net, MUSIVUM_SEED, CONFIG) as door,
        http_node(net, SEEDS[0], door) as node,
    ):
        answer = (await node.register()).json()
        assert answer["assignment"] == {
            "model_repo": "small",
            "layer_ranges": [[0, 4]],
            "replica_group_id": 0,
            "expert_range": None,
        }
        assert answer["heartbeat_seconds"] == 10.0
        loading = {"status": "PendingLoad", "loaded_bytes": 25, "total_bytes": 100}
        assert (await node.call("/announce", loading)).json() == {"ok": True, "assignment": None}
        (row,) = (await door.client.get("/peers")).json()
        assert (row["status"], row["progress"]) == ("PendingLoad", 0.25)
        assert (await node.call("/ready", {"layers": [4, 8]})).status_code == 409
        assert (await node.call("/ready", {"layers": [0, 4]})).json()["ok"] is True
        beat = {"status": "Healthy", "role": "entry", "queue_depth": 2, "step_ms": 12.5}
        for _ in range(5):
            await trio.sleep(10)
            assert (await node.call("/announce", beat)).status_code == 200
        (row,) = (await door.client.get("/peers")).json()
        assert (row["status"], row["queue_depth"], row["step_ms"]) == ("Healthy", 2, 12.5)
        assert (await node.call("/deregister", {})).json() == {"ok": True, "assignment": None}
        assert (await door.client.get("/peers")).json() == []
        assert over_http(await node.call("/announce", beat))[0] == "unknown_worker"
        assert (await node.call("/deregister", {})).status_code == 200


@pytest.mark.parametrize("by_http_first", [True, False])
async def test_a_node_that_came_through_one_door_may_call_at_the_other(
    by_http_first: bool, autojump_clock: MockClock
) -> None:
    net = MemoryNetwork()
    async with (
        answering(net, MUSIVUM_SEED, CONFIG) as door,
        calling(net, SEEDS[0], door.peer) as frames,
    ):
        http = HttpNode(frames.identity, frames.host.address.addrs, door.peer.peer_id, door.client)
        if by_http_first:
            assert (await http.register()).status_code == 200
            assert await frames.call(Ready(LayerRange(0, 4))) == Accepted()
            assert await frames.call(Announce("Healthy", 1, 20.0)) == Accepted()
            assert (await http.call("/announce", {"status": "Draining"})).status_code == 200
            assert await statuses(door) == ["Draining"]
            assert await frames.call(Deregister()) == Accepted()
        else:
            await frames.register()
            assert (await http.call("/ready", {"layers": [0, 4]})).status_code == 200
            assert await frames.call(Announce("Healthy", 1, 20.0)) == Accepted()
            assert await statuses(door) == ["Healthy"]
            assert (await http.call("/deregister", {})).status_code == 200
        assert await statuses(door) == []


async def statuses(door: Door) -> list[str]:
    return [row["status"] for row in (await door.client.get("/peers")).json()]


async def test_a_registration_names_the_nodes_that_it_may_hand_on_to(
    autojump_clock: MockClock,
) -> None:
    net = MemoryNetwork()
    async with (
        answering(net, MUSIVUM_SEED, CONFIG) as door,
        http_node(net, SEEDS[0], door) as a,
        http_node(net, SEEDS[1], door) as b,
    ):
        await a.join(layers=[4, 10], api_addr=a.api_url)
        (peer,) = (await b.register(layers=[0, 4])).json()["peers"]
        listed = (await door.client.get("/peers")).json()
        assert peer in listed
        assert (peer["peer_id"], peer["http_addr"]) == (
            a.peer_id,
            a.addrs[0].split("/")[2],
        )


async def test_an_operator_is_known_by_the_token_alone(autojump_clock: MockClock) -> None:
    net = MemoryNetwork()
    async with (
        answering(net, MUSIVUM_SEED, CONFIG, token=TOKEN) as door,
        answering(net, ASKER_SEED, CONFIG) as tokenless,
    ):
        for question in OPERATOR.values():
            for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": TOKEN}):
                await trio.sleep(61)  # five wrong ones in a minute are told no more
                answer = await door.client.request(
                    question.method, question.path, headers=headers, json=MANIFEST
                )
                assert (answer.status_code, over_http(answer)[0]) == (401, "admin_only")
                assert "tessella-time" in answer.headers
        async with calling(net, SEEDS[0], door.peer) as caller:
            told = over_libp2p(await caller.ask(Operate("wrong", "/rebalance", b"")))
            assert told == ("admin_only", False)
        assert door.opened.rooms.books.manifests.all() == []
        empty = {"Authorization": "Bearer "}
        assert (await tokenless.client.post("/rebalance", headers=empty)).status_code == 401


async def test_names_that_nobody_answers_are_refused_alike(autojump_clock: MockClock) -> None:
    net = MemoryNetwork()
    async with (
        answering(net, MUSIVUM_SEED, CONFIG, token=TOKEN) as door,
        calling(net, ASKER_SEED, door.peer) as asker,
    ):
        assert over_http(await door.client.get("/nothing"))[0] == "unknown_route"
        assert over_libp2p(await asker.ask(Ask("/nothing", b"")))[0] == "unknown_route"
        assert over_libp2p(await asker.ask(Ask("/rebalance", b"")))[0] == "unknown_route"
        assert over_libp2p(await asker.ask(Operate(TOKEN, "/peers", b"")))[0] == "unknown_route"
        for arguments in (b"{", b"[]", b"\xff", b'{"model_id": "\\ud800"}', b"[" * 60_000):
            told = over_libp2p(await asker.ask(Ask("/peers", arguments)))
            assert told[0] == "bad_request", arguments[:20]
