"""A chain of toy stages by hand: each reached by libp2p, over HTTP, or both.

async with a_chain(weights, [2, 2, 2], web, over_http=True) as chain:
    answer = await chain.ask("a prompt", max_tokens=5)
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

import trio
from fastapi import FastAPI

from p2p.pool import StreamPool
from p2p.testing import MemoryHost, MemoryNetwork
from tessella.core.completions import CompletionRequest
from tessella.core.errors import TessellaError
from tessella.core.identity import Identity
from tessella.core.ids import ModelId, PeerId
from tessella.core.layers import LayerRange
from tessella.core.messages import HOP, TOKENS, Message
from tessella.core.peers import NodeStatus, PeerRow
from tessella.core.sampling import Sampling
from tessella.engine.weights import open_checkpoint
from tessella.worker.api.tokens import TokenRoom, add_tokens
from tessella.worker.config import WorkerConfig
from tessella.worker.counters import Counters
from tessella.worker.directory import Directory
from tessella.worker.ground import Ground
from tessella.worker.hop_streams import HopStreams
from tessella.worker.http_hops.asks import MAX_TOKEN_BODY
from tessella.worker.http_hops.dialling import HttpHops, Rules, open_http_hops
from tessella.worker.loading import Loader
from tessella.worker.model import Model
from tessella.worker.serving import Serving
from tessella.worker.state import Loaded, NodeState
from tessella.worker.tickets import SignedTicket, Tickets
from tessella.worker.tokens import TokenDesk
from tessella.worker.trust import Neighbourhood
from tests.worker.conftest import MODEL, SHAPE, Answer, InlineCompute
from tests.worker.http_net import HttpNet, Node, wall

NOWHERE = "/ip4/10.9.9.9/tcp/1"
HOP_TIMEOUT = 4.0
MUSIVUM = Identity(b"m" * 32)
"""Whose tickets the nodes take."""


class Web(Protocol):
    """What HTTP is made of."""

    async def serve(self, name: str, app: FastAPI) -> str:
        """The URL at which the app answers from here on."""

    def rules(self) -> Rules:
        """How nodes call each other."""


@dataclass
class InProcess:
    """HTTP without sockets."""

    net: HttpNet = field(default_factory=HttpNet)

    async def serve(self, name: str, app: FastAPI) -> str:
        self.net.apps[f"{name}.test"] = app
        return f"http://{name}.test"

    def rules(self) -> Rules:
        return self.net.rules(patience=HOP_TIMEOUT / 2)


@dataclass
class Link:
    """One node of the chain."""

    node: Node
    host: MemoryHost
    http: HttpHops
    loaded: Loaded
    state: NodeState
    compute: InlineCompute

    @property
    def sessions(self) -> list[str]:
        return [lease.state.value for lease in self.loaded.entry.sessions.leases()]


@dataclass
class Chain:
    net: MemoryNetwork
    rows: list[PeerRow] = field(default_factory=list)
    links: list[Link] = field(default_factory=list)
    blamed: list[tuple[PeerId, str]] = field(default_factory=list)

    async def asked(self, model: ModelId) -> list[PeerRow]:
        return self.rows

    async def ask(
        self,
        prompt: str,
        say: Callable[[Message], Awaitable[None]] | None = None,
        *,
        max_tokens: int,
        ticket: SignedTicket | None = None,
    ) -> Answer:
        """An answer by the first node."""
        answer = Answer()

        async def take(message: Message) -> None:
            answer.take(message)
            if say is not None:
                await say(message)

        request = CompletionRequest(
            model=MODEL,
            prompt=prompt,
            sampling=Sampling(ignore_eos=True, max_tokens=max_tokens),
        )
        await self.links[0].loaded.entry.answer(request, take, ticket)
        return answer


@asynccontextmanager
async def a_chain(
    weights: Path, layers: Sequence[int], web: Web, *, over_http: Sequence[bool]
) -> AsyncIterator[Chain]:
    """Nodes that hold so many layers each; those `over_http` cannot be dialled."""
    net = MemoryNetwork(latency=0.001)
    chain = Chain(net)
    async with trio.open_nursery() as nursery:
        async with AsyncExitStack() as stack:
            start = 0
            for place, (count, is_http) in enumerate(zip(layers, over_http, strict=True)):
                identity = Identity(bytes([place + 1]) * 32)
                host = await stack.enter_async_context(net.host(identity))
                rules = web.rules()
                http = await stack.enter_async_context(open_http_hops(identity, rules))
                node = Node(identity, nursery, clock=rules.clock)
                url = await web.serve(f"n{place}", node.app)
                held = LayerRange(start, start + count)
                link = await _link(chain, weights, node, host, http, held)
                entry = replace(link.loaded.entry, api_url=url)
                link.loaded = link.state.loaded = replace(link.loaded, entry=entry)
                row = _row(link, held, url)
                chain.rows.append(replace(row, addrs=(NOWHERE,)) if is_http else row)
                chain.links.append(link)
                start += count
            yield chain
        nursery.cancel_scope.cancel()


async def _link(
    chain: Chain,
    weights: Path,
    node: Node,
    host: MemoryHost,
    http: HttpHops,
    held: LayerRange,
) -> Link:
    counters, desk, compute = Counters(), TokenDesk(node.identity), InlineCompute()
    directory = Directory(host, StreamPool(host), MODEL, chain.asked, http=http)

    def blame(peer: PeerId, error: TessellaError) -> None:
        chain.blamed.append((peer, error.code))

    tickets = Tickets([MUSIVUM.peer_id], wall)
    around = Neighbourhood(directory, counters, HOP_TIMEOUT, blame, tickets)
    config = WorkerConfig(
        kademlia=True,
        model=MODEL,
        weights=weights,
        claim_mb=64,
        layers=held,
        device="cpu",
        context=256,
        slots=2,
        prefill_chunk=8,
    )
    ground = Ground(node.identity, host, compute, wall)
    with closing(open_checkpoint(weights)) as checkpoint:
        loader = Loader(Model.of(config, checkpoint), ground, around, desk)
        loaded = await loader.load(held, lambda loaded, total: None)
    state = NodeState(0.0, status=NodeStatus.HEALTHY, layers=held)
    state.loaded = loaded
    handler = HopStreams(Serving(state)).serve
    host.serve(HOP, handler, streams=9, per_peer=9)
    host.serve(TOKENS, desk.serve, streams=9, per_peer=9)
    node.forward(handler)
    add_tokens(node.app, TokenRoom(node.door(node.table(TOKENS), MAX_TOKEN_BODY), desk))
    return Link(node, host, http, loaded, state, compute)


def _row(link: Link, held: LayerRange, url: str) -> PeerRow:
    served = link.loaded.entry.served
    return PeerRow(
        peer_id=link.node.identity.peer_id,
        model=MODEL,
        contract=served.contract,
        layers=held,
        total_layers=SHAPE.layers,
        status=NodeStatus.HEALTHY.value,
        addrs=link.host.address.addrs,
        device="cpu",
        dtype=served.shard.dtype.value,
        queue_depth=0,
        step_ms=0.0,
        api_url=url,
    )
