"""A mesh of toy nodes on real sockets of this machine, each with the limits of strangers."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import trio

from musivum.app import serve
from musivum.store.memory import MemoryStore
from musivum.testing import QUIET
from p2p.host import Libp2pHost, open_host
from tessella.client import complete
from tessella.core.addresses import PeerAddress
from tessella.core.completions import CompletionRequest
from tessella.core.identity import Identity
from tessella.core.ids import ModelId
from tessella.core.layers import LayerRange
from tessella.core.messages import Delta
from tessella.core.sampling import Sampling
from tessella.worker.config import WorkerConfig
from tessella.worker.ground import Ground
from tessella.worker.node import run_node
from tests.p2p.hostile.served import LOOPBACK, SECONDS, STRICT
from tests.worker.conftest import SHAPE, InlineCompute

MODEL = ModelId("toy")


@dataclass
class ToyMesh:
    """Nodes with a share of the layers each, and a client."""

    client: Libp2pHost
    hosts: list[Libp2pHost] = field(default_factory=list)

    async def tokens(self, count: int) -> list[int]:
        """The ids of one answer, through every node."""
        sampling = Sampling(max_tokens=count, ignore_eos=True)
        request = CompletionRequest(model=MODEL, prompt="honest work", sampling=sampling)
        ids = []
        async for event in complete(self.client, self.hosts[0].address, request):
            if isinstance(event, Delta):
                ids.append(event.token_id)
        return ids


@asynccontextmanager
async def toy_mesh(weights: Path, nodes: int) -> AsyncIterator[ToyMesh]:
    """A musivum and nodes in this process, over loopback TCP, until the context is left."""
    ours = Identity(b"m" * 32)
    async with (
        open_host(ours, listen=[LOOPBACK]) as musivum,
        open_host(Identity(b"c" * 32), listen=[]) as client,
        trio.open_nursery() as nursery,
    ):
        settings = replace(QUIET, min_vram_mb=0, heartbeat_seconds=5.0)
        await nursery.start(
            partial(serve, musivum, ours, settings, store=MemoryStore(), clock=time.time)
        )
        mesh = ToyMesh(client)
        for number in range(nodes):
            config = _config(musivum.address, weights, number, nodes)
            with trio.fail_after(SECONDS):
                mesh.hosts.append(await nursery.start(_run, config, bytes([number + 1]) * 32))
        yield mesh
        nursery.cancel_scope.cancel()


def _config(musivum: PeerAddress, weights: Path, number: int, nodes: int) -> WorkerConfig:
    share = SHAPE.layers // nodes
    return WorkerConfig(
        musivum=(musivum,),
        model=MODEL,
        weights=weights,
        claim_mb=64,
        device="cpu",
        context=256,
        slots=2,
        layers=LayerRange(number * share, (number + 1) * share),
    )


async def _run(config: WorkerConfig, seed: bytes, task_status: Any) -> None:
    identity = Identity(seed)
    async with open_host(identity, listen=[LOOPBACK], limits=STRICT) as host:

        def tell(event: dict[str, Any]) -> None:
            if event["event"] == "ready":
                task_status.started(host)

        await run_node(config, Ground(identity, host, InlineCompute()), trio.Event(), tell)
