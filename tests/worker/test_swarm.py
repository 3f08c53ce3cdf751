"""A mesh without a musivum: nodes meet in the swarm, and answer as they do anywhere.

The bootstrap peer is a musivum, of which only the swarm is used.
"""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from p2p.dht import BEAT
from tessella import client
from tessella.client import ask_peers
from tessella.core.errors import BadConfig, PeerUnreachable, RemoteFailure
from tessella.core.layers import LayerRange
from tessella.core.peers import choose_entry

OpenMesh = Callable[..., Any]
ask_swarm = partial(client.ask_swarm, clock=lambda: time.time() + trio.current_time())
PROMPT = "a prompt that is longer than one chunk of eight positions"


@asynccontextmanager
async def swarm(open_mesh: OpenMesh, claims: list[int], **more: Any) -> AsyncIterator[Any]:
    """Nodes that know nothing but one bootstrap peer."""
    async with open_mesh([]) as mesh:
        config = {
            "musivum": (),
            "kademlia": True,
            "bootstrap": (mesh.musivum.address,),
            **more,
        }
        for layers in claims:
            await mesh.add(layers, **config)
        yield mesh


async def ranges(mesh: Any, model: str = "toy") -> list[tuple[int, int]]:
    rows = await ask_swarm(mesh.client, [mesh.musivum.address], model)
    return sorted((row.layers.start, row.layers.stop) for row in rows if row.serves)


async def test_nodes_without_a_musivum_answer_as_one_node_does(
    open_mesh: OpenMesh, autojump_clock: MockClock
) -> None:
    async with open_mesh([6]) as mesh:
        reference = await mesh.ask(PROMPT, max_tokens=5)
    async with swarm(open_mesh, [2, 2, 2]) as mesh:
        assert await ask_peers(mesh.client, mesh.musivum.address) == []
        assert await ranges(mesh) == [(0, 2), (2, 4), (4, 6)]
        for node in mesh.nodes:
            answer = await mesh.ask(PROMPT, max_tokens=5, at=node)
            assert answer.ids == reference.ids
            assert len(answer.chain()) == 3


async def test_a_client_finds_the_entry_of_a_model_it_was_not_told(
    open_mesh: OpenMesh, autojump_clock: MockClock
) -> None:
    async with swarm(open_mesh, [3, 3]) as mesh:
        rows = await ask_swarm(mesh.client, [mesh.musivum.address])
        assert {row.model for row in rows} == {"toy"}
        assert choose_entry(rows) == mesh.nodes[0].address
        assert await ranges(mesh, "nobody has this") == []


async def test_the_death_of_the_bootstrap_changes_nothing(
    open_mesh: OpenMesh, autojump_clock: MockClock
) -> None:
    async with swarm(open_mesh, [2, 2, 2]) as mesh:
        reference = await mesh.ask(PROMPT, max_tokens=5)
        for node in mesh.nodes:
            mesh.net.silence(node.identity.peer_id, mesh.musivum.address.peer_id)
        await trio.sleep(4 * BEAT)
        answer = await mesh.ask(PROMPT, max_tokens=5)
        assert answer.ids == reference.ids
        rows = await ask_swarm(mesh.client, [mesh.nodes[1].address], "toy")
        assert sorted(row.layers.start for row in rows if row.serves) == [0, 2, 4]


async def test_a_dead_node_is_not_offered_after_its_records_life(
    open_mesh: OpenMesh, autojump_clock: MockClock
) -> None:
    async with swarm(open_mesh, [2, 2, 2]) as mesh:
        mesh.crash(mesh.nodes[2])
        await trio.sleep(2 * BEAT)
        for _ in range(10):
            assert await ranges(mesh) == [(0, 2), (2, 4)]
            await trio.sleep(BEAT)
        with pytest.raises(RemoteFailure, match="4:6"):
            await mesh.ask(PROMPT, max_tokens=5)


async def test_a_node_that_says_goodbye_is_gone_at_once(
    open_mesh: OpenMesh, autojump_clock: MockClock
) -> None:
    async with swarm(open_mesh, [3, 3]) as mesh:
        mesh.nodes[1].stop.set()
        await trio.sleep(1.0)
        assert await ranges(mesh) == [(0, 3)]


async def test_a_range_that_others_hold_is_shown(
    open_mesh: OpenMesh, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with swarm(open_mesh, [3, 3]) as mesh:
        caplog.clear()
        with caplog.at_level(logging.WARNING, "tessella.worker.swarm"):
            await mesh.start(
                LayerRange(2, 4),
                b"o" * 32,
                musivum=(),
                kademlia=True,
                bootstrap=(mesh.musivum.address,),
            )
        said = {record.getMessage() for record in caplog.records}
        first, second = (node.identity.peer_id for node in mesh.nodes[:2])
        assert said == {f"{first} serves layers 0:3 already", f"{second} serves layers 3:6 already"}


async def test_the_first_node_of_a_swarm_starts_alone_and_is_found_later(
    open_mesh: OpenMesh, autojump_clock: MockClock
) -> None:
    async with open_mesh([]) as mesh:
        first = await mesh.add(3, musivum=(), kademlia=True)
        await mesh.add(3, musivum=(), kademlia=True, bootstrap=(first.address,))
        rows = await ask_swarm(mesh.client, [first.address], "toy")
        assert sorted(row.layers.start for row in rows) == [0, 3]


async def test_a_node_of_both_answers_from_the_swarm_while_musivum_is_away(
    open_mesh: OpenMesh, autojump_clock: MockClock
) -> None:
    async with open_mesh([3, 3], kademlia=True) as mesh:
        assert len(await ask_peers(mesh.client, mesh.musivum.address, "toy")) == 2
        reference = await mesh.ask(PROMPT, max_tokens=5)
        for node in mesh.nodes:
            mesh.net.silence(node.identity.peer_id, mesh.musivum.address.peer_id)
        await trio.sleep(4 * BEAT)
        rows = await ask_swarm(mesh.client, [mesh.nodes[0].address], "toy")
        assert sorted(row.layers.start for row in rows if row.serves) == [0, 3]
        assert (await mesh.ask(PROMPT, max_tokens=5)).ids == reference.ids


async def test_a_swarm_where_nobody_answers_is_one_clear_error(
    open_mesh: OpenMesh, autojump_clock: MockClock
) -> None:
    async with open_mesh([]) as mesh:
        gone = mesh.musivum.address
        mesh.net.silence(mesh.client.address.peer_id, gone.peer_id)
        with pytest.raises(PeerUnreachable, match=gone.peer_id):
            await ask_swarm(mesh.client, [gone])


async def test_a_node_that_insists_on_nothing_needs_a_musivum(open_mesh: OpenMesh) -> None:
    async with open_mesh([]) as mesh:
        with pytest.raises(BadConfig, match="layers"):
            await mesh._run(mesh.nodes, None, {"musivum": (), "kademlia": True}, None)
