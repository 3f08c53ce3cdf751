"""What a musivum answers the wizard, at both of its doors, and what others answer in its place."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
import trio
from trio.testing import MockClock

from musivum.config import MusivumConfig
from musivum.testing_http import BASE_URL, Door, answering, http_node
from p2p.testing import MemoryNetwork
from tessella.cli.wizard.offers import Need, Offer
from tessella.cli.wizard.questions import (
    HEALTH,
    HEALTHS_SHOWN,
    MODELS,
    PREVIEW,
    Question,
    ask_health,
    ask_offers,
    ask_preview,
    http_question,
    libp2p_question,
)
from tessella.core.errors import (
    BadFrame,
    ClaimTooSmall,
    PeerSilent,
    Refused,
    RemoteFailure,
    UnknownManifest,
)
from tessella.core.layers import LayerRange
from tessella.web.client import open_client

SEED, NODE, CLIENT = b"m" * 32, b"n" * 32, b"c" * 32
# 12 layers of a MB: a floor for strangers would refuse every claim.
CONFIG = MusivumConfig(http=(), min_vram_mb=1, dial_back=False)


@asynccontextmanager
async def asking(kind: str, net: MemoryNetwork, door: Door) -> AsyncIterator[Question]:
    if kind == "http":
        yield http_question(door.client, BASE_URL)
    else:
        async with net.host(CLIENT) as host, libp2p_question(host, door.peer) as question:
            yield question


@pytest.mark.parametrize("kind", ["http", "libp2p"])
async def test_a_musivum_tells_what_its_mesh_lacks_and_what_a_claim_gets(kind: str) -> None:
    net = MemoryNetwork()
    async with (
        answering(net, SEED, CONFIG) as door,
        http_node(net, NODE, door) as node,
        asking(kind, net, door) as question,
    ):
        assert await ask_offers(question, "cpu") == []
        start, stop = await node.join()
        (offer,) = await ask_offers(question, "cpu")
        hole = LayerRange(stop, 12)
        assert (start, offer.model, offer.serving, offer.nodes) == (0, "small", 1, 1)
        assert (offer.missing, offer.floor_mb) == ((hole,), 1)
        assert offer.need is not None
        assert offer.need.layers == hole
        # What is asked for a hole does hold it.
        assert offer.need.claim_mb is not None
        got = await ask_preview(question, "small", offer.need.claim_mb, "cpu")
        assert (got.layers, got.total_layers, got.is_replica) == (hole, 12, False)
        with pytest.raises(ClaimTooSmall, match="holds no layer here"):
            await ask_preview(question, "small", 1, "cpu")
        with pytest.raises(UnknownManifest):
            await ask_preview(question, "unheard-of", 100, "cpu")
        unknown = await ask_health(question, "unheard-of", "cuda")
        assert (unknown.total_layers, unknown.holes, unknown.min_vram_mb) == (None, [], 1)


LISTED = {"model_id": "small", "active_workers": 1, "workers": 1, "health": "incomplete"}
FACTS: dict[str, Any] = {
    "total_layers": 12,
    "holes": [{"start": 4, "stop": 12, "claim_mb": 9}],
    "loading": [],
    "mem_per_layer_mb": 1.0,
    "global_tensor_mb": 2.0,
    "usable_vram_pct": 90,
    "min_vram_mb": 0,
    "replica_claim_mb": 400,
}


@asynccontextmanager
async def answers(bodies: Mapping[str, object]) -> AsyncIterator[Question]:
    """Questions to somebody who answers each path with a body, and others with 404."""

    def handler(request: httpx.Request) -> httpx.Response:
        if request.url.path not in bodies:
            return httpx.Response(404, content=b"<html>")
        return httpx.Response(200, content=json.dumps(bodies[request.url.path]).encode())

    async with open_client(httpx.MockTransport(handler)) as client:
        yield http_question(client, "https://tracker.example/mesh")


async def test_a_query_is_escaped_and_stands_below_the_url() -> None:
    seen: list[str] = []

    async def handler(request: httpx.Request) -> httpx.Response:
        seen.append(str(request.url))
        return httpx.Response(200, content=json.dumps(FACTS).encode())

    async with open_client(httpx.MockTransport(handler)) as client:
        await ask_health(http_question(client, "https://tracker.example/mesh"), "a/b&c", "cpu")
    assert seen == ["https://tracker.example/mesh/model_health?model_id=a%2Fb%26c&device=cpu"]


async def test_fields_that_are_not_known_are_left_alone() -> None:
    bodies = {f"/mesh{MODELS}": [{**LISTED, "a": 1}], f"/mesh{HEALTH}": {**FACTS, "b": {}}}
    async with answers(bodies) as question:
        (offer,) = await ask_offers(question, "cpu")
    assert offer.need == Need(LayerRange(4, 12), 9)


async def test_a_model_whose_holes_are_not_told_is_shown_all_the_same() -> None:
    async with answers({f"/mesh{MODELS}": [LISTED]}) as question:
        offers = await ask_offers(question, "cpu")
    assert offers == [Offer(model="small", serving=1, nodes=1, health="incomplete")]


async def test_holes_are_asked_for_of_the_first_models_alone() -> None:
    asked: list[str] = []

    async def question(path: str, query: Mapping[str, str]) -> object:
        if path == MODELS:
            return [{**LISTED, "model_id": f"m{number}"} for number in range(100)]
        asked.append(query["model_id"])
        return FACTS

    assert len(await ask_offers(question, "cpu")) == 100
    assert sorted(asked) == sorted(f"m{number}" for number in range(HEALTHS_SHOWN))


async def test_holes_that_do_not_come_are_not_waited_for(autojump_clock: MockClock) -> None:
    async def question(path: str, query: Mapping[str, str]) -> object:
        if path == MODELS:
            return [LISTED]
        await trio.sleep(3600)
        raise PeerSilent("it is silent")

    (offer,) = await ask_offers(question, "cpu")
    assert offer.missing == ()
    assert trio.current_time() < 60


@pytest.mark.parametrize(
    ("path", "body", "named"),
    [
        (MODELS, {}, "all of it"),
        (MODELS, [{**LISTED, "model_id": ""}], "0.model_id"),
        (MODELS, [{**LISTED, "model_id": "\x1b[2Jx"}], "0.model_id"),
        (MODELS, [{**LISTED, "workers": "many"}], "0.workers"),
        (MODELS, [LISTED] * 1001, "all of it"),
        (HEALTH, {**FACTS, "holes": [{"start": 5, "stop": 5, "claim_mb": 1}]}, "holes.0"),
        (HEALTH, {**FACTS, "holes": [{"start": 5, "stop": 13, "claim_mb": 1}]}, "all of it"),
        (HEALTH, {**FACTS, "total_layers": None}, "all of it"),
        (HEALTH, {**FACTS, "usable_vram_pct": 0}, "usable_vram_pct"),
        (PREVIEW, {"assignment": {"layer_ranges": []}}, "assignment.layer_ranges"),
        (PREVIEW, {"assignment": {"layer_ranges": [[3, 3]]}}, "assignment"),
    ],
)
async def test_what_no_musivum_answers_is_refused_by_its_field(
    path: str, body: object, named: str
) -> None:
    async with answers({f"/mesh{path}": body}) as question:
        with pytest.raises(BadFrame) as caught:
            match path:
                case "/api/network/models":
                    await ask_offers(question, "cpu")
                case "/model_health":
                    await ask_health(question, "small", "cpu")
                case _:
                    await ask_preview(question, "small", 1, "cpu")
    assert f"{path} answers what no musivum does, at {named}:" in str(caught.value)


async def test_another_program_at_that_url_is_told_by_its_status() -> None:
    async with answers({}) as question:
        with pytest.raises(RemoteFailure, match="answered with status 404"):
            await ask_offers(question, "cpu")


async def test_a_peer_that_is_no_musivum_is_told(autojump_clock: MockClock) -> None:
    net = MemoryNetwork()
    async with net.host(SEED) as other, net.host(CLIENT) as host:
        with pytest.raises(Refused, match="does not speak /musivum/tracker/1"):
            async with libp2p_question(host, other.address):
                pytest.fail("asked")
