"""A musivum in memory, and a caller that says to it whatever a test wants said.

async with running(net, SEED, config) as address, calling(net, OTHER, address) as node:
    assigned = await node.call(a_registration())
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial

import trio

from musivum.app import serve
from musivum.config import MusivumConfig
from musivum.nodes.books import Keeper
from musivum.nodes.registration import House
from musivum.store.memory import MemoryStore
from p2p.streams import FrameStream
from p2p.testing import MemoryHost, MemoryNetwork
from tessella.core.addresses import PeerAddress
from tessella.core.contracts import contract_of
from tessella.core.identity import PURPOSE_TRACKER, Identity
from tessella.core.ids import ModelId, PeerId
from tessella.core.messages import TRACKER, Call, Message, Register, Signed, seal
from tessella.core.shape_json import encode_shape
from tessella.core.shapes import ModelShape

# Any moment will do as long as everybody's clock starts there.
EPOCH = 1_800_000_000.0
DIAL_TIMEOUT = 5.0
ANSWER_TIMEOUT = 30.0

# No HTTP, and the addresses of a network in memory, which are private ones.
QUIET = MusivumConfig(http=(), allow_private_addrs=True)
HOUSE = House(usable_vram_pct=90, min_vram_mb=0, allow_private=True)
# 12 layers of 1 MB, ends of 2 MB: claims of a few MB split it.
SMALL = ModelShape(
    family="llama",
    layers=12,
    hidden=128,
    intermediate=448,
    heads=4,
    kv_heads=4,
    head_dim=32,
    vocab=4096,
    context=256,
    tied=False,
)


def clock() -> float:
    """Seconds since 1970 on trio's clock, virtual in tests."""
    return EPOCH + trio.current_time()


@asynccontextmanager
async def running(
    net: MemoryNetwork,
    seed: bytes,
    config: MusivumConfig,
    store: Keeper | None = None,
    token: str = "",
) -> AsyncIterator[PeerAddress]:
    """A musivum on a memory network until the context is left: a second one is a restart.

    It answers no HTTP. With the store of the one before it, the second knows whom that knew.
    """
    identity = Identity(seed)
    private = config.allow_private_addrs
    quiet = replace(config, http=(), allow_private_addrs=True if private is None else private)
    kept = store or MemoryStore()
    async with net.host(identity) as host, trio.open_nursery() as nursery:
        program = partial(serve, host, identity, quiet, store=kept, clock=clock, token=token)
        listening = await nursery.start(program)
        yield listening.peer
        nursery.cancel_scope.cancel()


def a_registration(addrs: tuple[str, ...] = ("/ip4/10.0.0.9/tcp/4001",)) -> Register:
    """What a node of the small model asks for: its claim holds 4 layers and an end, or 6."""
    return Register(
        model=ModelId("small"),
        contract=contract_of(SMALL),
        shape=encode_shape(SMALL),
        addrs=addrs,
        claim_mb=8,
        device="cpu",
        dtype="f32",
        weights="f32",
        context=256,
        slots=1,
        kv="f32",
    )


@dataclass(slots=True)
class Caller:
    """One node's stream to a tracker."""

    identity: Identity
    host: MemoryHost
    stream: FrameStream

    @property
    def peer_id(self) -> PeerId:
        """Who calls."""
        return self.identity.peer_id

    def a_call(self, message: Message) -> Call:
        """What a well-behaved node signs."""
        return Call(self.peer_id, clock(), secrets.token_bytes(16), seal(message))

    def sign(self, call: Call) -> Signed:
        """A call with this node's signature."""
        payload = seal(call)
        return Signed(payload, self.identity.sign(PURPOSE_TRACKER, payload))

    async def ask(self, message: Message) -> Message:
        """The answer to a message that goes out as it is."""
        await self.stream.send(message)
        return await self.stream.receive(timeout=ANSWER_TIMEOUT)

    async def call(self, message: Message) -> Message:
        """The answer to a signed message."""
        return await self.ask(self.sign(self.a_call(message)))

    async def register(self, asked: Register | None = None) -> Message:
        """The answer to a registration that names this node's own addresses."""
        asked = a_registration() if asked is None else asked
        return await self.call(replace(asked, addrs=self.host.address.addrs))


@asynccontextmanager
async def calling(
    net: MemoryNetwork, seed: bytes, tracker: PeerAddress, protocol: str = TRACKER
) -> AsyncIterator[Caller]:
    """A node with a stream to the tracker, or to its other door, until the context is left or its
    stream ends."""
    identity = Identity(seed)
    async with net.host(identity) as host:
        await host.connect(tracker, timeout=DIAL_TIMEOUT)
        stream = await host.open_stream(tracker.peer_id, protocol, timeout=DIAL_TIMEOUT)
        yield Caller(identity, host, stream)
        await stream.reset()
