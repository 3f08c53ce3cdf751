"""A swarm of many nodes in virtual time: how long a search takes, and what a massacre leaves."""

from __future__ import annotations

import math
import random
import statistics
import sys
from collections.abc import Awaitable, Callable

import pytest
import trio
from trio.testing import MockClock

from p2p.dht import DhtSettings
from p2p.testing_dht import Node, Swarm, memory_swarm

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

# Nodes that come in the same tenth of a second; each knows one of those before.
AT_ONCE = 10


async def grow(swarm: Swarm, size: int, settings: DhtSettings) -> list[Node]:
    """A swarm in which everyone has joined."""
    chance = random.Random(size)
    nodes = [await swarm.node((), settings)]
    while len(nodes) < size:
        known = chance.choice(nodes).address
        for _ in range(min(AT_ONCE, size - len(nodes))):
            nodes.append(await swarm.node([known], settings))
        await trio.sleep(0.1)
    await trio.sleep(10.0)
    assert all(node.dht.peers() for node in nodes)
    return nodes


async def measured(node: Node, search: Callable[[], Awaitable[object]]) -> tuple[float, int]:
    """Virtual seconds and messages of one search."""
    start, asked = trio.current_time(), node.dht.client.asked
    await search()
    return trio.current_time() - start, node.dht.client.asked - asked


def told(name: str, found: list[tuple[float, int]]) -> str:
    seconds = sorted(second for second, _ in found)
    asks = [ask for _, ask in found]
    p99 = seconds[max(0, math.ceil(0.99 * len(seconds)) - 1)]
    return (
        f"{name}: p50 {statistics.median(seconds):.2f} s, p99 {p99:.2f} s, "
        f"{statistics.mean(asks):.1f} messages (most {max(asks)})\n"
    )


@pytest.mark.parametrize(
    ("size", "workers"),
    [
        (60, 20),
        pytest.param(250, 40, marks=pytest.mark.large),
        pytest.param(1000, 100, marks=pytest.mark.large),
    ],
)
async def test_searches_find_all_and_forget_the_dead(
    size: int, workers: int, autojump_clock: MockClock, capsys: pytest.CaptureFixture[str]
) -> None:
    beat = 60.0
    chance = random.Random(1)
    async with memory_swarm() as swarm:
        nodes = await grow(swarm, size, DhtSettings(beat=beat))
        serving = chance.sample(nodes, workers)
        async with trio.open_nursery() as nursery:
            for place, node in enumerate(serving):
                nursery.start_soon(node.serve, f"m{place % 4}")
        askers = chance.sample([node for node in nodes if node not in serving], 30)
        one, many = [], []
        for asker in askers:
            target = chance.choice(serving)

            async def find_one(asker: Node = asker, target: Node = target) -> None:
                assert await asker.dht.find_record(target.peer_id) is not None

            async def find_many(asker: Node = asker) -> None:
                wanted = {node.peer_id for node in serving[2::4]}
                assert await asker.found("m2") == wanted

            one.append(await measured(asker, find_one))
            many.append(await measured(asker, find_many))
        dead = chance.sample(nodes, size // 2)
        for node in dead:
            node.dying.set()
        for node in dead:
            await node.dead.wait()
        alive = [node for node in nodes if node not in dead]
        askers = [node for node in askers if node in alive]
        after = [await measured(asker, asker.found) for asker in askers]
        await trio.sleep(2 * beat)
        living = {node.peer_id for node in serving if node in alive}
        later = []
        for asker in askers:

            async def find_living(asker: Node = asker) -> None:
                assert await asker.found("") == living

            later.append(await measured(asker, find_living))
        with capsys.disabled():
            sys.stdout.write(
                f"\n{size} nodes, log2 {math.log2(size):.1f}, one way {swarm.net.latency} s\n"
                + told(" a record", one)
                + told(f" {workers // 4} nodes of a model", many)
                + told(" a model of which half has just died", after)
                + told(f" the {len(living)} that live, two beats later", later)
            )


async def test_a_newcomer_finds_a_node_in_two_seconds_after_two_hundred_came_and_went(
    autojump_clock: MockClock,
) -> None:
    async with memory_swarm() as swarm:
        first = await swarm.node()
        worker = await swarm.node([first.address])
        await worker.dht.joined(1.0)
        await worker.serve()
        for _ in range(200):
            brief = await swarm.node([first.address])
            assert await brief.dht.joined(1.0)
            await trio.sleep(0.2)
            await brief.die()
        start = trio.current_time()
        new = await swarm.node([first.address])
        assert await new.dht.joined(2.0)
        assert await new.found() == {worker.peer_id}
        assert trio.current_time() - start < 2.0
