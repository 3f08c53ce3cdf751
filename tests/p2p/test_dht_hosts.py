"""The swarm on real sockets: the same code over libp2p, Noise and yamux."""

from __future__ import annotations

import math
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from statistics import median

import pytest
import trio

from p2p.dht import Dht, DhtMode, DhtSettings, open_dht
from p2p.host import Libp2pHost, open_host
from p2p.testing_dht import numbered, serve
from tessella.core.addresses import PeerAddress

pytestmark = pytest.mark.mesh

LOOPBACK = "/ip4/127.0.0.1/tcp/0"
# One process is all the nodes: fifty handshakes with fifty others are a minute of arithmetic.
SECONDS = 120.0


async def enter(
    stack: AsyncExitStack, number: int, bootstrap: tuple[PeerAddress, ...], client: bool = False
) -> tuple[Libp2pHost, Dht]:
    """A node of the swarm, on a port of its own; a client does not listen."""
    who = numbered(number)
    mode = DhtMode.CLIENT if client else DhtMode.SERVER
    host = await stack.enter_async_context(open_host(who, listen=[] if client else [LOOPBACK]))
    settings = DhtSettings(mode=mode, bootstrap=bootstrap, beat=300.0, seed=number)
    dht = await stack.enter_async_context(open_dht(host, who, settings))
    if bootstrap:
        assert await dht.joined(SECONDS)
    return host, dht


async def find_all(size: int, serving: int) -> None:
    """Every node and a client see every node that serves, and nobody sees the client."""
    async with AsyncExitStack() as stack:
        first, dht = await enter(stack, 1, ())
        nodes = [(first, dht)]
        for number in range(2, size + 1):
            nodes.append(await enter(stack, number, (first.address,)))
        for host, part in nodes[-serving:]:
            await serve(host, part, "m")
        client, searcher = await enter(stack, 999, (first.address,), client=True)
        wanted = sorted(host.address.peer_id for host, _ in nodes[-serving:])
        with trio.fail_after(SECONDS):
            for part in (searcher, dht, nodes[-1][1]):
                found = await part.find_nodes("m")
                assert [one.peer_id for one in found] == wanted
        seconds, asked = [], searcher.client.asked
        for host, _ in nodes[-serving:]:
            started = trio.current_time()
            record = await searcher.find_record(host.address.peer_id)
            seconds.append(trio.current_time() - started)
            assert record is not None
            assert record.addrs == host.address.addrs
        messages = (searcher.client.asked - asked) / serving
        sys.stderr.write(
            f"{size} hosts, log2 {math.log2(size):.1f}: a record p50 {median(seconds) * 1000:.0f} "
            f"ms, most {max(seconds) * 1000:.0f} ms, {messages:.1f} messages\n"
        )
        for _, part in nodes:
            assert client.address.peer_id not in part.table


async def test_nodes_find_each_other_over_sockets() -> None:
    await find_all(6, serving=5)


@pytest.mark.large
@pytest.mark.timeout(600)
async def test_fifty_nodes_find_each_other_over_sockets() -> None:
    await find_all(50, serving=10)


async def test_a_node_finds_the_swarm_again_by_its_snapshot(tmp_path: Path) -> None:
    path = tmp_path / "peers.json"
    who = numbered(2)
    async with AsyncExitStack() as stack:
        first, _ = await enter(stack, 1, ())
        for bootstrap in ((first.address,), ()):
            settings = DhtSettings(snapshot=path, bootstrap=bootstrap)
            async with (
                open_host(who, listen=[LOOPBACK]) as host,
                open_dht(host, who, settings) as dht,
            ):
                assert await dht.joined(SECONDS)
                assert first.address.peer_id in dht.table
