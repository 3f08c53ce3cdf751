"""Clients at a node that cannot be the entry: their request goes on, and the answer comes back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from p2p.streams import FrameStream
from tessella.core.errors import PeerGone, PeerSilent, RemoteFailure
from tessella.core.ids import ModelId, PeerId, SessionId
from tessella.core.layers import LayerRange
from tessella.core.messages import (
    COMPLETE,
    Alternative,
    AskStatus,
    Begun,
    Cancel,
    Complete,
    Delta,
    Done,
    Fail,
    Message,
    Stage,
)
from tessella.worker.complete import REQUEST_TIMEOUT, WORD_TIMEOUT

OpenMesh = Callable[..., Any]
REQUEST = Complete(b'{"model": "toy", "prompt": "hello", "sampling": {"ignore_eos": true}}')


async def open_to(mesh: Any, node: Any) -> FrameStream:
    await mesh.client.connect(node.address, timeout=5)
    stream = await mesh.client.open_stream(node.identity.peer_id, COMPLETE, timeout=5)
    assert isinstance(stream, FrameStream)
    return stream


async def held(mesh: Any) -> list[int]:
    return [len((await mesh.status(node))["sessions"]) for node in mesh.nodes]


@pytest.mark.parametrize("how", ["cancel", "reset", "aclose", "vanish"])
@pytest.mark.parametrize("place", [0, 2])
async def test_a_client_that_leaves_ends_its_session_wherever_it_asked(
    open_mesh: OpenMesh, autojump_clock: MockClock, place: int, how: str
) -> None:
    async with open_mesh([2, 2, 2]) as mesh:
        for node in mesh.nodes:
            node.compute.pace = 0.5
        asked = mesh.nodes[place]
        stream = await open_to(mesh, asked)
        await stream.send(REQUEST)
        await trio.sleep(2.0)
        assert await held(mesh) == [1, 1, 1]
        if how == "cancel":
            await stream.send(Cancel(SessionId(bytes(16)), 0))
        elif how == "vanish":
            mesh.net.cut(mesh.client.address.peer_id, asked.identity.peer_id)
        else:
            await getattr(stream, how)()
        await trio.sleep(0.9)
        assert await held(mesh) == [0, 0, 0]
        for node in mesh.nodes:
            assert (await mesh.status(node))["peer_failures"] == {}


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (b"{", "bad_request"),
        (b'{"model": "nobody has this", "prompt": "a"}', "unknown_model"),
        (b'{"model": "toy", "prompt": "' + b"x" * 300 + b'"}', "context_length_exceeded"),
    ],
)
async def test_a_refusal_of_the_entry_comes_back_with_its_code(
    open_mesh: OpenMesh, autojump_clock: MockClock, request_: bytes, code: str
) -> None:
    async with open_mesh([3, 3]) as mesh:
        stream = await open_to(mesh, mesh.nodes[1])
        await stream.send(Complete(request_))
        failed = await stream.receive(5)
        assert isinstance(failed, Fail)
        assert (failed.code, failed.retry) == (code, False)
        assert (await mesh.status(mesh.nodes[1]))["peer_failures"] == {}


async def test_an_entry_that_goes_silent_is_blamed_and_the_client_is_told(
    open_mesh: OpenMesh, autojump_clock: MockClock
) -> None:
    async with open_mesh([3, 3]) as mesh:
        entry, asked = mesh.nodes
        await mesh.ask("hello", at=asked, max_tokens=2)
        entry.compute.pace = 600.0
        stream = await open_to(mesh, asked)
        await stream.send(REQUEST)
        await stream.receive(5)
        mesh.net.silence(entry.identity.peer_id, asked.identity.peer_id)
        with trio.fail_after(WORD_TIMEOUT + 2.0):
            while not isinstance(message := await stream.receive(), Fail):
                pass
        assert (message.code, message.retry) == ("peer_silent", True)
        failures = (await mesh.status(asked))["peer_failures"]
        assert failures == {entry.identity.peer_id: 1}


async def test_an_entry_that_died_is_told_from_the_request(
    open_mesh: OpenMesh, autojump_clock: MockClock
) -> None:
    async with open_mesh([3, 3]) as mesh:
        entry, asked = mesh.nodes
        await mesh.ask("hello", at=asked, max_tokens=2)
        mesh.crash(entry)
        with pytest.raises(RemoteFailure, match=entry.identity.peer_id) as caught:
            await mesh.ask("hello", at=asked, max_tokens=2)
        assert (caught.value.code, caught.value.retry) == ("peer_unreachable", True)


BEGUN = Begun("0" * 32, ModelId("toy"), 5, 0, ())
DELTA = Delta("a", 65, -0.5, ())
DONE = Done("stop", 1, 0.0, 0.0, 0.0, 0.0)


@pytest.mark.parametrize(
    "lie",
    [
        replace(BEGUN, request_id="漢"),
        replace(BEGUN, request_id="a\r\nSet-Cookie: b"),
        replace(BEGUN, request_id=""),
        replace(BEGUN, chain=(Stage(PeerId("a, b"), LayerRange(0, 6)),)),
        replace(DELTA, token_id=-1),
        replace(DELTA, top=(Alternative(2**40, -1.0),)),
        replace(DONE, reason="because"),
    ],
    ids=repr,
)
async def test_what_no_entry_says_is_not_passed_on(
    open_mesh: OpenMesh, autojump_clock: MockClock, lie: Message
) -> None:
    async with open_mesh([3, 3]) as mesh:
        entry, asked = mesh.nodes

        async def serve(stream: FrameStream) -> None:
            await stream.receive()
            for message in (BEGUN, DELTA, DONE):
                await stream.send(lie if type(message) is type(lie) else message)
            await stream.receive()

        del entry.host.router._routes[COMPLETE]
        entry.host.serve(COMPLETE, serve, streams=4, per_peer=4)
        stream = await open_to(mesh, asked)
        await stream.send(REQUEST)
        while not isinstance(message := await stream.receive(5), Fail):
            assert message != lie
        assert (message.code, message.retry) == ("bad_frame", True)
        failures = (await mesh.status(asked))["peer_failures"]
        assert failures == {entry.identity.peer_id: 1}


async def test_a_client_that_says_nothing_is_not_waited_for(
    open_mesh: OpenMesh, autojump_clock: MockClock
) -> None:
    async with open_mesh([6]) as mesh:
        stream = await open_to(mesh, mesh.nodes[0])
        failed = await stream.receive(REQUEST_TIMEOUT + 1.0)
        assert isinstance(failed, Fail)
        assert failed.code == PeerSilent.code
        with pytest.raises(PeerGone):
            await stream.receive(1)


@pytest.mark.parametrize("first", [True, False], ids=["in place of", "during"])
async def test_noise_in_place_of_a_request_or_during_an_answer_is_out_of_turn(
    open_mesh: OpenMesh, autojump_clock: MockClock, first: bool
) -> None:
    async with open_mesh([6]) as mesh:
        mesh.nodes[0].compute.pace = 5.0
        stream = await open_to(mesh, mesh.nodes[0])
        if not first:
            await stream.send(REQUEST)
        await stream.send(AskStatus())
        with trio.fail_after(1.0):
            while not isinstance(message := await stream.receive(), Fail):
                pass
        assert message.code == "out_of_turn"
        assert await held(mesh) == [0]
