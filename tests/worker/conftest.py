"""A whole mesh on the memory network, with a random toy model and its arithmetic inline.

The arithmetic runs in the loop instead of a thread, so that trio's virtual clock stands still
while it does: time passes only where somebody waits.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest
import trio

from musivum.app import serve
from musivum.store.memory import MemoryStore
from musivum.testing import QUIET
from p2p.testing import MemoryHost, MemoryNetwork
from tessella.client import Event, ask_status, complete
from tessella.core.addresses import PeerAddress
from tessella.core.completions import CompletionRequest
from tessella.core.contracts import contract_of
from tessella.core.errors import PeerClosed, PeerUnreachable, TessellaError
from tessella.core.identity import Identity
from tessella.core.ids import ModelId, PeerId, SessionId
from tessella.core.layers import LayerRange
from tessella.core.messages import Begun, Delta, Done, Open, Stage
from tessella.core.peers import PeerRow
from tessella.core.plan import UNMEASURED_LAYER_MS
from tessella.core.sampling import Sampling
from tessella.core.shapes import DType
from tessella.core.tiers import Tier
from tessella.engine.compute import Job
from tessella.engine.device import Device
from tessella.engine.shard import Shard, load_shard
from tessella.engine.toy import toy_shape, write_toy
from tessella.engine.weights import open_checkpoint
from tessella.worker.config import WorkerConfig
from tessella.worker.counters import Counters
from tessella.worker.directory import Directory
from tessella.worker.ground import Ground
from tessella.worker.node import run_node
from tessella.worker.testing import Hub
from tessella.worker.trust import Neighbourhood

T = TypeVar("T")
MODEL = ModelId("toy")
CONTEXT = 256
CLAIM_MB = 64
SHAPE = toy_shape(layers=6)


def wall_clock() -> float:
    """Seconds since 1970 that pass with the virtual clock too; also for threads of a loop."""
    try:
        return time.time() + trio.current_time()
    except RuntimeError:
        return time.time() + trio.from_thread.run_sync(trio.current_time)


class InlineCompute:
    """Runs work where it is asked for. `pace` seconds of virtual time pass before each job."""

    def __init__(self) -> None:
        self.counter = 0
        self.pace = 0.0
        self.stuck = False

    async def run(
        self, work: Callable[[Job], T], *, urgent: bool = False, tier: Tier = Tier.LEECH
    ) -> T:
        if self.stuck:
            await trio.sleep_forever()
        waited = 0.0
        while waited < self.pace:
            await trio.sleep(min(0.5, self.pace - waited))
            waited += 0.5
            self.counter += 1
        await trio.lowlevel.checkpoint()
        return work(_InlineJob(self))


class _InlineJob(Job):
    def __init__(self, compute: InlineCompute) -> None:
        self._inline = compute

    def advance(self) -> None:
        self._inline.counter += 1


@dataclass
class Node:
    identity: Identity
    host: MemoryHost
    compute: InlineCompute
    stop: trio.Event
    events: list[dict[str, Any]] = field(default_factory=list)
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    is_started: bool = False

    @property
    def address(self) -> PeerAddress:
        return self.host.address

    def layers(self) -> list[int]:
        assigned = [e["layer_range"] for e in self.events if e["event"] == "assigned"]
        return list(assigned[-1])


@dataclass
class Mesh:
    """Nodes, a musivum, and a client, on one network."""

    net: MemoryNetwork
    weights: Path
    contract: str
    nursery: trio.Nursery
    client: MemoryHost
    musivum: MemoryHost
    nodes: list[Node] = field(default_factory=list)

    async def add(self, layers: int, **config: Any) -> Node:
        """A node that serves the next so many layers; returns when it does."""
        held = sum(node.layers()[1] - node.layers()[0] for node in self.nodes)
        start = held % SHAPE.layers
        # A toy layer is a fraction of the megabyte that claims are counted in: name the range.
        wanted = LayerRange(start, min(start + layers, SHAPE.layers))
        return await self.start(wanted, bytes([len(self.nodes) + 1]) * 32, **config)

    async def start(self, wanted: LayerRange, seed: bytes, **config: Any) -> Node:
        """A node of this seed that serves a range; returns when it does."""
        node = await self.nursery.start(self._run, Identity(seed), wanted, config)
        assert isinstance(node, Node)
        return node

    async def _run(
        self, identity: Identity, wanted: LayerRange, config: dict[str, Any], task_status: Any
    ) -> None:
        settings = {
            "musivum": (self.musivum.address,),
            "model": MODEL,
            "claim_mb": CLAIM_MB,
            "context": CONTEXT,
            "slots": 2,
            "prefill_chunk": 8,
            "layers": wanted,
            "allow_private": True,
            "lan": False,  # the memory network has none, and the real one is not ours
            **config,
        }
        worker = WorkerConfig(weights=self.weights, device="cpu", **settings)
        async with self.net.host(identity) as host:
            node = Node(identity, host, InlineCompute(), trio.Event())
            self.nodes.append(node)

            def tell(event: dict[str, Any]) -> None:
                node.events.append(event)
                if event["event"] == "ready" and not node.is_started:
                    node.is_started = True
                    task_status.started(node)

            with node.scope:
                await run_node(
                    worker, Ground(identity, host, node.compute, wall_clock), node.stop, tell
                )

    def crash(self, node: Node) -> None:
        """A node is gone at once, without a goodbye to anyone."""

        async def unreachable(peer: PeerAddress, *, timeout: float) -> None:
            raise PeerUnreachable(f"no way to {peer.peer_id}")

        node.host.connect = unreachable  # type: ignore[method-assign]
        for peer in node.host.connected():
            self.net.end(node.identity.peer_id, peer, PeerClosed("the process died"))
        node.scope.cancel()

    async def ask(
        self,
        prompt: str,
        *,
        at: Node | None = None,
        host: MemoryHost | None = None,
        **sampling: Any,
    ) -> Answer:
        """An answer, whole, by the first node unless another is named."""
        request = CompletionRequest(
            model=MODEL, prompt=prompt, sampling=Sampling(ignore_eos=True, **sampling)
        )
        answer = Answer()
        peer = (at or self.nodes[0]).address
        async for event in complete(host or self.client, peer, request):
            answer.take(event)
        return answer

    def an_answer(self) -> Answer:
        """One that takes what a test asks for itself."""
        return Answer()

    async def status(self, node: Node) -> dict[str, Any]:
        return await ask_status(self.client, node.address)


@dataclass
class Answer:
    begun: Begun | None = None
    ids: list[int] = field(default_factory=list)
    text: str = ""
    done: Done | None = None

    def take(self, event: Event) -> None:
        if isinstance(event, Begun):
            self.begun = event
        elif isinstance(event, Delta):
            self.ids.append(event.token_id)
            self.text += event.text
        elif isinstance(event, Done):
            self.done = event

    def chain(self) -> list[tuple[str, int, int]]:
        assert self.begun is not None
        return [(s.peer_id, s.layers.start, s.layers.stop) for s in self.begun.chain]


@pytest.fixture
def equal_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every node measures what is assumed of one of two layers that has measured nothing.

    Else nodes are ranked by how busy this machine was, and by whom the lot let answer.
    """
    computed = Counters.computed
    seconds = 2 * UNMEASURED_LAYER_MS / 1000
    monkeypatch.setattr(
        Counters, "computed", lambda counters, count, _: computed(counters, count, seconds)
    )


@pytest.fixture(scope="session")
def toy_weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("toy")
    write_toy(path, shape=SHAPE)
    return path


@pytest.fixture(scope="session")
def toy_shard(toy_weights: Path) -> Shard:
    """The whole model, for tests of what a stage does with its shard."""
    with closing(open_checkpoint(toy_weights)) as checkpoint:
        return load_shard(checkpoint, SHAPE.whole, device=Device.CPU, dtype=DType.F32)


@pytest.fixture
def inline_compute() -> InlineCompute:
    return InlineCompute()


@pytest.fixture(scope="session")
def neighbourhood() -> Callable[..., Neighbourhood]:
    """`neighbourhood(directory, blamed)`: what is blamed is appended to a list of (peer, code)."""

    def made(directory: Directory, blamed: list[tuple[str, str]]) -> Neighbourhood:
        def blame(peer: PeerId, error: TessellaError) -> None:
            blamed.append((peer, error.code))

        return Neighbourhood(directory, Counters(), 4.0, blame)

    return made


@pytest.fixture(scope="session")
def a_row() -> Callable[..., PeerRow]:
    """A node of the toy model as musivum lists it; keyword arguments change it."""

    def made(address: PeerAddress, layers: LayerRange, **changes: Any) -> PeerRow:
        row = PeerRow(
            peer_id=address.peer_id,
            model=MODEL,
            contract="contract",
            layers=layers,
            total_layers=SHAPE.layers,
            status="Healthy",
            addrs=address.addrs,
            device="cpu",
            dtype="f32",
            queue_depth=0,
            step_ms=0.0,
        )
        return replace(row, **changes)

    return made


@pytest.fixture(scope="session")
def an_open() -> Callable[..., Open]:
    """The `Open` that these peers' session has at one place of its chain of equal ranges."""

    def made(peers: Sequence[PeerAddress], place: int, **changes: Any) -> Open:
        each = SHAPE.layers // len(peers)
        opened = Open(
            session_id=SessionId(b"session of tests"),
            epoch=0,
            model=MODEL,
            contract="contract",
            dtype="f32",
            chain=tuple(
                Stage(peer.peer_id, LayerRange(each * at, each * (at + 1)))
                for at, peer in enumerate(peers)
            ),
            place=place,
            capacity=64,
            prompt=bytes([1, 0, 0, 0, 2, 0, 0, 0]),
            sampling=Sampling(max_tokens=4).encode(),
            entry_addrs=peers[0].addrs,
            entry_url="",
            grant=b"",
            grant_signature=b"",
        )
        return replace(opened, **changes)

    return made


OpenMesh = Callable[..., Any]


@pytest.fixture
def open_mesh(toy_weights: Path) -> OpenMesh:
    """`async with open_mesh([2, 2, 2]) as mesh`: nodes that serve so many layers each.

    A test that waits takes `autojump_clock` too.
    """

    @asynccontextmanager
    async def opened(claims: Sequence[int], **config: Any) -> AsyncIterator[Mesh]:
        net = MemoryNetwork(latency=0.001)
        contract = contract_of(open_checkpoint(toy_weights).shape)
        settings = replace(QUIET, min_vram_mb=0, heartbeat_seconds=5.0)
        async with (
            net.host(b"m" * 32) as musivum,
            net.host(b"c" * 32) as client,
            trio.open_nursery() as nursery,
        ):
            await nursery.start(
                partial(
                    serve,
                    musivum,
                    Identity(b"m" * 32),
                    settings,
                    store=MemoryStore(),
                    clock=wall_clock,
                )
            )
            mesh = Mesh(net, toy_weights, contract, nursery, client, musivum)
            for layers in claims:
                await mesh.add(layers, **config)
            yield mesh
            nursery.cancel_scope.cancel()

    return opened


@pytest.fixture
def open_hub(toy_weights: Path) -> OpenMesh:
    """`async with open_hub([(0, 3), (3, 6)]) as (mesh, hub)`: as `open_mesh`, and none insists.

    The musivum of this mesh is a `Hub`: it does as the test says.
    """

    @asynccontextmanager
    async def opened(
        ranges: Sequence[tuple[int, int]], **config: Any
    ) -> AsyncIterator[tuple[Mesh, Hub]]:
        net = MemoryNetwork(latency=0.001)
        contract = contract_of(open_checkpoint(toy_weights).shape)
        async with (
            net.host(b"m" * 32) as musivum,
            net.host(b"c" * 32) as client,
            trio.open_nursery() as nursery,
        ):
            hub = Hub(musivum, Identity(b"m" * 32), wall_clock)
            mesh = Mesh(net, toy_weights, contract, nursery, client, musivum)
            for number, (start, stop) in enumerate(ranges, 1):
                hub.next_range = LayerRange(start, stop)
                await mesh.start(hub.next_range, bytes([number]) * 32, **{"layers": None, **config})
            yield mesh, hub
            nursery.cancel_scope.cancel()

    return opened
