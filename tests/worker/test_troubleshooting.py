"""What goes wrong for a node's owner, and what is seen of it: by status, by log, on stderr."""

from __future__ import annotations

import io
import secrets
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest
import torch
import trio
from trio.testing import MockClock

from tessella.cli.node import tell_people
from tessella.cli.render import LoadingBars
from tessella.client import ask_peers
from tessella.core.addresses import PeerAddress
from tessella.core.errors import ModelUnavailable, RemoteFailure
from tessella.core.identity import Identity
from tessella.core.ids import PeerId
from tessella.core.layers import LayerRange
from tessella.core.messages import AskStatus, encode
from tessella.core.peers import PeerRow, choose_entry
from tessella.core.plan import MB
from tessella.core.signed_request import Request, sign_request
from tessella.engine.shard import Shard
from tessella.worker.http_hops.asks import FORWARD_PATH, MAX_HOP_BODY, Act, Ask
from tessella.worker.loading import Loader, Note
from tessella.worker.state import Loaded
from tessella.worker.testing import Hub, Listed
from tests.worker.conftest import Node, wall_clock
from tests.worker.doors import Doors
from tests.worker.http_chain import InProcess, a_chain
from tests.worker.split import BEAT, SHAPE, split, write_split

OpenMesh = Callable[..., Any]
CHAT, GENERATE = "/v1/chat/completions", "/v1/generate"
HELLO = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 2}
NODE, STRANGER = Identity(b"n" * 32), Identity(b"s" * 32)


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_split(tmp_path_factory.mktemp("split"))


@pytest.fixture
def doors(monkeypatch: pytest.MonkeyPatch) -> Doors:
    return Doors(monkeypatch)


def told(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


# It runs, and nobody lists it.


@pytest.fixture
def slow_load(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loads take 20 seconds of virtual time, and say so after 10."""
    load = Loader.load

    async def slowly(loader: Loader, layers: LayerRange, note: Note) -> Loaded:
        await trio.sleep(10.0)
        note(500, 1000)
        await trio.sleep(10.0)
        return await load(loader, layers, note)

    monkeypatch.setattr(Loader, "load", slowly)


def statuses(rows: Iterable[PeerRow]) -> list[tuple[str, bool]]:
    return [(row.status, row.serves) for row in rows]


async def test_a_node_that_loads_shows_what_it_was_assigned_and_is_not_healthy(
    weights: Path, autojump_clock: MockClock, doors: Doors, slow_load: None
) -> None:
    async with split(weights) as mesh:
        node = await mesh.begin(**doors.config)
        await trio.sleep(12.0)
        assert statuses(await ask_peers(mesh.client, mesh.musivum.address)) == [
            ("PendingLoad", False)
        ]
        async with doors.client(node) as client:
            status = (await client.get("/status")).json()
            assert status["status"] == "PendingLoad"
            assert status["assignment"]["layer_ranges"] == status["layer_ranges"] == [[0, 2]]
            assert status["loading"] == {"loaded_bytes": 500, "total_bytes": 1000}
            for answer in (await client.post(CHAT, json=HELLO), await client.get("/health")):
                assert told(answer) == (503, "model_unavailable")
                error = answer.json()["error"]
                assert error["message"] == "this node is still loading: 500 of 1000 bytes"
                details = error["details"]
                assert (details["state"], details["progress"]) == ("loading", 0.5)
                # As long again as it took so far: a half is there.
                assert details["eta_seconds"] == pytest.approx(12.0, abs=0.2)
                assert 12 <= int(answer.headers["Retry-After"]) == error["retry_after"] <= 13
            await mesh.until(lambda: node.is_started, within=10.0)
            assert statuses(await ask_peers(mesh.client, mesh.musivum.address)) == [
                ("Healthy", True)
            ]
            assert (await client.get("/health")).status_code == 200
    assert on_stderr(node) == ["node  layers 0:2  loading", "node  layers 0:2  ready"]


def on_stderr(node: Node) -> list[str]:
    """What is shown of a node's life where stderr is no terminal."""
    file = io.StringIO()
    with LoadingBars(file) as bars:
        tell = tell_people(bars)
        for event in node.events:
            tell(event)
    return file.getvalue().splitlines()


async def test_a_node_that_nobody_assigned_anything_says_that_it_waits(
    weights: Path, autojump_clock: MockClock, doors: Doors
) -> None:
    async with split(weights) as mesh, mesh.net.host(b"d" * 32) as deaf:
        node = await mesh.begin(musivum=(deaf.address,), **doors.config)
        async with doors.client(node) as client:
            assert (await client.get("/status")).json()["assignment"] is None
            answer = await client.get("/health")
            assert told(answer) == (503, "model_unavailable")
            assert "waits for its mesh to assign layers" in answer.json()["error"]["message"]
            assert "Retry-After" in answer.headers
        node.scope.cancel()


# It is full.


async def test_a_full_node_refuses_a_hop_before_it_is_read_and_shows_that_it_is_full(
    open_mesh: OpenMesh, autojump_clock: MockClock, doors: Doors
) -> None:
    read = 0

    async def body() -> AsyncIterator[bytes]:
        nonlocal read
        read += 1
        yield encode(AskStatus())

    async with open_mesh([6], max_hop_bodies=1, **doors.config) as mesh:
        (node,) = mesh.nodes

        async def post(client: httpx.AsyncClient, ask: Ask) -> httpx.Response:
            asked = Request("POST", FORWARD_PATH, ask.query(), b"", node.identity.peer_id)
            headers = sign_request(asked, STRANGER, wall_clock(), secrets.token_bytes(16))
            content = body() if ask.act is Act.WRITE else b""
            url = f"{FORWARD_PATH}?{urlencode(ask.query())}"
            return await client.post(url, content=content, headers=headers)

        async with doors.client(node) as client:
            assert (await post(client, Ask(bytes(16), Act.OPEN))).status_code == 200
            with doors.rooms(node).bodies.place():
                status = (await client.get("/status")).json()
                assert status["hop_bodies_in_flight"] == status["max_concurrent_hop_bodies"] == 1
                answer = await post(client, Ask(bytes(16), Act.WRITE, 1))
                assert (*told(answer), read) == (503, "too_many_hop_bodies", 0)
                assert "full, not broken" in answer.json()["error"]["message"]
                assert int(answer.headers["Retry-After"]) >= 1
            metrics = (await client.get("/metrics")).text
        assert 'tessella_refused_total{code="too_many_hop_bodies"} 1.0' in metrics


async def test_a_node_reads_no_more_hop_bodies_at_once_than_memory_holds(
    open_mesh: OpenMesh,
    autojump_clock: MockClock,
    doors: Doors,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    free = 64 * MB + 6 * MAX_HOP_BODY
    monkeypatch.setattr("tessella.worker.node.free_ram", lambda: free)
    async with open_mesh([6], claim_mb=64, **doors.config) as mesh:
        (node,) = mesh.nodes
        async with doors.client(node) as client:
            status = (await client.get("/status")).json()
    assert status["max_concurrent_hop_bodies"] == 3


async def test_a_chain_waits_for_a_full_stage_and_then_says_that_it_is_full(
    toy_weights: Path, autojump_clock: MockClock
) -> None:
    async with a_chain(toy_weights, [3, 3], InProcess(), over_http=[False, True]) as chain:
        bodies = chain.links[1].node.bodies
        with bodies.place(), bodies.place(), pytest.raises(RemoteFailure) as caught:
            await chain.ask("a prompt", max_tokens=2)
        assert (caught.value.code, caught.value.status) == ("too_many_hop_bodies", 503)
        assert caught.value.retry
        assert chain.blamed == [], "a node that is full is not one that fails"
        assert len((await chain.ask("a prompt", max_tokens=2)).ids) == 2


# A prompt is too long.


async def test_a_long_prompt_is_refused_with_what_it_is_and_what_is_taken(
    open_mesh: OpenMesh, autojump_clock: MockClock, doors: Doors
) -> None:
    async with open_mesh([6], context=128, max_input_tokens=100, **doors.config) as mesh:
        async with doors.client(mesh.nodes[0]) as client:
            status = (await client.get("/status")).json()
            assert (status["max_input_tokens"], status["context_size"]) == (100, 128)
            assert status["max_input_tokens_source"] == "declared"

            async def ask(characters: int) -> httpx.Response:
                # A token a byte.
                return await client.post(GENERATE, json={"prompt": "x" * characters})

            over = await ask(101)
            assert told(over) == (413, "input_too_long")
            assert over.json()["error"]["message"] == (
                "the prompt is 101 tokens, this node takes 100 (declared)"
            )
            beyond = await ask(128)
            assert told(beyond) == (400, "context_length_exceeded")
            assert beyond.json()["error"]["message"] == (
                "the prompt is 128 tokens, this node's context is 128"
            )
            large = await ask(status["max_body_bytes"])
            assert told(large) == (413, "body_too_large")
            assert str(status["max_body_bytes"]) in large.json()["error"]["message"]
            fits = await ask(100)
            assert fits.json()["usage"]["total_tokens"] == 128
            metrics = (await client.get("/metrics")).text
        for code in ("input_too_long", "context_length_exceeded", "body_too_large"):
            assert f'tessella_refused_total{{code="{code}"}} 1.0' in metrics


# A stage is slower than the others are patient.


@pytest.mark.parametrize(("hop_timeout", "waits"), [(4.0, False), (10.0, True)])
async def test_hops_that_die_at_the_same_timeout_name_the_stage_and_the_setting(
    open_mesh: OpenMesh,
    autojump_clock: MockClock,
    doors: Doors,
    caplog: pytest.LogCaptureFixture,
    hop_timeout: float,
    waits: bool,
) -> None:
    async with open_mesh([2, 4], hop_timeout=hop_timeout, **doors.config) as mesh:
        entry, slow = mesh.nodes
        compute = slow.compute.run

        async def without_a_word(work: Any, **how: Any) -> Any:
            await trio.sleep(6.0)
            return await compute(work, **how)

        slow.compute.run = without_a_word
        async with doors.client(entry) as client:
            assert (await client.get("/status")).json()["hop_timeout_secs"] == hop_timeout
            answers = [await client.post(CHAT, json=HELLO) for _ in range(2)]
            if waits:
                assert [answer.status_code for answer in answers] == [200, 200]
                return
            for answer in answers:
                assert told(answer) == (502, "peer_silent")
                assert answer.json()["error"]["message"].startswith(
                    f"{slow.identity.peer_id} with layers 2:6 made no progress for 4 s "
                    "(p2p_inference_timeout_secs), at position "
                )
            failures = (await client.get("/status")).json()["peer_failures"]
            assert failures == {slow.identity.peer_id: 2}
    warned = [each for each in caplog.messages if "failed a session: peer_silent: " in each]
    assert len(warned) == 2
    assert all(each.startswith(slow.identity.peer_id) for each in warned)


# A device has less memory than was claimed.


async def test_a_node_without_memory_is_saturated_and_says_what_needs_less(
    open_mesh: OpenMesh,
    autojump_clock: MockClock,
    doors: Doors,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def has_none(*_: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")

    rule = {"oom_streak": 3, "oom_window_seconds": 30.0}
    async with open_mesh([6], **rule, **doors.config) as mesh:
        (node,) = mesh.nodes
        async with doors.client(node) as client:
            with monkeypatch.context() as patched:
                patched.setattr(Shard, "open_cache", has_none)
                for _ in range(3):
                    answer = await client.post(CHAT, json=HELLO)
                    assert told(answer) == (503, "out_of_memory")
                    assert "Retry-After" in answer.headers
                await trio.sleep(0.5)
                status = (await client.get("/status")).json()
                assert (status["status"], status["out_of_memory"]) == ("Saturated", 3)
                for answer in (await client.post(CHAT, json=HELLO), await client.get("/health")):
                    assert told(answer) == (503, "model_unavailable")
                    error = answer.json()["error"]
                    assert error["details"]["state"] == "saturated"
                    assert 25 <= int(answer.headers["Retry-After"]) <= 30
                (row,) = await ask_peers(mesh.client, mesh.musivum.address)
                assert (row.status, row.serves) == ("Saturated", False)
                # It stopped to take work, and does not thrash.
                assert (await client.get("/status")).json()["out_of_memory"] == 3
            await trio.sleep(32.0)
            assert (await client.post(CHAT, json=HELLO)).status_code == 200
    (warned,) = [each for each in caplog.messages if "in a row" in each]
    assert "none is taken for 30 s" in warned
    assert all(name in warned for name in ("vram_mb", "parallel_slots", "context_size"))
    assert "a session ran out of memory: 3 since the start" in caplog.messages


# Answers are wrong on purpose.


class Canary(Listed):
    """A node as it is listed that answers wrongly on purpose."""

    def row(self, peer: PeerId) -> PeerRow:
        return replace(super().row(peer), canary=True)


def list_canaries(hub: Hub, nodes: Sequence[Node], birds: Sequence[Node]) -> None:
    """List these of the nodes as canaries, and the others as what they are."""
    for node in nodes:
        listed = hub.nodes[node.identity.peer_id]
        kind = Canary if node in birds else Listed
        hub.nodes[node.identity.peer_id] = kind(
            listed.register, listed.layers, listed.status, is_ready=True
        )


async def test_no_chain_goes_through_a_canary(
    open_hub: OpenMesh, autojump_clock: MockClock
) -> None:
    async with open_hub([(0, 3), (3, 6), (3, 6)]) as (mesh, hub):
        entry, one, other = mesh.nodes
        for bird, honest in ((one, other), (other, one)):
            list_canaries(hub, mesh.nodes, [bird])
            await trio.sleep(BEAT)
            stages = (await mesh.ask("hello", max_tokens=2)).chain()
            peers = [entry.identity.peer_id, honest.identity.peer_id]
            assert [peer for peer, _, _ in stages] == peers
        list_canaries(hub, mesh.nodes, [one, other])
        await trio.sleep(BEAT)
        with pytest.raises(RemoteFailure, match="layers 3:6 are served by nobody") as caught:
            await mesh.ask("hello", max_tokens=2)
        assert (caught.value.code, caught.value.status) == ("model_unavailable", 503)


def test_no_client_asks_a_canary(a_row: Callable[..., PeerRow]) -> None:
    bird, honest = (
        PeerAddress(each.peer_id, ("/ip4/10.0.0.1/tcp/1",)) for each in (NODE, STRANGER)
    )
    wrong = a_row(bird, SHAPE.whole, canary=True)
    right = a_row(honest, SHAPE.whole, queue_depth=50)
    assert choose_entry([wrong, right]).peer_id == honest.peer_id
    with pytest.raises(ModelUnavailable):
        choose_entry([wrong])


async def test_a_request_of_low_priority_says_so_and_is_counted_as_one(
    open_mesh: OpenMesh, autojump_clock: MockClock, doors: Doors
) -> None:
    async with (
        open_mesh([6], **doors.config) as mesh,
        doors.client(mesh.nodes[0]) as client,
        trio.open_nursery() as nursery,
    ):
        answer = await client.post(CHAT, json=HELLO)
        assert answer.headers["tessella-tier"] == "leech"
        assert (await mesh.status(mesh.nodes[0]))["tiers"] == {"vip": 0, "standard": 0, "leech": 0}
        mesh.nodes[0].compute.pace = 0.5
        nursery.start_soon(partial(client.post, CHAT, json=HELLO))
        await trio.sleep(0.3)
        assert (await mesh.status(mesh.nodes[0]))["tiers"] == {"vip": 0, "standard": 0, "leech": 1}
