"""What a musivum bears: announces a second, memory, and where the next node is put.

    python benchmarks/tracker.py --json
    python benchmarks/tracker.py --json --nodes 1000 --connections 100 --announces 5000

One process is the real musivum with its database, held to one core. This one is its nodes: all of
them register over HTTP, each with a key of its own; `--connections` of them are connected by
libp2p at the same time and announce themselves. Each announce is signed, verified and stored.

announces_per_s        over libp2p, as fast as this process can ask, with one under way on each
                       connection; both sides are Python, so this is the least that it bears
cpu_us_per_announce    processor time of musivum for one of those
p99_ms                 until the answer, at PACE announces a second
rss_growth_mb          of musivum over all of them, after a tenth that warms it up
rss_per_connection_kb  of musivum, idle
http_announces_per_s   over HTTP with a new connection for each, 16 under way
place_ms               until a registration is answered when all nodes are there: median of
                       PLACED, with its signature and its commit

Exit 0 if every call was accepted and counted at the other end, else 1.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import httpx
import trio

from p2p.host import Libp2pHost, open_host
from p2p.streams import FrameStream
from tessella.core.addresses import PeerAddress, merge, parse_peer
from tessella.core.contracts import contract_of
from tessella.core.identity import PURPOSE_TRACKER, Identity, public_key_of
from tessella.core.messages import TRACKER, Accepted, Announce, Call, Signed, seal
from tessella.core.shape_json import encode_shape
from tessella.core.shapes import ModelShape
from tessella.core.signed_request import Request, sign_request

SIDE = Path(__file__).with_name("tracker_side.py")
# A mesh of 10,000 nodes that announce themselves each 30 s makes 333.
PACE = 400.0
PACED_SECONDS = 10.0
HTTP_AT_ONCE = 16
HTTP_SECONDS = 5.0
PLACED = 21
ANSWER_SECONDS = 60.0
# 24 layers; a claim holds a few of them, so that placement has something to weigh.
SHAPE = ModelShape(
    family="qwen2",
    layers=24,
    hidden=896,
    intermediate=4864,
    heads=14,
    kv_heads=2,
    head_dim=64,
    vocab=151936,
    context=32768,
    tied=True,
    qkv_bias=True,
)
MODEL = "Qwen/Qwen2.5-0.5B-Instruct"
CLAIMS_MB = (400, 900, 1300)


@dataclass
class Result:
    """The figures."""

    announces_per_s: float = 0.0
    cpu_us_per_announce: float = 0.0
    p99_ms: float = 0.0
    rss_growth_mb: float = 0.0
    rss_per_connection_kb: float = 0.0
    http_announces_per_s: float = 0.0
    place_ms: float = 0.0
    nodes: int = 0
    connections: int = 0
    announces: int = 0
    registrations_per_s: float = 0.0
    refused: int = 0
    pace: float = PACE
    cores: int = field(default_factory=lambda: os.cpu_count() or 1)


class Musivum:
    """The other process."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        ready = self._line()
        (self.address,) = merge(map(parse_peer, ready["addrs"]))
        self.http: str = ready["http"]

    def figures(self) -> tuple[int, float]:
        """Resident KiB and processor seconds, by now."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        said = self._line()
        return said["rss_kb"], said["cpu_seconds"]

    def _line(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("musivum ended")
        found: dict[str, Any] = json.loads(line)
        return found


@contextmanager
def a_musivum(nodes: int) -> Iterator[Musivum]:
    """musivum on the first core, and this process on the others."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) > 1:
        os.sched_setaffinity(0, set(cores[1:]))
    process = subprocess.Popen(
        [sys.executable, str(SIDE), str(cores[0]), str(nodes)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield Musivum(process)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        process.wait(timeout=30)
        os.sched_setaffinity(0, set(cores))


def registration(identity: Identity, number: int) -> dict[str, object]:
    """What node `number` registers with."""
    return {
        "peer_id": identity.peer_id,
        "public_key": public_key_of(identity.peer_id).hex(),
        "p2p_addrs": [f"/ip4/127.0.0.1/tcp/{1024 + number % 60000}"],
        "vram_mb": CLAIMS_MB[number % len(CLAIMS_MB)],
        "device": "cuda",
        "dtype": "f16",
        "context_size": 4096,
        "parallel_slots": 1,
        "model_id": MODEL,
        "total_layers": SHAPE.layers,
        "contract": contract_of(SHAPE),
        "shape": json.loads(encode_shape(SHAPE)),
    }


async def post(
    client: httpx.AsyncClient, musivum: Musivum, identity: Identity, path: str, body: object
) -> int:
    """The status of a signed call over HTTP."""
    data = json.dumps(body).encode()
    asked = Request("POST", path, (), data, audience=musivum.address.peer_id)
    headers = sign_request(asked, identity, time.time(), secrets.token_bytes(16))
    headers["content-type"] = "application/json"
    answer = await client.post(musivum.http + path, content=data, headers=headers)
    return answer.status_code


async def side_by_side(work: Sequence[Callable[[], Awaitable[None]]], at_once: int) -> None:
    """Do all of it, so many at a time."""
    waiting = iter(work)

    async def worker() -> None:
        for one in waiting:
            await one()

    async with trio.open_nursery() as nursery:
        for _ in range(at_once):
            nursery.start_soon(worker)


@dataclass
class Node:
    """A node with a connection of its own."""

    host: Libp2pHost
    identity: Identity
    stream: FrameStream
    turn: trio.Lock = field(default_factory=trio.Lock)

    async def announce(self) -> bool:
        """Whether the heartbeat was accepted."""
        call = Call(
            self.identity.peer_id,
            time.time(),
            secrets.token_bytes(16),
            seal(Announce("Healthy", 0, 12.5)),
        )
        payload = seal(call)
        await self.stream.send(Signed(payload, self.identity.sign(PURPOSE_TRACKER, payload)))
        return isinstance(await self.stream.receive(ANSWER_SECONDS), Accepted)


@asynccontextmanager
async def connected(
    identities: Sequence[Identity], musivum: PeerAddress
) -> AsyncIterator[list[Node]]:
    """A node for each identity, with an open stream, until the context is left."""
    nodes: list[Node] = []
    leave = trio.Event()

    async def be(
        identity: Identity,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,  # type: ignore[name-defined, unused-ignore]
    ) -> None:
        async with open_host(identity, listen=[]) as host:
            await host.connect(musivum, timeout=ANSWER_SECONDS)
            stream = await host.open_stream(musivum.peer_id, TRACKER, timeout=ANSWER_SECONDS)
            nodes.append(Node(host, identity, stream))
            task_status.started()
            await leave.wait()

    async with trio.open_nursery() as nursery:
        for identity in identities:
            await nursery.start(be, identity)
        yield nodes
        leave.set()


async def full_speed(nodes: Sequence[Node], announces: int, result: Result) -> float:
    """Announces a second with one under way on each connection."""
    left = iter(range(announces))

    async def run(node: Node) -> None:
        for _ in left:
            result.refused += not await node.announce()

    began = time.perf_counter()
    async with trio.open_nursery() as nursery:
        for node in nodes:
            nursery.start_soon(run, node)
    return announces / (time.perf_counter() - began)


async def paced(nodes: Sequence[Node], announces: int, result: Result) -> float:
    """Milliseconds, 99 of 100, of announces that come at PACE whatever the answers do."""
    waits: list[float] = []

    async def one(node: Node, due: float) -> None:
        async with node.turn:
            result.refused += not await node.announce()
        waits.append(time.perf_counter() - due)

    began = time.perf_counter()
    async with trio.open_nursery() as nursery:
        for number in range(announces):
            due = began + number / PACE
            await trio.sleep(max(0.0, due - time.perf_counter()))
            nursery.start_soon(one, nodes[number % len(nodes)], due)
    return statistics.quantiles(waits, n=100)[98] * 1000


async def over_http(
    identities: Sequence[Identity], musivum: Musivum, seconds: float, result: Result
) -> float:
    """Announces a second over HTTP, as fast as they go."""
    done = 0
    deadline = time.perf_counter() + seconds
    body = {"status": "Healthy", "step_ms": 12.5}

    async def run(client: httpx.AsyncClient, identity: Identity) -> None:
        nonlocal done
        while time.perf_counter() < deadline:
            result.refused += await post(client, musivum, identity, "/announce", body) != 200
            done += 1

    began = time.perf_counter()
    async with httpx.AsyncClient(trust_env=False) as client, trio.open_nursery() as nursery:
        for identity in islice(identities, HTTP_AT_ONCE):
            nursery.start_soon(run, client, identity)
    return done / (time.perf_counter() - began)


async def register_all(
    identities: Sequence[Identity], musivum: Musivum, result: Result, first: int = 0
) -> list[float]:
    """Seconds that each registration took."""
    took: list[float] = []
    at_once = 1 if first else HTTP_AT_ONCE
    async with httpx.AsyncClient(trust_env=False, timeout=ANSWER_SECONDS) as client:

        async def one(number: int) -> None:
            identity = identities[number]
            began = time.perf_counter()
            body = registration(identity, first + number)
            result.refused += await post(client, musivum, identity, "/register", body) != 200
            took.append(time.perf_counter() - began)

        work = [lambda number=number: one(number) for number in range(len(identities))]
        await side_by_side(work, at_once)
    return took


async def measure(musivum: Musivum, nodes: int, connections: int, announces: int) -> Result:
    """All figures of one musivum."""
    result = Result(nodes=nodes, connections=connections, announces=announces)
    identities = [Identity(secrets.token_bytes(32)) for _ in range(nodes + PLACED)]
    began = time.perf_counter()
    await register_all(identities[:nodes], musivum, result)
    result.registrations_per_s = round(nodes / (time.perf_counter() - began), 1)
    placed = await register_all(identities[nodes:], musivum, result, first=nodes)
    result.place_ms = round(statistics.median(placed) * 1000, 2)
    before, _ = musivum.figures()
    async with connected(identities[:connections], musivum.address) as alive:
        after, _ = musivum.figures()
        result.rss_per_connection_kb = round((after - before) / connections, 1)
        await full_speed(alive, announces // 10, result)
        warm, cpu = musivum.figures()
        result.announces_per_s = round(await full_speed(alive, announces, result), 1)
        grown, cpu_after = musivum.figures()
        result.rss_growth_mb = round((grown - warm) / 1024, 2)
        result.cpu_us_per_announce = round((cpu_after - cpu) * 1e6 / announces, 1)
        steps = min(int(PACE * PACED_SECONDS), announces)
        result.p99_ms = round(await paced(alive, steps, result), 2)
        rate = await over_http(identities, musivum, HTTP_SECONDS, result)
        result.http_announces_per_s = round(rate, 1)
    return result


def main() -> int:
    """Run it and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--connections", type=int, default=600)
    parser.add_argument("--announces", type=int, default=100_000)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    with a_musivum(given.nodes) as musivum:
        result = trio.run(measure, musivum, given.nodes, given.connections, given.announces)
    if given.json:
        print(json.dumps(vars(result)))
    else:
        for name, value in vars(result).items():
            print(f"{name:<24} {value}")
    return 1 if result.refused else 0


if __name__ == "__main__":
    sys.exit(main())
