"""A node that says what the test wants, on the memory network and over HTTP."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
import trio

from p2p.streams import FrameStream
from p2p.testing import MemoryHost, MemoryNetwork
from tessella.cli.asking import Asking
from tessella.cli.conversation import Conversation
from tessella.cli.dialogue import Dialogue
from tessella.cli.discovery import Way
from tessella.core.completions import CompletionRequest
from tessella.core.errors import PeerGone
from tessella.core.ids import ModelId
from tessella.core.layers import LayerRange
from tessella.core.messages import (
    COMPLETE,
    STATUS,
    TRACKER,
    Begun,
    Delta,
    Done,
    Message,
    Peers,
    Stage,
    Status,
)
from tessella.core.peers import PeerRow, encode_rows
from tessella.web.client import open_client

TOY = ModelId("toy")
LAYERS = LayerRange(0, 2)
SSE = {"Content-Type": "text/event-stream", "X-Request-Id": "r", "Tessella-Chain": "n:0-2"}


def row_of(host: MemoryHost, **fields: Any) -> PeerRow:
    """A node as a musivum lists it."""
    values: dict[str, Any] = {
        "peer_id": host.address.peer_id,
        "model": TOY,
        "contract": "",
        "layers": LAYERS,
        "total_layers": 2,
        "status": "Healthy",
        "addrs": host.address.addrs,
        "device": "cpu",
        "dtype": "f32",
        "queue_depth": 0,
        "step_ms": 0.0,
    }
    return PeerRow(**(values | fields))


@dataclass
class Node:
    """A musivum and the one node that it lists."""

    host: MemoryHost
    client: MemoryHost
    http: httpx.AsyncClient
    requests: list[CompletionRequest] = field(default_factory=list)
    brought: list[bytes] = field(default_factory=list)
    """The ticket of each request, empty where it had none."""
    left: int = 0
    """Clients that went before their answer was complete."""
    reply: Callable[[CompletionRequest], list[Message]] = lambda _: []
    rows: Callable[[], list[PeerRow]] = list
    """What is listed besides."""

    def serve(self) -> None:
        for protocol, handler in (
            (COMPLETE, self._complete),
            (TRACKER, self._list),
            (STATUS, self._status),
        ):
            self.host.serve(protocol, handler, streams=8, per_peer=8)

    async def _complete(self, stream: FrameStream) -> None:
        asked = await stream.receive()
        self.brought.append(asked.ticket)
        request = CompletionRequest.decode(asked.request)
        self.requests.append(request)
        try:
            for message in self.reply(request):
                await stream.send(message)
                await trio.sleep(1)
        except PeerGone:
            self.left += 1

    async def _list(self, stream: FrameStream) -> None:
        await stream.receive()
        await stream.send(Peers(encode_rows([row_of(self.host), *self.rows()])))

    async def _status(self, stream: FrameStream) -> None:
        await stream.receive()
        await stream.send(Status(json.dumps({"model": TOY}).encode()))

    def says(self, *pieces: str, cached: int = 0) -> list[Message]:
        chain = (Stage(self.host.address.peer_id, LAYERS),)
        return [
            Begun("request", TOY, 5, cached, chain),
            *(Delta(piece, 7, -0.5, ()) for piece in pieces),
            Done("stop", len(pieces), 0.1, 0.5, 0.2, 1.5),
        ]

    def asking(self, way: Way | None = None) -> Asking:
        return Asking(way or Way(musivum=self.host.address), self.client, self.http)

    def dialogue(self, **conversation: Any) -> Dialogue:
        return Dialogue(self.asking(), Conversation(**conversation))


def nobody(request: httpx.Request) -> httpx.Response:
    """Where no program listens."""
    raise httpx.ConnectError("refused", request=request)


@asynccontextmanager
async def open_node(
    http: Callable[[httpx.Request], httpx.Response] = nobody, net: MemoryNetwork | None = None
) -> AsyncIterator[Node]:
    """A node and a client; `http` answers whatever the client asks over HTTP."""
    net = net or MemoryNetwork(latency=0.01)
    async with (
        net.host(bytes([1]) * 32) as host,
        net.host(bytes([2]) * 32) as client,
        open_client(httpx.MockTransport(http)) as over_http,
    ):
        node = Node(host, client, over_http)
        node.serve()
        yield node


@dataclass
class Api:
    """An HTTP API of a node: what it was asked, and one word for an answer."""

    status: dict[str, Any] = field(default_factory=lambda: {"role": "worker", "model": TOY})
    asked: list[tuple[str, Any]] = field(default_factory=list)

    def __call__(self, request: httpx.Request) -> httpx.Response:
        path = request.url.path
        if path == "/status":
            return httpx.Response(200, json=self.status)
        self.asked.append((path, json.loads(request.content)))
        lines = [
            json.dumps({"choices": [{"text": "over HTTP", "delta": {"content": "over HTTP"}}]}),
            json.dumps({"choices": [{"delta": {}, "finish_reason": "stop"}]}),
            "[DONE]",
        ]
        stream = httpx.ByteStream("".join(f"data: {line}\n\n" for line in lines).encode())
        return httpx.Response(200, stream=stream, headers=SSE)


def lines(*typed: str | None, pause: float = 0.0) -> Callable[[str], Any]:
    """What a person types, line by line; None is Ctrl-D."""
    waiting = list(typed)

    async def read(_: str) -> str | None:
        await trio.sleep(pause)
        return waiting.pop(0)

    return read
