"""The ways a request and its tokens take: any node answers, and tokens find the entry."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from tessella.client import ask_peers
from tessella.core.errors import ModelUnavailable, RemoteFailure
from tessella.core.peers import choose_entry

OpenMesh = Callable[..., Any]
PROMPT = "a prompt that is longer than one chunk of eight positions"


async def test_any_node_answers_also_one_that_cannot_be_the_entry(
    open_mesh: OpenMesh, autojump_clock: MockClock
) -> None:
    async with open_mesh([2, 2, 2]) as mesh:
        reference = await mesh.ask(PROMPT, max_tokens=5)
        for node in mesh.nodes[1:]:
            answer = await mesh.ask(PROMPT, max_tokens=5, at=node)
            assert answer.ids == reference.ids
            assert answer.chain()[0][0] == mesh.nodes[0].identity.peer_id


async def test_hidden_states_go_from_stage_to_stage_and_never_back(
    open_mesh: OpenMesh, autojump_clock: MockClock
) -> None:
    async with open_mesh([2, 2, 2]) as mesh:
        await mesh.ask(PROMPT, max_tokens=5)
        entry, middle, tail = (node.identity.peer_id for node in mesh.nodes)
        hops = [(await mesh.status(node))["hops"] for node in mesh.nodes]
        chunks = -(-len(PROMPT) // 8) + 4
        assert hops[0]["frames_received"] == {}
        assert hops[0]["frames_sent"] == {middle: chunks}
        assert hops[1]["frames_received"] == {entry: chunks}
        assert hops[1]["frames_sent"] == {tail: chunks}
        assert hops[2]["frames_received"] == {middle: chunks}
        assert hops[2]["frames_sent"] == {}
        assert hops[0]["bytes_sent"][middle] == (len(PROMPT) + 4) * 64 * 4


async def test_tokens_go_up_the_chain_where_the_tail_cannot_reach_the_entry(
    open_mesh: OpenMesh, autojump_clock: MockClock
) -> None:
    async with open_mesh([2, 2, 2]) as mesh:
        reference = await mesh.ask(PROMPT, max_tokens=5)
    async with open_mesh([2, 2, 2]) as mesh:
        entry, _, tail = mesh.nodes
        mesh.net.silence(entry.identity.peer_id, tail.identity.peer_id)
        answer = await mesh.ask(PROMPT, max_tokens=5)
        assert answer.ids == reference.ids
        assert answer.done.first_token_seconds < 2.0


async def test_a_mesh_with_a_hole_names_the_missing_layers(
    open_mesh: OpenMesh, autojump_clock: MockClock
) -> None:
    async with open_mesh([2, 2]) as mesh:
        with pytest.raises(RemoteFailure, match="4:6") as caught:
            await mesh.ask(PROMPT, max_tokens=5)
        assert (caught.value.code, caught.value.retry) == ("model_unavailable", True)


async def test_a_replica_is_a_chain_of_one(open_mesh: OpenMesh, autojump_clock: MockClock) -> None:
    async with open_mesh([6]) as mesh:
        answer = await mesh.ask(PROMPT, max_tokens=5)
        (stage,) = answer.chain()
        assert stage == (mesh.nodes[0].identity.peer_id, 0, 6)


async def test_what_is_running_goes_on_while_musivum_is_away(
    open_mesh: OpenMesh, autojump_clock: MockClock
) -> None:
    async with open_mesh([2, 2, 2]) as mesh:
        reference = await mesh.ask(PROMPT, max_tokens=5)
        for node in mesh.nodes:
            mesh.net.silence(node.identity.peer_id, mesh.musivum.address.peer_id)
        await trio.sleep(60.0)
        answer = await mesh.ask(PROMPT, max_tokens=5)
        assert answer.ids == reference.ids


async def test_the_context_ends_an_answer_with_length(
    open_mesh: OpenMesh, autojump_clock: MockClock
) -> None:
    async with open_mesh([2, 2, 2], context=64) as mesh:
        answer = await mesh.ask("x" * 58, max_tokens=50)
        assert len(answer.ids) == 64 - 58
        assert answer.done.reason == "length"


async def test_a_stop_string_ends_the_answer_and_is_not_shown(
    open_mesh: OpenMesh, autojump_clock: MockClock
) -> None:
    async with open_mesh([2, 2, 2]) as mesh:
        whole = await mesh.ask(PROMPT, max_tokens=30)
        stop = whole.text[8:10]
        before = whole.text[: whole.text.index(stop)]
        answer = await mesh.ask(PROMPT, max_tokens=30, stop=(stop,))
        assert answer.text == before
        assert answer.done.reason == "stop"


async def test_sampling_with_a_seed_is_the_same_on_every_split(
    open_mesh: OpenMesh, autojump_clock: MockClock
) -> None:
    found = []
    for claims in ([6], [2, 2, 2]):
        async with open_mesh(claims) as mesh:
            answer = await mesh.ask(
                PROMPT, max_tokens=12, temperature=1.0, top_p=0.9, seed=7, frequency_penalty=0.5
            )
            found.append(answer.ids)
    assert found[0] == found[1]


async def test_a_client_finds_an_entry_by_asking_musivum(
    open_mesh: OpenMesh, autojump_clock: MockClock
) -> None:
    async with open_mesh([2, 2, 2]) as mesh:
        rows = await ask_peers(mesh.client, mesh.musivum.address)
        assert [row.status for row in rows] == ["Healthy"] * 3
        assert choose_entry(rows).peer_id == mesh.nodes[0].identity.peer_id
        with pytest.raises(ModelUnavailable):
            choose_entry(row for row in rows if row.layers.start)
        assert await ask_peers(mesh.client, mesh.musivum.address, "nobody has this") == []


async def test_a_node_that_leaves_is_listed_no_more(
    open_mesh: OpenMesh, autojump_clock: MockClock
) -> None:
    async with open_mesh([3, 3]) as mesh:
        mesh.nodes[1].stop.set()
        await trio.sleep(1.0)
        rows = await ask_peers(mesh.client, mesh.musivum.address, "toy")
        assert [row.peer_id for row in rows if row.serves] == [mesh.nodes[0].identity.peer_id]
