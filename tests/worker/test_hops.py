"""What a stage does for the one before it. The client plays that one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from p2p.pool import IDLE_SECONDS
from p2p.streams import FrameStream
from tessella.core.errors import PeerClosed, RemoteFailure
from tessella.core.identity import Identity
from tessella.core.ids import SessionId
from tessella.core.layers import LayerRange
from tessella.core.messages import HOP, Cancel, End, Fail, Hidden, Open, Park, Progress, Stage
from tessella.core.tensors import WireTensor

OpenMesh = Callable[..., Any]
SESSION = SessionId(b"session of tests")
STATE = Hidden(SESSION, 0, 0, WireTensor("f32", (1, 64), bytes(256)), False)


@pytest.fixture
def to_middle(an_open: Callable[..., Open]) -> Callable[..., Open]:
    """What the client, as entry, says to the second of three nodes."""

    def made(mesh: Any, **changes: Any) -> Open:
        _, middle, tail = mesh.nodes
        peers = [mesh.client.address, middle.address, tail.address]
        return an_open(peers, 1, contract=mesh.contract, **changes)

    return made


@pytest.fixture
def to_tail(an_open: Callable[..., Open]) -> Callable[..., Open]:
    """What the client says to the third of three nodes, as if it were the second."""

    def made(mesh: Any, **changes: Any) -> Open:
        tail = mesh.nodes[2]
        peers = [mesh.musivum.address, mesh.client.address, tail.address]
        return an_open(peers, 2, contract=mesh.contract, **changes)

    return made


@asynccontextmanager
async def hop(mesh: Any, node: Any) -> AsyncIterator[FrameStream]:
    await mesh.client.connect(node.address, timeout=5)
    stream = await mesh.client.open_stream(node.identity.peer_id, HOP, timeout=5)
    yield stream
    await stream.reset()


async def held(mesh: Any, node: Any) -> list[str]:
    return [session["state"] for session in (await mesh.status(node))["sessions"]]


@pytest.mark.parametrize("how", ["cancel", "reset", "vanish"])
async def test_a_session_given_up_during_a_dial_is_freed_at_once(
    open_mesh: OpenMesh, to_middle: Callable[..., Open], autojump_clock: MockClock, how: str
) -> None:
    async with open_mesh([2, 2, 2]) as mesh:
        _, middle, tail = mesh.nodes
        mesh.net.silence(middle.identity.peer_id, tail.identity.peer_id)
        async with hop(mesh, middle) as stream:
            await stream.send(to_middle(mesh))
            await trio.sleep(1.0)
            assert await held(mesh, middle) == ["opened"]
            if how == "cancel":
                await stream.send(Cancel(SESSION, 0))
            elif how == "reset":
                await stream.reset()
            else:
                mesh.net.cut(mesh.client.address.peer_id, middle.identity.peer_id)
            await trio.sleep(0.1)
            assert await held(mesh, middle) == []
            assert (await mesh.status(middle))["peer_failures"] == {}


async def test_a_tail_that_cannot_be_reached_is_named_to_the_stage_before(
    open_mesh: OpenMesh, to_middle: Callable[..., Open], autojump_clock: MockClock
) -> None:
    async with open_mesh([2, 2, 2]) as mesh:
        _, middle, tail = mesh.nodes
        mesh.net.silence(middle.identity.peer_id, tail.identity.peer_id)
        async with hop(mesh, middle) as stream:
            await stream.send(to_middle(mesh))
            failed = await stream.receive(6)
        assert isinstance(failed, Fail)
        assert (failed.code, failed.retry) == ("peer_unreachable", True)
        assert tail.identity.peer_id in failed.text
        assert (await mesh.status(middle))["peer_failures"] == {tail.identity.peer_id: 1}


async def test_a_chain_over_a_node_that_nobody_knows_blames_nobody(
    open_mesh: OpenMesh, to_middle: Callable[..., Open], autojump_clock: MockClock
) -> None:
    async with open_mesh([2, 2, 2]) as mesh:
        middle = mesh.nodes[1]
        nobody = Stage(Identity(b"x" * 32).peer_id, LayerRange(4, 6))
        opened = to_middle(mesh)
        async with hop(mesh, middle) as stream:
            await stream.send(replace(opened, chain=(*opened.chain[:2], nobody)))
            failed = await stream.receive(6)
        assert isinstance(failed, Fail)
        assert failed.code == "model_unavailable"
        assert (await mesh.status(middle))["peer_failures"] == {}


async def test_an_error_at_the_tail_reaches_the_client_with_its_code_and_blames_nobody(
    open_mesh: OpenMesh, to_tail: Callable[..., Open], autojump_clock: MockClock
) -> None:
    async with open_mesh([2, 2, 2]) as mesh:
        tail = mesh.nodes[2]
        async with hop(mesh, tail) as one, hop(mesh, tail) as two:
            await one.send(to_tail(mesh, capacity=256))
            await two.send(to_tail(mesh, capacity=256, session_id=SessionId(b"another session.")))
            await trio.sleep(0.1)
            with pytest.raises(RemoteFailure, match="no room") as caught:
                await mesh.ask("hello", max_tokens=4)
        assert (caught.value.code, caught.value.retry) == ("too_many_sessions", True)
        for node in mesh.nodes:
            assert (await mesh.status(node))["peer_failures"] == {}


async def test_session_after_session_uses_one_stream(
    open_mesh: OpenMesh, to_middle: Callable[..., Open], autojump_clock: MockClock
) -> None:
    async with open_mesh([2, 2, 2]) as mesh, hop(mesh, mesh.nodes[1]) as stream:
        for _ in range(3):
            await stream.send(to_middle(mesh))
            await stream.send(STATE)
            while not (isinstance(said := await stream.receive(5), Progress) and said.done == 1):
                pass
            await stream.send(End(SESSION, 0))
        await trio.sleep(0.1)
        assert await held(mesh, mesh.nodes[1]) == []
        assert (await mesh.status(mesh.nodes[1]))["sessions_opened"] == 3


async def test_a_stream_that_idles_too_long_between_sessions_is_ended(
    open_mesh: OpenMesh, autojump_clock: MockClock
) -> None:
    async with open_mesh([2, 2, 2]) as mesh, hop(mesh, mesh.nodes[1]) as stream:
        with pytest.raises(PeerClosed):
            await stream.receive(2 * IDLE_SECONDS + 1.0)


async def test_a_lost_neighbour_parks_the_session_for_the_hop_timeout(
    open_mesh: OpenMesh, to_tail: Callable[..., Open], autojump_clock: MockClock
) -> None:
    async with open_mesh([2, 2, 2], hop_timeout=4.0) as mesh:
        tail = mesh.nodes[2]
        async with hop(mesh, tail) as stream:
            await stream.send(to_tail(mesh))
            await stream.send(STATE)
            await trio.sleep(0.1)
            lost = PeerClosed("the connection ended")
            mesh.net.end(mesh.client.address.peer_id, tail.identity.peer_id, lost)
            await trio.sleep(3.5)
            assert await held(mesh, tail) == ["parked"]
            await trio.sleep(1.5)
            assert await held(mesh, tail) == []


async def test_the_loss_of_the_entry_itself_parks_nothing(
    open_mesh: OpenMesh, to_middle: Callable[..., Open], autojump_clock: MockClock
) -> None:
    async with open_mesh([2, 2, 2]) as mesh:
        middle, tail = mesh.nodes[1:]
        async with hop(mesh, middle) as stream:
            await stream.send(to_middle(mesh))
            await stream.send(STATE)
            await trio.sleep(0.1)
            assert [await held(mesh, node) for node in (middle, tail)] == [["running"]] * 2
            lost = PeerClosed("the connection ended")
            mesh.net.end(mesh.client.address.peer_id, middle.identity.peer_id, lost)
            await trio.sleep(0.5)
            assert [await held(mesh, node) for node in (middle, tail)] == [[], []]


async def test_a_parked_session_keeps_its_place_until_a_live_one_needs_it(
    open_mesh: OpenMesh, to_tail: Callable[..., Open], autojump_clock: MockClock
) -> None:
    async with open_mesh([2, 2, 2]) as mesh, hop(mesh, mesh.nodes[2]) as stream:
        tail = mesh.nodes[2]
        for number in range(2):
            session = SessionId(f"session number {number}".encode())
            await stream.send(to_tail(mesh, capacity=256, session_id=session))
            await stream.send(Park(session, 0, 60.0))
        await trio.sleep(30.0)
        assert await held(mesh, tail) == ["parked", "parked"]
        await mesh.ask("hello", max_tokens=4)
        await trio.sleep(0.1)
        assert await held(mesh, tail) == ["parked"]
        await trio.sleep(60.0)
        assert await held(mesh, tail) == []
