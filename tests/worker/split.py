"""Nodes whose layers a real musivum chooses by their claims, on a memory network in virtual time.

async with split(weights, heal_seconds=20.0) as mesh:
    nodes = [await mesh.join(TWO_LAYERS) for _ in range(4)]
    assert mesh.listed(nodes[0]) == "Healthy 0:2"
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import trio

from musivum.app import open_rooms
from musivum.config import MusivumConfig
from musivum.nodes.books import Books
from musivum.store.memory import MemoryStore
from musivum.testing import QUIET
from p2p.testing import MemoryNetwork
from tessella.client import ask_peers
from tessella.core.addresses import PeerAddress
from tessella.core.contracts import contract_of
from tessella.core.errors import TessellaError
from tessella.core.identity import Identity
from tessella.core.messages import TRACKER, Document, Operate
from tessella.core.peers import NodeStatus
from tessella.core.route import coverage
from tessella.engine.toy import toy_shape, write_toy
from tests.worker.conftest import Answer, Mesh, Node, wall_clock

LAYERS = 6
# A layer and its KV are a megabyte, so that claims of a few split the model.
SHAPE = replace(toy_shape(layers=LAYERS, hidden=128), intermediate=448)
TWO_LAYERS, THREE_LAYERS = 3, 4
BEAT = 5.0
# Three beats of silence, and the tick that notices.
OFFLINE_SECONDS = 3 * BEAT + 1.0
TOKEN = "of the operator of these tests"
PROMPT = "a prompt of several chunks, " * 2
MUSIVUM, CLIENT = Identity(b"m" * 32), Identity(b"c" * 32)


def write_split(path: Path) -> Path:
    """A checkpoint that claims of a few megabytes split."""
    write_toy(path, shape=SHAPE)
    return path


@dataclass
class Split(Mesh):
    """A mesh whose musivum can be looked into, and started again."""

    config: MusivumConfig = field(kw_only=True)
    store: MemoryStore = field(default_factory=MemoryStore)
    address: PeerAddress | None = None
    """Where musivum is, whichever it is."""
    books: Books = field(init=False)
    musivum_ends: trio.Event = field(init=False)

    async def join(
        self, claim_mb: int = TWO_LAYERS, seed: bytes | None = None, **config: Any
    ) -> Node:
        """A node with this claim, which takes what it is given; returns when it serves."""
        chosen = {"layers": None, "claim_mb": claim_mb, **config}
        return await self.start(SHAPE.whole, seed or bytes([len(self.nodes) + 1]) * 32, **chosen)

    async def begin(self, claim_mb: int = TWO_LAYERS, **config: Any) -> Node:
        """The same, and nobody waits until it serves."""
        chosen = {"layers": None, "claim_mb": claim_mb, **config}
        identity = Identity(bytes([len(self.nodes) + 1]) * 32)
        run = partial(self._run, task_status=trio.TASK_STATUS_IGNORED)
        self.nursery.start_soon(run, identity, SHAPE.whole, chosen)
        await trio.sleep(0.1)
        return self.nodes[-1]

    def listed(self, node: Node) -> str:
        """How musivum lists a node: `Healthy 0:2`; nothing if it does not."""
        found = self.books.roster.find(node.identity.peer_id)
        return f"{found.row.status} {found.row.layers}" if found else ""

    def moving(self) -> list[str]:
        """The nodes that are to move, or load."""
        loading = NodeStatus.PENDING_LOAD
        nodes = self.books.roster.nodes()
        return [node.peer_id for node in nodes if node.target or node.status is loading]

    async def health(self) -> str:
        """How the mesh is, by what anybody is told of it."""
        rows = await ask_peers(self.client, self.musivum.address, "toy")
        return coverage(rows, LAYERS).health.value

    async def until(self, there: Callable[[], object], within: float) -> float:
        """The seconds until something is so; fails if it is not in time."""
        started = trio.current_time()
        while not there():
            assert trio.current_time() - started < within, [*map(self.listed, self.nodes)]
            await trio.sleep(0.1)
        return trio.current_time() - started

    async def hears(self, prompt: str = PROMPT, **sampling: Any) -> Answer:
        """An answer by a node that is listed with layer 0."""
        rows = await ask_peers(self.client, self.musivum.address, "toy")
        able = {row.peer_id for row in rows if row.serves and row.layers.start == 0}
        entry = next(node for node in self.nodes if node.identity.peer_id in able)
        return await self.ask(prompt, at=entry, **{"max_tokens": 6, **sampling})

    async def operate(self, name: str) -> Any:
        """What an order of the operator, by its route, is answered with."""
        await self.client.connect(self.musivum.address, timeout=5)
        peer = self.musivum.address.peer_id
        async with await self.client.open_stream(peer, TRACKER, timeout=5) as stream:
            await stream.send(Operate(TOKEN, name, b"{}"))
            answer = await stream.receive(30.0)
        assert isinstance(answer, Document), answer
        return json.loads(answer.document)

    async def is_listed_as_it_is(self) -> bool:
        """Whether every node that musivum calls Healthy says just that of itself."""
        for node in self.nodes:
            known = self.books.roster.find(node.identity.peer_id)
            if known is None or not known.row.serves:
                continue
            try:
                said = await self.status(node)
            except TessellaError:
                continue  # it is gone, and musivum has yet to notice
            held = [known.row.layers.start, known.row.layers.stop]
            if (said["status"], said["layer_range"]) != ("Healthy", held):
                return False
        return True

    async def restart(self) -> None:
        """musivum is ended, and one without a memory begins where it was."""
        self.musivum_ends.set()
        await trio.sleep(0.1)
        await self.nursery.start(self._musivum)

    async def _musivum(self, task_status: Any) -> None:
        self.musivum_ends = trio.Event()
        async with self.net.host(MUSIVUM) as host:
            if self.address is not None:
                host.address = self.address
            self.musivum, self.address = host, host.address
            rooms = partial(open_rooms, store=self.store, clock=wall_clock, token=TOKEN)
            async with rooms(host, MUSIVUM, self.config) as opened:
                self.books = opened.rooms.books
                task_status.started()
                await self.musivum_ends.wait()
        self.store = MemoryStore()


@asynccontextmanager
async def split(
    weights: Path,
    *,
    store: MemoryStore | None = None,
    net: MemoryNetwork | None = None,
    **settings: Any,
) -> AsyncIterator[Split]:
    """A musivum without nodes, until the context is left."""
    net = net or MemoryNetwork(latency=0.001)
    config = replace(QUIET, **{"min_vram_mb": 0, "heartbeat_seconds": BEAT, **settings})
    async with net.host(CLIENT) as client, trio.open_nursery() as nursery:
        mesh = Split(net, weights, contract_of(SHAPE), nursery, client, client, config=config)
        mesh.store = store or mesh.store
        await nursery.start(mesh._musivum)
        yield mesh
        nursery.cancel_scope.cancel()
