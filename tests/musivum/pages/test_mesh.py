"""The public questions, over HTTP: what each says of meshes in every state."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from musivum.config import MusivumConfig
from musivum.pages.mesh import MAX_NEXT_HOPS
from musivum.testing import SMALL
from musivum.testing_http import Body, Door, HttpNode, answering, http_node
from p2p.testing import MemoryNetwork
from tessella.core.contracts import contract_of
from tessella.core.identity import Identity
from tessella.core.peers import decode_rows, encode_rows
from tessella.core.plan import claim_for
from tessella.core.route import choose_chain
from tessella.core.shape_json import decode_shape
from tessella.web.errors import ErrorBody

MUSIVUM_SEED = b"m" * 32
SEEDS = [bytes([number]) * 32 for number in range(1, 9)]
IDS = [Identity(seed).peer_id for seed in SEEDS]
CONFIG = MusivumConfig(min_vram_mb=0)
UNPROVEN = MusivumConfig(min_vram_mb=0, dial_back=False)
SMALL_MODEL = {"model_id": "small"}


@asynccontextmanager
async def meshed(
    *ready: int, nodes: int = 3, config: MusivumConfig = CONFIG
) -> AsyncIterator[tuple[Door, list[HttpNode]]]:
    """Nodes that hold 0:4, 4:10 and 10:12 of the small model; those that are named serve."""
    net = MemoryNetwork()
    async with answering(net, MUSIVUM_SEED, config) as door, trio.open_nursery() as nursery:
        opened = [await nursery.start(hold, net, seed, door) for seed in SEEDS[:nodes]]
        for number, node in enumerate(opened):
            ask = node.join if number in ready else node.register
            await ask(api_addr=node.api_url)
        yield door, opened
        nursery.cancel_scope.cancel()


async def hold(net: MemoryNetwork, seed: bytes, door: Door, *, task_status: Any) -> None:
    async with http_node(net, seed, door) as node:
        task_status.started(node)
        await trio.sleep_forever()


def nowhere(identity: Identity, door: Door) -> HttpNode:
    """A node that nobody can dial, for a musivum that does not."""
    return HttpNode(identity, ("/ip4/10.9.9.9/tcp/4001",), door.peer.peer_id, door.client)


async def got(door: Door, path: str, **query: object) -> Any:
    answer = await door.client.get(path, params={k: str(v) for k, v in query.items()})
    assert answer.headers["content-type"] == "application/json"
    assert answer.status_code == 200, answer.text
    return answer.json()


async def refused(door: Door, path: str, **query: object) -> tuple[int, dict[str, Any]]:
    answer = await door.client.get(path, params={k: str(v) for k, v in query.items()})
    error = ErrorBody.model_validate_json(answer.content).error
    assert answer.headers.get("retry-after") == (
        str(error.retry_after) if error.retry_after else None
    )
    return answer.status_code, error.model_dump(exclude_none=True)


async def test_a_musivum_without_nodes_knows_nobody(autojump_clock: MockClock) -> None:
    async with meshed(nodes=0) as (door, _):
        for path in ("/peers", "/api/network/models", "/workers", "/weights/manifests"):
            assert await got(door, path) == []


async def test_a_model_that_nobody_serves_is_no_error(autojump_clock: MockClock) -> None:
    async with meshed(0, 1, 2) as (door, _):
        assert await got(door, "/peers", model_id="unknown") == []
        assert await got(door, "/workers", model_id="unknown") == []
        health = await got(door, "/model_health", model_id="unknown")
        blank = {key for key, value in health.items() if value is None}
        assert blank == {
            "total_layers", "unavailable", "device", "dtype", "kv_cache_type", "context_size",
            "parallel_slots", "mem_per_layer_mb", "weights_per_layer_mb", "kv_per_layer_mb",
            "global_tensor_mb", "embedding_mb", "head_mb", "replica_claim_mb",
        }  # fmt: skip
        assert {key: value for key, value in health.items() if key not in blank} == {
            "model_id": "unknown", "health": "incomplete", "covered_layers": 0,
            "prefix_layers": 0, "workers": 0, "holes": [], "loading": [], "available": False,
            "usable_vram_pct": 90, "min_vram_mb": 0,
        }  # fmt: skip


# Which nodes serve: health, covered, prefix, holes, available, state of what is missing.
MESHES: dict[tuple[int, ...], tuple[str, int, int, list[list[int]], str | None]] = {
    (): ("incomplete", 0, 0, [[0, 12]], "loading"),
    (0,): ("incomplete", 4, 4, [[4, 12]], "loading"),
    (0, 1): ("incomplete", 10, 10, [[10, 12]], "loading"),
    (0, 2): ("degraded", 6, 4, [[4, 10]], "loading"),
    (2,): ("degraded", 2, 0, [[0, 10]], "loading"),
    (0, 1, 2): ("healthy", 12, 12, [], None),
}


@pytest.mark.parametrize("ready", MESHES, ids=str)
async def test_health_follows_what_serves(
    ready: tuple[int, ...], autojump_clock: MockClock
) -> None:
    word, covered, prefix, missing, state = MESHES[ready]
    async with meshed(*ready) as (door, _):
        health = await got(door, "/model_health", **SMALL_MODEL)
        assert (health["health"], health["total_layers"]) == (word, 12)
        assert (health["covered_layers"], health["prefix_layers"]) == (covered, prefix)
        assert [[hole["start"], hole["stop"]] for hole in health["holes"]] == missing
        assert health["available"] is (state is None)
        assert health["workers"] == 3
        held = [[0, 4], [4, 10], [10, 12]]
        loading = [held[number] for number in range(3) if number not in ready]
        assert [[one["start"], one["stop"]] for one in health["loading"]] == loading
        (listed,) = await got(door, "/api/network/models")
        assert listed == {
            "model_id": "small", "active_workers": len(ready), "workers": 3, "health": word,
            "total_layers": 12,
        }  # fmt: skip
        if state is None:
            assert health["unavailable"] is None
            assert (await got(door, "/api/v1/chain", **SMALL_MODEL))["entry"] == IDS[0]
        else:
            status, error = await refused(door, "/api/v1/chain", **SMALL_MODEL)
            assert (status, error["code"]) == (503, "model_unavailable")
            assert (error["details"]["state"], error["details"]["missing"]) == (state, missing)
            told = health["unavailable"]
            assert error["message"] == told["message"]
            assert error["retry_after"] == told["retry_after"]
            assert error["details"].items() <= told.items()


async def test_a_hole_says_what_would_close_it(autojump_clock: MockClock) -> None:
    async with meshed(0, 1, nodes=2) as (door, opened):
        health = await got(door, "/model_health", **SMALL_MODEL)
        (hole,) = health["holes"]
        terms = door.opened.rooms.books.roster.nodes()[0].terms
        assert hole == {"start": 10, "stop": 12, "claim_mb": 5}
        assert claim_for(terms, door.opened.rooms.books.roster.nodes()[0].row.layers) == 8
        # The division that a node may make for itself is never too small.
        layers = hole["stop"] - hole["start"]
        needed = layers * health["mem_per_layer_mb"] + health["global_tensor_mb"]
        assert hole["claim_mb"] <= -(-needed * 100 // health["usable_vram_pct"])
        status, error = await refused(door, "/api/v1/chain", **SMALL_MODEL)
        assert (status, error["retry_after"]) == (503, 30)
        assert error["details"] == {
            "state": "missing", "missing": [[10, 12]], "claim_mb": 5, "progress": None,
            "eta_seconds": None,
        }  # fmt: skip
        assert "layers 10:12" in error["message"]
        assert "5 MB" in error["message"]
        answer = await opened[0].call("/deregister", {})
        assert answer.status_code == 200
        preview = await got(door, "/api/v1/assignment", vram_mb=8, **SMALL_MODEL)
        assert preview["assignment"]["layer_ranges"] == [[0, 4]]


async def test_a_load_says_how_far_it_is_and_when_it_will_be_there(
    autojump_clock: MockClock,
) -> None:
    async with meshed(0, 1) as (door, (_, _, last)):
        for loaded in (0, 250):
            beat = {"status": "PendingLoad", "loaded_bytes": loaded, "total_bytes": 1000}
            await last.call("/announce", beat)
            await trio.sleep(10 if not loaded else 0)
        status, error = await refused(door, "/api/v1/chain", **SMALL_MODEL)
        assert (status, error["retry_after"]) == (503, 30)
        details = error["details"]
        assert (details["state"], details["progress"], details["eta_seconds"]) == (
            "loading", 0.25, 30.0,
        )  # fmt: skip
        assert details["claim_mb"] == 0
        assert "layers 10:12 are loading, 25%" in error["message"]
        (row,) = [row for row in await got(door, "/peers") if row["status"] == "PendingLoad"]
        assert row["progress"] == 0.25
        (loading,) = (await got(door, "/model_health", **SMALL_MODEL))["loading"]
        assert (loading["progress"], loading["eta_seconds"]) == (0.25, 30.0)


async def test_a_chain_is_the_one_that_routing_chooses(autojump_clock: MockClock) -> None:
    async with meshed(0, 1, 2, nodes=6) as (door, opened):
        for number in (3, 4, 5):
            await opened[number].join(layers=[[0, 4], [4, 10], [10, 12]][number - 3])
            beat = {"status": "Healthy", "step_ms": 1.0, "queue_depth": number % 2}
            await opened[number].call("/announce", beat)
        body = await got(door, "/api/v1/chain", **SMALL_MODEL)
        rows = [node.row for node in door.opened.rooms.books.roster.nodes()]
        chosen = choose_chain(decode_rows(encode_rows(rows)), 12)
        assert body["model_id"] == "small"
        assert body["entry"] == chosen[0].peer_id
        stages = [(stage["peer_id"], stage["layers"]) for stage in body["chain"]]
        assert stages == [(each.peer_id, [each.layers.start, each.layers.stop]) for each in chosen]
        peers = {row["peer_id"]: row for row in await got(door, "/peers")}
        for stage in body["chain"]:
            assert stage["p2p_addrs"] == peers[stage["peer_id"]]["p2p_addrs"]
            assert stage["http_api_url"] == peers[stage["peer_id"]]["http_api_url"]


async def test_peers_say_where_and_workers_do_not(autojump_clock: MockClock) -> None:
    async with meshed(0, 1) as (door, opened):
        peers = await got(door, "/peers", **SMALL_MODEL)
        first = next(row for row in peers if row["peer_id"] == IDS[0])
        assert first == {
            "peer_id": IDS[0],
            "model_id": "small",
            "status": "Healthy",
            "layer_ranges": [[0, 4]],
            "total_layers": 12,
            "replica_group_id": 0,
            "http_api_url": opened[0].api_url,
            "http_addr": opened[0].addrs[0].split("/")[2],
            "p2p_addrs": [f"{opened[0].addrs[0]}/p2p/{IDS[0]}"],
            "device": "cpu",
            "dtype": "f32",
            "queue_depth": 0,
            "step_ms": 0.0,
            "canary": False,
            "progress": None,
            "reported": 0,
            "confirmed": 0,
            "contract": contract_of(SMALL),
        }
        answer = await door.client.get("/workers")
        for trace in ("10.0.", "/ip4", "/ip6", "http", "8080", "4001", "addr", "url"):
            assert trace not in answer.text
        worker = next(row for row in answer.json() if row["peer_id"] == IDS[0])
        assert worker == {
            "peer_id": IDS[0], "model_id": "small", "status": "Healthy", "vram_mb": 8,
            "queue_depth": 0, "layer_ranges": [[0, 4]], "device": "cpu",
        }  # fmt: skip


async def test_the_key_to_pin_is_the_hosts(autojump_clock: MockClock) -> None:
    async with meshed(nodes=0) as (door, _):
        told = await got(door, "/p2p_id")
        assert told == {"peer_id": door.peer.peer_id, "multiaddrs": list(door.peer.full())}
        assert told["peer_id"] == Identity(MUSIVUM_SEED).peer_id


CLAIMS: list[Body] = [
    {"vram_mb": 1}, {"vram_mb": 2}, {"vram_mb": 3}, {"vram_mb": 4}, {"vram_mb": 5}, {"vram_mb": 8},
    {"vram_mb": 13}, {"vram_mb": 20}, {"vram_mb": 2000}, {"vram_mb": 1 << 30},
    {"vram_mb": 8, "dtype": "f16"}, {"vram_mb": 8, "kv_cache_type": "q4_0"},
    {"vram_mb": 8, "context_size": 64}, {"vram_mb": 8, "parallel_slots": 9},
    {"vram_mb": 8, "device": "cuda"}, {"vram_mb": 9, "device": "metal", "dtype": "bf16"},
]  # fmt: skip
AS_REGISTERED: Body = {
    "device": "cpu", "dtype": "f32", "kv_cache_type": "f32", "context_size": 256,
    "parallel_slots": 1,
}  # fmt: skip


@pytest.mark.parametrize("nodes", [1, 2, 3])
async def test_a_preview_is_what_a_registration_gets(nodes: int, autojump_clock: MockClock) -> None:
    outcomes = set()
    async with meshed(0, nodes=nodes, config=UNPROVEN) as (door, _):
        node = nowhere(Identity(SEEDS[7]), door)
        for claim in CLAIMS:
            asked: Body = {**AS_REGISTERED, **claim}
            preview = await door.client.get("/api/v1/assignment", params={**SMALL_MODEL, **asked})
            given = await node.register(**asked)
            assert preview.status_code == given.status_code, claim
            if preview.status_code == 200:
                assert preview.json()["assignment"] == given.json()["assignment"]
                (layers,) = preview.json()["assignment"]["layer_ranges"]
                assert preview.json()["is_replica"] is (layers == [0, 12])
                assert preview.json()["total_layers"] == 12
                assert preview.json()["least_claim_mb"] <= asked["vram_mb"]
            else:
                assert preview.json() == given.json()
                outcomes.add(preview.json()["error"]["code"])
            await node.call("/deregister", {})
            outcomes.add(str(preview.status_code))
    assert outcomes == {"200", "409", "claim_too_small"}


async def test_what_a_preview_calls_least_is_enough_and_no_more(autojump_clock: MockClock) -> None:
    async with meshed(0, nodes=1) as (door, _):
        for vram_mb in (5, 8, 13):
            preview = await got(door, "/api/v1/assignment", vram_mb=vram_mb, **SMALL_MODEL)
            least = preview["least_claim_mb"]
            assert least <= vram_mb
            again = await got(door, "/api/v1/assignment", vram_mb=least, **SMALL_MODEL)
            assert again["assignment"] == preview["assignment"]
            less = await door.client.get(
                "/api/v1/assignment", params={**SMALL_MODEL, "vram_mb": least - 1}
            )
            assert less.json().get("assignment") != preview["assignment"]


async def test_a_preview_of_a_model_without_manifest_is_not_found(
    autojump_clock: MockClock,
) -> None:
    async with meshed(0) as (door, _):
        for path in ("/api/v1/assignment", "/weights/manifest", "/api/v1/chain"):
            query = {"vram_mb": 8} if path == "/api/v1/assignment" else {}
            status, error = await refused(door, path, model_id="unknown", **query)
            assert (status, error["code"]) == (404, "unknown_manifest")
            assert "'unknown'" in error["message"]
        status, error = await refused(door, "/api/v1/assignment", vram_mb=1, **SMALL_MODEL)
        assert (status, error["code"]) == (409, "claim_too_small")


async def test_a_model_of_the_same_name_and_another_shape_changes_nothing_that_is_told(
    autojump_clock: MockClock,
) -> None:
    """The stranger's peer id sorts before all others, and it says that it serves everything."""
    async with meshed(0, 1, config=UNPROVEN) as (door, _):
        before = {
            path: await got(door, path) for path in ("/api/network/models", "/weights/manifests")
        }
        models = (await got(door, "/status"))["models"]
        stranger = min(
            (Identity(bytes([n]) * 32) for n in range(100, 160)), key=lambda i: i.peer_id
        )
        assert stranger.peer_id < min(IDS[:2])
        shape = {**before["/weights/manifests"][0]["shape"], "layers": 1}
        node = nowhere(stranger, door)
        changed = contract_of_shape(shape)
        assert await node.join(shape=shape, total_layers=1, contract=changed) == [0, 1]
        (model,) = await got(door, "/api/network/models")
        assert (model["health"], model["total_layers"]) == ("incomplete", 12)
        assert await got(door, "/weights/manifests") == before["/weights/manifests"]
        (told,) = (await got(door, "/status"))["models"]
        assert told == {**models[0], "nodes": 4}
        text = (await door.client.get("/metrics")).text
        assert 'musivum_model_available{model="small"} 0.0' in text


def contract_of_shape(shape: Body) -> str:
    return contract_of(decode_shape(json.dumps(shape).encode()))


async def test_next_hops_are_those_that_go_on_from_a_range(autojump_clock: MockClock) -> None:
    async with meshed(0, 1, 2, nodes=5) as (_, opened):
        await opened[3].join(layers=[4, 10])
        await opened[4].join(layers=[2, 8])
        await opened[1].call("/announce", {"status": "Healthy", "queue_depth": 1})
        answer = await opened[0].register(layers=[0, 4])
        hops = [row["peer_id"] for row in answer.json()["peers"]]
        idle = sorted([IDS[3], IDS[4]])
        assert hops == [*idle, IDS[1]]
        assert len(hops) <= MAX_NEXT_HOPS
        last = (await opened[2].register(layers=[10, 12])).json()["peers"]
        assert last == []
