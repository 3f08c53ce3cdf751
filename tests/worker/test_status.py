from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from tessella.worker.membership import Membership
from tessella.worker.testing import BEAT

OpenMesh = Callable[..., Any]


async def test_a_node_tells_the_range_that_it_was_assigned_and_holds_just_that(
    open_mesh: OpenMesh, autojump_clock: MockClock
) -> None:
    async with open_mesh([2, 3, 1]) as mesh:
        for node in mesh.nodes:
            status = await mesh.status(node)
            start, stop = status["layer_range"]
            assert [start, stop] == node.layers()
            names = [tensor["name"] for tensor in status["tensors"]]
            held = {int(name.split(".")[2]) for name in names if ".layers." in name}
            assert held == set(range(start, stop))
            assert ("model.embed_tokens.weight" in names) == (start == 0)
            assert ("lm_head.weight" in names) == (stop == status["total_layers"])
            assert status["weight_bytes"] == sum(one["bytes"] for one in status["tensors"])


async def test_a_status_tells_nothing_of_what_is_said(
    open_mesh: OpenMesh, autojump_clock: MockClock
) -> None:
    async with open_mesh([3, 3]) as mesh:
        answer = await mesh.ask("a secret prompt", max_tokens=8)
        for node in mesh.nodes:
            told = json.dumps(await mesh.status(node))
            assert "secret" not in told
            assert answer.begun.request_id not in told
            assert str(answer.ids)[1:-1] not in told


@pytest.mark.parametrize("place", [0, 1])
async def test_what_happened_is_counted_where_it_happened(
    open_mesh: OpenMesh, autojump_clock: MockClock, place: int
) -> None:
    async with open_mesh([3, 3]) as mesh:
        await mesh.ask("hello", max_tokens=8)
        status = await mesh.status(mesh.nodes[place])
        assert status["sessions_opened"] == 1
        assert status["answers"] == (1, 0)[place]
        assert status["tokens_sampled"] == (0, 8)[place]
        assert status["step_ms"] > 0
        assert status["status"] == "Healthy"


async def test_a_defect_in_the_heartbeat_shows_and_does_not_end_it(
    open_hub: OpenMesh, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_hub([(0, 6)]) as (mesh, hub):
        (node,) = mesh.nodes
        status = await mesh.status(node)
        assert (status["mesh_errors"], status["last_mesh_error"]) == (0, "")

        async def broken(_: Membership) -> None:
            raise ZeroDivisionError("a defect")

        with monkeypatch.context() as patched:
            patched.setattr(Membership, "_announce_once", broken)
            await trio.sleep(4 * BEAT)
        status = await mesh.status(node)
        assert 2 <= status["mesh_errors"] <= 4
        assert status["last_mesh_error"].startswith("internal_error: ")
        assert "a defect" not in status["last_mesh_error"]
        said = len(hub.heard)
        await trio.sleep(4 * BEAT)
        assert len(hub.heard) - said >= 2
