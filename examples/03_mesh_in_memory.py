"""A whole mesh in one process and on no network: a musivum, three nodes, a client.

    python examples/03_mesh_in_memory.py

The programs are the real ones; only the network is made of memory. Swap `net.host` for
`p2p.host.open_host` and the same lines run on real machines.
"""

from __future__ import annotations

import tempfile
import time
from functools import partial
from pathlib import Path

import trio

from musivum.app import serve
from musivum.config import MusivumConfig
from musivum.store.memory import MemoryStore
from p2p.testing import MemoryNetwork
from tessella.client import ask_peers, complete
from tessella.core.completions import CompletionRequest
from tessella.core.identity import Identity
from tessella.core.ids import ModelId
from tessella.core.layers import LayerRange
from tessella.core.messages import Begun, Delta, Done
from tessella.core.peers import choose_entry
from tessella.core.sampling import Sampling
from tessella.engine.compute import open_compute
from tessella.engine.toy import toy_shape, write_toy
from tessella.worker.config import WorkerConfig
from tessella.worker.ground import Ground
from tessella.worker.node import run_node

MODEL = ModelId("toy")


async def node(net: MemoryNetwork, config: WorkerConfig, name: str, ready: trio.Event) -> None:
    """One node: an identity, a place on the network, a thread that computes."""
    identity = Identity(name.encode().ljust(32, b"."))

    def tell(event: dict[str, object]) -> None:
        if event["event"] in ("assigned", "ready"):
            print(f"  {name}: {event['event']} {event.get('layer_range', '')}")
        if event["event"] == "ready":
            ready.set()

    async with net.host(identity) as host, open_compute() as compute:
        await run_node(config, Ground(identity, host, compute), trio.Event(), tell)


async def mesh(weights: Path) -> None:
    """Bring the mesh up, ask it one question, and let it go."""
    # 1. A network with 5 ms between any two peers.
    net = MemoryNetwork(latency=0.005)
    key = Identity(b"m" * 32)
    async with net.host(key) as hub, trio.open_nursery() as nursery:
        # 2. musivum, which knows who holds which layers. Its floor is for real models.
        settings = MusivumConfig(min_vram_mb=0, http=(), allow_private_addrs=True)
        program = partial(serve, hub, key, settings, store=MemoryStore(), clock=time.time)
        musivum = (await nursery.start(program)).peer

        # 3. Three nodes of two layers each. Toy layers are too small for claims in MB to split
        #    them, so each node names its range; others let musivum choose.
        for number in range(3):
            config = WorkerConfig(
                musivum=(musivum,), model=MODEL, weights=weights, claim_mb=64, context=128,
                layers=LayerRange(2 * number, 2 * number + 2), device="cpu",
            )  # fmt: skip
            ready = trio.Event()
            nursery.start_soon(node, net, config, f"node {number}", ready)
            await ready.wait()

        # 4. A client asks musivum who is there, and one of them for an answer.
        async with net.host(b"c" * 32) as client:
            entry = choose_entry(await ask_peers(client, musivum, MODEL))
            sampling = Sampling(max_tokens=16, temperature=1.0, seed=1, ignore_eos=True)
            request = CompletionRequest(model=MODEL, prompt="Hello", sampling=sampling)
            async for event in complete(client, entry, request):
                match event:
                    case Begun():
                        print("chain:", " -> ".join(f"[{stage.layers}]" for stage in event.chain))
                    case Delta():
                        print(f"  token {event.token_id}: {event.text!r}")
                    case Done():
                        print(f"done: {event.completion_tokens} tokens ({event.reason})")
        nursery.cancel_scope.cancel()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        write_toy(Path(directory), shape=toy_shape(layers=6), seed=4)

        async def main() -> None:
            with trio.fail_after(60):
                await mesh(Path(directory))

        trio.run(main)
