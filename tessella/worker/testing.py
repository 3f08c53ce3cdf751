"""A musivum for tests: it takes every node, remembers what it heard, and does as a test says.

hub = Hub(host, identity, clock)
hub.wants(node, LayerRange(3, 6))               # told with the next heartbeat
await hub.push(address, LayerRange(3, 6))       # told at once; what the node answers
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass, field

from p2p.peers import Host
from p2p.streams import FrameStream
from tessella.core.addresses import PeerAddress
from tessella.core.call_rules import NONCE_BYTES
from tessella.core.errors import OutOfTurn, Refused, TessellaError, UnknownWorker
from tessella.core.identity import PURPOSE_TRACKER, Identity, check_signature
from tessella.core.ids import PeerId
from tessella.core.layers import LayerRange
from tessella.core.messages import (
    ASSIGN,
    TRACKER,
    Accepted,
    Announce,
    AskPeers,
    Assign,
    Assigned,
    Call,
    Deregister,
    Fail,
    Message,
    Peers,
    Ready,
    Register,
    Signed,
    decode,
    seal,
)
from tessella.core.peers import NodeStatus, PeerRow, encode_rows
from tessella.core.shape_json import decode_shape

BEAT = 5.0
STREAMS = 64
DIAL_TIMEOUT = 5.0

_LOADING = NodeStatus.PENDING_LOAD.value


@dataclass(slots=True)
class Listed:
    """A node as it is listed, and every way in which it was, in order: `Healthy 0:3`."""

    register: Register
    layers: LayerRange
    status: str = _LOADING
    target: LayerRange | None = None
    """Another range that is wanted of it, until it begins to load that."""
    is_ready: bool = False
    ways: list[str] = field(default_factory=list)

    def note(self) -> None:
        """Remember how it is listed, if that changed."""
        way = f"{self.status} {self.layers}"
        if not self.ways or self.ways[-1] != way:
            self.ways.append(way)

    def row(self, peer: PeerId) -> PeerRow:
        """The node as routing reads it."""
        asked = self.register
        return PeerRow(
            peer_id=peer,
            model=asked.model,
            contract=asked.contract,
            layers=self.layers,
            total_layers=decode_shape(asked.shape).layers,
            status=self.status,
            addrs=asked.addrs,
            device=asked.device,
            dtype=asked.dtype,
            queue_depth=0,
            step_ms=0.0,
        )


class Hub:
    """Serves the tracker protocol on a host of the caller's."""

    def __init__(self, host: Host, identity: Identity, clock: Callable[[], float]) -> None:
        self.host = host
        self.identity = identity
        self.nodes: dict[PeerId, Listed] = {}
        self.heard: list[tuple[PeerId, Message]] = []
        """Every call, in order."""
        self.next_range: LayerRange | None = None
        """What a node that wants no range is given."""
        self.refusal: TessellaError | None = None
        """What every question is answered with, if there is one."""
        self._clock = clock
        host.serve(TRACKER, self._answer, streams=STREAMS, per_peer=STREAMS)

    async def _answer(self, stream: FrameStream) -> None:
        while True:
            asked = await stream.receive()
            try:
                reply = self._reply(stream.peer_id, asked)
            except TessellaError as exc:
                reply = Fail.of(exc)
            await stream.send(reply)

    def _reply(self, peer: PeerId, asked: Message) -> Message:
        if self.refusal is not None:
            raise self.refusal
        if isinstance(asked, AskPeers):
            return Peers(encode_rows(node.row(peer_id) for peer_id, node in self.nodes.items()))
        if not isinstance(asked, Signed):
            raise OutOfTurn(f"{type(asked).__name__} at a tracker")
        check_signature(peer, PURPOSE_TRACKER, asked.payload, asked.signature)
        said = decode(decode(asked.payload).message)
        self.heard.append((peer, said))
        return self._called(peer, said)

    def _called(self, peer: PeerId, said: Message) -> Message:
        if isinstance(said, Register):
            layers = said.wanted or self.next_range
            if layers is None:
                raise Refused("no range is left")
            self.nodes[peer] = Listed(said, layers)
            self.nodes[peer].note()
            return Assigned(layers, BEAT)
        if isinstance(said, Deregister):
            self.nodes.pop(peer, None)
            return Accepted()
        if peer not in self.nodes:
            raise UnknownWorker("nobody of that name")
        node = self.nodes[peer]
        if isinstance(said, Ready):
            _ready(node, said.layers)
        elif isinstance(said, Announce):
            _announced(node, said)
            if node.target is not None:
                return Assigned(node.target, BEAT)
        return Accepted()

    def wants(self, peer: PeerId, layers: LayerRange) -> None:
        """Answer the heartbeats of a node with another range."""
        self.nodes[peer].target = layers

    async def push(self, node: PeerAddress, layers: LayerRange) -> Message:
        """Tell a node its range at once; what it answers."""
        if node.peer_id in self.nodes:
            self.nodes[node.peer_id].target = layers
        return await self.order(node, self.sign(self.a_call(Assign(layers))))

    def a_call(self, message: Message) -> Call:
        """What a well-behaved musivum signs."""
        return Call(
            self.identity.peer_id, self._clock(), secrets.token_bytes(NONCE_BYTES), seal(message)
        )

    def sign(self, call: Call) -> Signed:
        """A call with this musivum's signature."""
        payload = seal(call)
        return Signed(payload, self.identity.sign(PURPOSE_TRACKER, payload))

    async def order(self, node: PeerAddress, signed: Message) -> Message:
        """What a node answers to a frame on an order stream."""
        await self.host.connect(node, timeout=DIAL_TIMEOUT)
        stream = await self.host.open_stream(node.peer_id, ASSIGN, timeout=DIAL_TIMEOUT)
        async with stream:
            await stream.send(signed)
            return await stream.receive(DIAL_TIMEOUT)


def _ready(node: Listed, layers: LayerRange) -> None:
    if layers not in (node.layers, node.target):
        raise Refused(f"layers {node.target or node.layers} were assigned, not {layers}")
    if layers == node.target:
        node.target = None
    node.layers, node.status, node.is_ready = layers, NodeStatus.HEALTHY.value, True
    node.note()


def _announced(node: Listed, said: Announce) -> None:
    if said.status == _LOADING and node.is_ready:
        node.layers, node.target, node.is_ready = node.target or node.layers, None, False
    node.status = said.status if node.is_ready else _LOADING
    node.note()
