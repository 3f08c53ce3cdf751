"""Both doors of a musivum in memory, and nodes that call at the HTTP one.

async with answering(net, SEED, config) as door, http_node(net, OTHER, door) as node:
    registered = await node.register()
    peers = (await door.client.get("/peers")).json()
"""

from __future__ import annotations

import json
import secrets
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import httpx

from musivum.app import Opened, open_rooms
from musivum.clocks import Clock
from musivum.config import MusivumConfig
from musivum.nodes.books import Keeper
from musivum.routes import http_app
from musivum.store.memory import MemoryStore
from musivum.testing import SMALL, clock
from p2p.testing import MemoryNetwork
from tessella.core.addresses import PeerAddress
from tessella.core.call_rules import NONCE_BYTES
from tessella.core.contracts import contract_of
from tessella.core.identity import Identity, public_key_of
from tessella.core.ids import PeerId
from tessella.core.shape_json import encode_shape
from tessella.core.signed_request import Request, query_of, sign_request

# Nobody resolves it: the requests never leave this process.
BASE_URL = "http://musivum.test"

Body = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Door:
    """A musivum that answers at both doors."""

    peer: PeerAddress
    opened: Opened
    client: httpx.AsyncClient

    async def remembered(self) -> dict[str, Any]:
        """All that calls may change, to be compared with what it was before."""
        rooms = self.opened.rooms
        return {
            "nodes": rooms.books.roster.nodes(),
            "version": rooms.books.roster.version,
            "nonces": len(rooms.admission.nonces),
            "reputations": rooms.books.reputations.all(),
            "kept": await rooms.books.store.load(),
        }


@asynccontextmanager
async def answering(
    net: MemoryNetwork,
    seed: bytes,
    config: MusivumConfig,
    *,
    store: Keeper | None = None,
    token: str = "",
    to_nodes: httpx.AsyncBaseTransport | None = None,
) -> AsyncIterator[Door]:
    """A musivum on a memory network until the context is left, with its HTTP app in process.

    Its nodes are at private addresses, and nobody is limited in how often he asks. `to_nodes` is
    where its own HTTP calls end, all of them.
    """
    identity = Identity(seed)
    kept = store or MemoryStore()
    inside = replace(config, allow_private_addrs=True)
    async with (
        net.host(identity) as host,
        open_rooms(
            host, identity, inside, store=kept, clock=clock, token=token, to_nodes=to_nodes
        ) as opened,
    ):
        app = http_app(opened.rooms, opened.page, opened.metrics, rate=None)
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url=BASE_URL) as client:
            yield Door(host.address, opened, client)


@dataclass(frozen=True, slots=True)
class HttpNode:
    """A node that says everything over HTTP."""

    identity: Identity
    addrs: tuple[str, ...]
    musivum: PeerId
    """Whom its calls are for."""
    client: httpx.AsyncClient
    clock: Clock = clock

    @property
    def peer_id(self) -> PeerId:
        """Who calls."""
        return self.identity.peer_id

    @property
    def api_url(self) -> str:
        """Where it would answer over HTTP: at its own address, as musivum demands."""
        return f"http://{self.addrs[0].split('/')[2]}:8080"

    def asked(self, path: str, body: bytes) -> Request:
        """What a well-behaved node signs."""
        return Request("POST", path, (), body, self.musivum)

    def sign(self, request: Request, now: float | None = None) -> dict[str, str]:
        """The headers of a call made now, or at another moment, with a nonce of its own."""
        created = self.clock() if now is None else now
        return sign_request(request, self.identity, created, secrets.token_bytes(NONCE_BYTES))

    async def send(self, path: str, body: bytes, headers: Mapping[str, str]) -> httpx.Response:
        """The answer to a call with these headers."""
        plain = {"Content-Type": "application/json", **headers}
        return await self.client.post(path, content=body, headers=plain)

    async def call(self, path: str, body: Body) -> httpx.Response:
        """The answer to a signed call."""
        content = json.dumps(body).encode()
        return await self.send(path, content, self.sign(self.asked(path, content)))

    async def read(self, path: str, **query: object) -> httpx.Response:
        """The answer to a signed question."""
        pairs = query_of((name, str(value)) for name, value in query.items())
        asked = Request("GET", path, pairs, b"", self.musivum)
        return await self.client.get(path, params=list(pairs), headers=self.sign(asked))

    def registration(self, **changes: object) -> Body:
        """What a node of the small model asks for, as `musivum.testing` has it."""
        return {**registration_body(self.peer_id, self.addrs), **changes}

    async def register(self, **changes: object) -> httpx.Response:
        """The answer to a registration."""
        return await self.call("/register", self.registration(**changes))

    async def join(self, **changes: object) -> list[int]:
        """Register and be ready; the range that was given."""
        answer = await self.register(**changes)
        (layers,) = answer.raise_for_status().json()["assignment"]["layer_ranges"]
        (await self.call("/ready", {"layers": layers})).raise_for_status()
        return list(layers)


@asynccontextmanager
async def http_node(net: MemoryNetwork, seed: bytes, door: Door) -> AsyncIterator[HttpNode]:
    """A node that can be dialled on the network, until the context is left."""
    identity = Identity(seed)
    async with net.host(identity) as host:
        yield HttpNode(identity, host.address.addrs, door.peer.peer_id, door.client)


def registration_body(peer_id: PeerId, addrs: tuple[str, ...]) -> Body:
    """The registration of a node of the small model: its claim holds 4 layers and an end, or 6."""
    return {
        "peer_id": peer_id,
        "public_key": public_key_of(peer_id).hex(),
        "p2p_addrs": list(addrs),
        "vram_mb": 8,
        "device": "cpu",
        "dtype": "f32",
        "weights": "f32",
        "context_size": 256,
        "parallel_slots": 1,
        "model_id": "small",
        "total_layers": SMALL.layers,
        "contract": contract_of(SMALL),
        "shape": json.loads(encode_shape(SMALL)),
    }
