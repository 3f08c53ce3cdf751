"""Audits between real nodes, and canaries among them, as others of the mesh see them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import trio
from trio.testing import MockClock

from p2p.streams import FrameStream
from tessella.client import ask_peers
from tessella.core.audits import LEAST_MARK, MOST_MARK
from tessella.core.ids import SessionId
from tessella.core.layers import LayerRange
from tessella.core.messages import HOP, Fail, Hidden, Open, Register
from tessella.core.shapes import DType
from tessella.engine.audited_rows import rows_of
from tessella.engine.shard import Shard
from tessella.worker.audits.room import BEAT_SECONDS

OpenMesh = Callable[..., Any]
AnOpen = Callable[..., Open]
SESSION = SessionId(b"session of tests")
MIDDLE = LayerRange(2, 4)


def audits(messages: list[str]) -> list[str]:
    return [each for each in messages if each.startswith("audited ")]


async def start(mesh: Any, path: Path, *ranges: tuple[int, int], **config: Any) -> None:
    """Nodes of these ranges, each with a book of its own."""
    for layers in ranges:
        number = len(mesh.nodes) + 1
        await mesh.start(
            LayerRange(*layers), bytes([number]) * 32, proofs=path / f"{number}.db", **config
        )


async def test_what_was_served_is_audited_by_who_holds_the_layers(
    open_mesh: OpenMesh, autojump_clock: MockClock, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="tessella.worker.audits")
    async with open_mesh([]) as mesh:
        await start(mesh, tmp_path, (0, 3), (3, 6), (0, 6))
        await mesh.ask("a question of some length", max_tokens=20)
        await trio.sleep(60)
    done = audits(caplog.messages)
    assert done
    assert all(" 44 tokens: measured" in each for each in done)
    assert not [each for each in caplog.messages if "no inputs" in each or "no outputs" in each]


async def test_a_node_that_keeps_no_rows_is_audited_by_its_sketches(
    open_mesh: OpenMesh, autojump_clock: MockClock, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="tessella.worker.audits")
    async with open_mesh([]) as mesh:
        await start(mesh, tmp_path, (0, 3))
        await start(mesh, tmp_path, (3, 6), audit_ring_mb=0)
        await start(mesh, tmp_path, (3, 6), audit_ring_mb=0)
        await mesh.ask("a question of some length", max_tokens=20)
        await trio.sleep(60)
    assert [each for each in audits(caplog.messages) if "sketched" in each]


async def test_a_node_may_leave_audits_to_others(
    open_mesh: OpenMesh, autojump_clock: MockClock, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="tessella.worker.audits")
    async with open_mesh([]) as mesh:
        await start(mesh, tmp_path, (0, 3), (3, 6), (0, 6), audits=False)
        await mesh.ask("a question of some length", max_tokens=20)
        await trio.sleep(60)
    assert audits(caplog.messages) == []


@pytest.mark.parametrize("mode", ["off", "echo", "scale"])
async def test_a_node_registers_its_weights_and_whether_it_is_a_canary(
    mode: str, open_hub: OpenMesh, autojump_clock: MockClock
) -> None:
    async with open_hub([(0, 6)], canary_mode=mode) as (mesh, hub):
        (asked,) = [said for _, said in hub.heard if isinstance(said, Register)]
        assert (asked.weights, asked.canary) == ("f32", mode != "off")
        assert (await mesh.status(mesh.nodes[0]))["canary_mode"] == mode


async def test_nobody_is_routed_through_a_canary_that_is_listed(
    open_mesh: OpenMesh, autojump_clock: MockClock
) -> None:
    async with open_mesh([3, 3]) as mesh:
        await mesh.start(LayerRange(3, 6), b"c" * 31 + b"1", canary_mode="echo")
        rows = await ask_peers(mesh.client, mesh.musivum.address)
        assert sorted(row.canary for row in rows) == [False, False, True]
        honest = mesh.nodes[1].identity.peer_id
        for _ in range(4):
            answer = await mesh.ask("hello", max_tokens=2)
            assert answer.chain()[1][0] == honest


class Neighbour:
    """The stage after a canary: it takes what comes, and answers nothing."""

    def __init__(self) -> None:
        self.rows: list[Hidden] = []

    async def serve(self, stream: FrameStream) -> None:
        while True:
            message = await stream.receive()
            if isinstance(message, Hidden):
                self.rows.append(message)


async def given(mesh: Any, an_open: AnOpen, **changes: Any) -> tuple[Hidden | Fail, Hidden]:
    """What the second node gives for a state, asked by a client that has no ticket, and the state.

    The first and the last stage of the chain are ours.
    """
    canary, neighbour = mesh.nodes[1], Neighbour()
    asked = Hidden(SESSION, 0, 0, Shard.to_wire(torch.randn(3, 64), DType.F32), False)
    async with mesh.net.host(b"t" * 32) as tail:
        tail.serve(HOP, neighbour.serve, streams=2, per_peer=2)
        for host in (tail, mesh.client):
            await host.connect(canary.address, timeout=5)
        peers = [mesh.client.address, canary.address, tail.address]
        stream = await mesh.client.open_stream(canary.identity.peer_id, HOP, timeout=5)
        await stream.send(an_open(peers, 1, contract=mesh.contract, **changes))
        await stream.send(asked)
        with trio.move_on_after(2):
            while not isinstance(said := await stream.receive(), Fail):
                pass
            return said, asked
        await stream.reset()
    (rows,) = neighbour.rows
    return rows, asked


def truth(shard: Shard, asked: Hidden) -> torch.Tensor:
    rows = shard.from_wire(asked.tensor)
    return shard.forward(rows, shard.open_cache(8, MIDDLE), 0, MIDDLE, lambda: None)


@pytest.mark.parametrize(("mode", "gain"), [("off", 1.0), ("scale", 1.05)])
async def test_the_rows_that_leave_a_node_are_the_truth_or_scaled(
    mode: str,
    gain: float,
    open_mesh: OpenMesh,
    an_open: AnOpen,
    toy_shard: Shard,
    autojump_clock: MockClock,
) -> None:
    async with open_mesh([2, 2, 2], canary_mode=mode) as mesh:
        answer, asked = await given(mesh, an_open)
        assert isinstance(answer, Hidden)
        rows = rows_of([answer.tensor], 64, DType.F32)
        torch.testing.assert_close(rows, truth(toy_shard, asked) * gain)


async def test_the_rows_that_leave_an_echo_are_those_that_came(
    open_mesh: OpenMesh, an_open: AnOpen, autojump_clock: MockClock
) -> None:
    async with open_mesh([2, 2, 2], canary_mode="echo") as mesh:
        answer, asked = await given(mesh, an_open)
        assert isinstance(answer, Hidden)
        assert answer.tensor == asked.tensor


async def test_a_stage_that_asks_past_musivum_gets_marked_rows_and_a_paid_session_the_truth(
    open_mesh: OpenMesh,
    an_open: AnOpen,
    toy_shard: Shard,
    autojump_clock: MockClock,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, logger="tessella.worker.audits")
    async with open_mesh([]) as mesh:
        await start(mesh, tmp_path, (0, 2), (2, 4), (4, 6), canary_mode="watermark")
        await trio.sleep(BEAT_SECONDS + 1)
        marked, asked = await given(mesh, an_open)
        assert isinstance(marked, Hidden)
        rows, true = rows_of([marked.tensor], 64, DType.F32), truth(toy_shard, asked)
        gain = float((rows * true).sum() / (true * true).sum())
        torch.testing.assert_close(rows, true * gain)
        assert LEAST_MARK <= abs(gain - 1) <= MOST_MARK
        paid = await mesh.ask("hello", max_tokens=8)
        assert paid.begun is not None
        assert paid.begun.tier
    marks = [each for each in caplog.messages if each.startswith("marked ")]
    assert marks == [f"marked what {mesh.client.address.peer_id} asked for"]
