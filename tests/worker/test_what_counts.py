"""What counts as load, and what counts against a node: what lives, and what the node did itself."""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from tessella.client import ask_peers
from tessella.core.layers import LayerRange
from tessella.core.messages import COMPLETE, HOP, Complete, Fail, Hidden, Open
from tessella.core.tensors import WireTensor
from tessella.worker.grants import Grants
from tests.worker.split import BEAT, THREE_LAYERS, Split, split, write_split


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_split(tmp_path_factory.mktemp("split"))


@pytest.fixture
def no_tickets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Entries choose chains themselves: musivum would draw them."""

    async def none(*_: object) -> None:
        return None

    monkeypatch.setattr(Grants, "grant", none)


async def opened(mesh: Split) -> list[int]:
    """How many sessions each node has opened."""
    return [(await mesh.status(node))["sessions_opened"] for node in mesh.nodes]


async def test_what_is_over_is_no_load_and_what_lives_is_shared_evenly(
    weights: Path, autojump_clock: MockClock, equal_steps: None, no_tickets: None
) -> None:
    front, back = LayerRange(0, 3), LayerRange(3, 6)
    async with split(weights) as mesh:
        entry = await mesh.join(12, layers=front, slots=20)
        twins = [await mesh.join(12, layers=back, slots=20) for _ in range(2)]
        for node in mesh.nodes:
            node.compute.pace = 0.01

        async def ask_often() -> None:
            for _ in range(10):
                await mesh.ask("hello", at=entry, max_tokens=1)

        async with trio.open_nursery() as nursery:
            for _ in range(10):
                nursery.start_soon(ask_often)
        every, *each = await opened(mesh)
        assert (every, sum(each)) == (100, 100)
        assert min(each) >= 40
        await trio.sleep(BEAT + 1.0)
        rows = await ask_peers(mesh.client, mesh.musivum.address)
        assert [row.queue_depth for row in rows] == [0, 0, 0]
        for node in twins:
            node.compute.pace = 10.0
        async with trio.open_nursery() as nursery:
            for _ in range(6):
                nursery.start_soon(partial(mesh.ask, "hello", at=entry, max_tokens=2))
            await trio.sleep(3.0)
            live = [len((await mesh.status(node))["sessions"]) for node in twins]
            assert live == [3, 3]
            nursery.cancel_scope.cancel()


async def test_those_who_waited_for_a_ticket_in_vain_at_once_go_different_ways(
    weights: Path,
    autojump_clock: MockClock,
    monkeypatch: pytest.MonkeyPatch,
    equal_steps: None,
) -> None:
    async def none(*_: object) -> None:
        await trio.sleep(0.5)

    monkeypatch.setattr(Grants, "grant", none)
    async with split(weights) as mesh:
        entry = await mesh.join(12, layers=LayerRange(0, 3), slots=20)
        twins = [await mesh.join(12, layers=LayerRange(3, 6), slots=20) for _ in range(2)]
        for node in twins:
            node.compute.pace = 10.0
        async with trio.open_nursery() as nursery:
            for _ in range(6):
                nursery.start_soon(partial(mesh.ask, "hello", at=entry, max_tokens=2))
            await trio.sleep(3.0)
            assert [len((await mesh.status(node))["sessions"]) for node in twins] == [3, 3]
            nursery.cancel_scope.cancel()


def a_state(dtype: str) -> WireTensor:
    size = {"f32": 4, "f16": 2}[dtype]
    return WireTensor(dtype, (1, 128), struct.pack("<f", 0.5)[:size] * 128)


async def test_bad_requests_count_against_nobody_and_others_are_served(
    weights: Path, autojump_clock: MockClock, an_open: Callable[..., Open]
) -> None:
    async with split(weights) as mesh:
        nodes = [await mesh.join(THREE_LAYERS) for _ in range(2)]
        reference = await mesh.hears()
        known = mesh.books.reputations.all()
        listed = [*map(mesh.listed, nodes)]

        async def answered(node_at: int, protocol: str, *said: Complete | Open | Hidden) -> str:
            node = nodes[node_at]
            await mesh.client.connect(node.address, timeout=5)
            stream = await mesh.client.open_stream(node.address.peer_id, protocol, timeout=5)
            for message in said:
                await stream.send(message)
            while not isinstance(answer := await stream.receive(5), Fail):
                pass
            await stream.reset()
            return answer.code

        opening = partial(an_open, [mesh.client.address, nodes[1].address], 1)
        opened = opening(contract=mesh.contract)
        lie = Hidden(opened.session_id, 0, 0, a_state("f16"), True)
        too_long = b'{"model": "toy", "prompt": "' + b"x" * 300 + b'"}'
        codes = set()
        for _ in range(5):
            codes.add(await answered(0, COMPLETE, Complete(too_long)))
            codes.add(await answered(0, COMPLETE, Complete(b'{"model": "toy", "prompt": ""}')))
            codes.add(await answered(1, HOP, opening(contract=mesh.contract, dtype="f8")))
            codes.add(await answered(1, HOP, opened, lie))
            assert (await mesh.hears()).ids == reference.ids
        assert codes == {"context_length_exceeded", "bad_request", "refused", "bad_tensor"}
        await trio.sleep(60.0)
        assert mesh.books.reputations.all() == known
        assert [(one.accused, one.reports_made, one.offline) for one in known] == [(0, 0, 0)] * 2
        assert [*map(mesh.listed, nodes)] == listed
        for node in nodes:
            blamed = (await mesh.status(node))["peer_failures"]
            assert blamed.keys() <= {mesh.client.address.peer_id}, "it sent what cannot be"
