"""Many requests over one mesh, beside each other and after each other, good and bad."""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from p2p.streams import FrameStream
from tessella.client import ask_peers
from tessella.core.errors import PeerGone, RemoteFailure
from tessella.core.layers import LayerRange
from tessella.core.messages import COMPLETE, HOP, TOKENS, Complete, Fail, Hidden, Open, TokenOpen
from tessella.core.tensors import WireTensor

OpenMesh = Callable[..., Any]
PROMPT = "a prompt of several chunks, " * 3


async def held(mesh: Any) -> list[int]:
    return [len((await mesh.status(node))["sessions"]) for node in mesh.nodes]


@pytest.mark.parametrize("many", [4, pytest.param(16, marks=pytest.mark.slow)])
async def test_many_prompts_at_once_are_answered_as_each_is_alone(
    open_mesh: OpenMesh, autojump_clock: MockClock, many: int
) -> None:
    prompts = [f"prompt {number}" + "x" * number for number in range(many)]
    async with open_mesh([2, 2, 2], slots=16) as mesh:
        alone = [(await mesh.ask(prompt, max_tokens=4)).ids for prompt in prompts]
        assert len({tuple(ids) for ids in alone}) > many / 2, "answers tell the prompts apart"
        for _ in range(2):
            together: dict[int, Any] = {}

            async def ask(number: int, into: dict[int, Any]) -> None:
                into[number] = await mesh.ask(prompts[number], max_tokens=4)

            async with trio.open_nursery() as nursery:
                for number in range(many):
                    nursery.start_soon(ask, number, together)
            assert [together[number].ids for number in range(many)] == alone
            assert all(len(one.ids) == one.done.completion_tokens for one in together.values())
        await trio.sleep(0.1)
        assert await held(mesh) == [0, 0, 0]


@pytest.mark.parametrize("many", [25, pytest.param(100, marks=pytest.mark.slow)])
async def test_after_many_requests_nothing_is_queued_or_held(
    open_mesh: OpenMesh, autojump_clock: MockClock, many: int
) -> None:
    async with open_mesh([3, 3], slots=8) as mesh:

        async def ask_often() -> None:
            for _ in range(many // 5):
                await mesh.ask("hello", max_tokens=1)

        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(ask_often)
        await trio.sleep(6.0)
        rows = await ask_peers(mesh.client, mesh.musivum.address)
        assert [row.queue_depth for row in rows] == [0, 0]
        status = await mesh.status(mesh.nodes[0])
        assert (status["answers"], status["kv_bytes"]) == (many, 0)
        # Streams are used again: what is open is bounded by what was asked at once.
        tail = mesh.nodes[1].host.router._routes[HOP]
        assert tail.open.total() <= 5


async def test_bad_requests_blame_nobody_and_do_not_disturb_a_good_one(
    open_mesh: OpenMesh, autojump_clock: MockClock
) -> None:
    bad = [
        (b"{", "bad_request"),
        (b'{"model": "toy", "prompt": "a", "sampling": {"top_p": 7}}', "bad_request"),
        (b'{"model": "other", "prompt": "a"}', "unknown_model"),
        (b'{"model": "toy", "prompt": "' + b"x" * 300 + b'"}', "context_length_exceeded"),
    ]
    async with open_mesh([2, 2, 2]) as mesh:
        reference = await mesh.ask(PROMPT, max_tokens=6)
        for node in mesh.nodes:
            node.compute.pace = 0.1
        good: list[Any] = []

        async def ask() -> None:
            good.append(await mesh.ask(PROMPT, max_tokens=6))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            for number in range(20):
                request, code = bad[number % len(bad)]
                node = mesh.nodes[number % len(mesh.nodes)]
                await mesh.client.connect(node.address, timeout=5)
                stream = await mesh.client.open_stream(node.address.peer_id, COMPLETE, timeout=5)
                await stream.send(Complete(request))
                failed = await stream.receive(5)
                assert isinstance(failed, Fail)
                assert failed.code == code
                await stream.reset()
            assert not good, "the good request was over before the bad ones were"
        assert good[0].ids == reference.ids
        for node in mesh.nodes:
            assert (await mesh.status(node))["peer_failures"] == {}


@pytest.mark.parametrize("between", [(0, 1), (1, 2), (0, 2)])
async def test_a_connection_that_drops_between_requests_is_made_again(
    open_mesh: OpenMesh, autojump_clock: MockClock, between: tuple[int, int]
) -> None:
    async with open_mesh([2, 2, 2]) as mesh:
        reference = await mesh.ask(PROMPT, max_tokens=3)
        one, other = (mesh.nodes[place].identity.peer_id for place in between)
        mesh.net.cut(one, other)
        answer = await mesh.ask(PROMPT, max_tokens=3)
        assert answer.ids == reference.ids
        for node in mesh.nodes:
            assert (await mesh.status(node))["peer_failures"] == {}


@pytest.mark.parametrize("phase", ["queued", "queued at the tail", "prefill", "decode"])
async def test_a_client_that_disconnects_frees_every_stage_within_a_second(
    open_mesh: OpenMesh, autojump_clock: MockClock, phase: str
) -> None:
    async with open_mesh([2, 2, 2]) as mesh:
        for node in mesh.nodes:
            node.compute.pace = {"prefill": 3.0, "decode": 0.2}.get(phase, 0.0)
        mesh.nodes[0].compute.stuck = phase == "queued"
        mesh.nodes[2].compute.stuck = phase == "queued at the tail"
        async with mesh.net.host(b"g" * 32) as guest, trio.open_nursery() as nursery:
            prompt = "x" * 60 if phase == "prefill" else "hello"
            nursery.start_soon(partial(mesh.ask, prompt, host=guest, max_tokens=100))
            await trio.sleep(7.0)
            assert await held(mesh) == [1, 1, 1]
            nursery.cancel_scope.cancel()
        await trio.sleep(0.9)
        assert await held(mesh) == [0, 0, 0]
        for node in mesh.nodes:
            assert (await mesh.status(node))["peer_failures"] == {}


@pytest.mark.parametrize("same_key", [True, False])
async def test_a_node_that_takes_the_place_of_a_dead_one_is_used(
    open_mesh: OpenMesh, autojump_clock: MockClock, same_key: bool
) -> None:
    async with open_mesh([2, 2, 2]) as mesh:
        reference = await mesh.ask(PROMPT, max_tokens=3)
        dead = mesh.nodes.pop(1)
        mesh.crash(dead)
        with pytest.raises((RemoteFailure, PeerGone)):
            await mesh.ask(PROMPT, max_tokens=3)
        with pytest.raises(RemoteFailure, match="2:4") as caught:
            await mesh.ask(PROMPT, max_tokens=3)
        assert caught.value.code == "model_unavailable"
        seed = bytes([2 if same_key else 9]) * 32
        await mesh.start(LayerRange(2, 4), seed)
        await trio.sleep(2.0)
        answer = await mesh.ask(PROMPT, max_tokens=3)
        assert answer.ids == reference.ids
        assert answer.chain()[1][0] == mesh.nodes[-1].identity.peer_id


async def test_a_reader_of_tokens_that_breaks_off_costs_its_own_session_only(
    open_mesh: OpenMesh, an_open: Callable[..., Open], autojump_clock: MockClock
) -> None:
    async def half_a_frame(stream: FrameStream) -> None:
        assert isinstance(await stream.receive(), TokenOpen)
        await stream._stream.receive_some(3)
        await stream.reset()

    async with open_mesh([3, 3]) as mesh:
        tail = mesh.nodes[1]
        reference = await mesh.ask(PROMPT, max_tokens=3)
        tail.compute.pace = 0.5
        mesh.client.serve(TOKENS, half_a_frame, streams=9, per_peer=9)
        opened = an_open([mesh.client.address, tail.address], 1, contract=mesh.contract)
        await mesh.client.connect(tail.address, timeout=5)
        stream = await mesh.client.open_stream(tail.address.peer_id, HOP, timeout=5)
        await stream.send(opened)
        state = WireTensor("f32", (1, 64), struct.pack("<f", 0.5) * 64)
        await stream.send(Hidden(opened.session_id, 0, 0, state, True))
        while not isinstance(failed := await stream.receive(5), Fail):
            pass
        assert (failed.code, failed.retry) == ("peer_reset", True)
        assert (await mesh.status(tail))["sessions"] == []
        assert (await mesh.status(tail))["peer_failures"] == {}
        assert (await mesh.ask(PROMPT, max_tokens=3)).ids == reference.ids


async def test_what_a_node_loaded_is_what_it_is_listed_with(
    open_mesh: OpenMesh, autojump_clock: MockClock
) -> None:
    async with open_mesh([1, 2, 3]) as mesh:
        rows = {row.peer_id: row for row in await ask_peers(mesh.client, mesh.musivum.address)}
        for node in mesh.nodes:
            layers = rows[node.identity.peer_id].layers
            names = [tensor["name"] for tensor in (await mesh.status(node))["tensors"]]
            loaded = {int(name.split(".")[2]) for name in names if ".layers." in name}
            assert loaded == set(layers)
