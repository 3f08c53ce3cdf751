"""HTTP between nodes of one process, in virtual time: apps by host, and what happens to requests.

net = HttpNet()
net.apps["b.test"] = app
rules = Rules(allow_private=True, clock=wall, transport=net, resolver=net.resolve)
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

import httpx
import trio
from fastapi import FastAPI
from starlette.types import ASGIApp

from p2p.peers import Handler
from tessella.core.identity import Identity
from tessella.core.messages import HOP
from tessella.web.app import make_app
from tessella.web.bodies import BodyCaps
from tessella.worker.api.forward import add_forward
from tessella.worker.api.signed import CallNonces, SignedCalls
from tessella.worker.http_hops.asks import (
    FORWARD_PATH,
    MAX_HOP_BODY,
    MAX_TOKEN_BODY,
    TOKEN_PATH,
)
from tessella.worker.http_hops.bodies import HopBodies
from tessella.worker.http_hops.dialling import Route, Rules
from tessella.worker.http_hops.doors import StreamDoor
from tessella.worker.http_hops.table import HttpStreams, StreamLimits

EPOCH = 1_800_000_000.0
SILENCE = 10.0
CAPS = BodyCaps(larger={FORWARD_PATH: MAX_HOP_BODY, TOKEN_PATH: MAX_TOKEN_BODY})

Fault = Callable[[httpx.Request], Awaitable[None]]


def wall() -> float:
    """Seconds since 1970 that pass with the virtual clock."""
    return EPOCH + trio.current_time()


class HttpNet(httpx.AsyncBaseTransport):
    """What carries requests to the apps of this process."""

    def __init__(self) -> None:
        self.apps: dict[str, ASGIApp] = {}
        self.seen: list[httpx.Request] = []
        self.before: Fault | None = None
        """Raises in place of a request, or waits."""
        self.after: Fault | None = None
        """Raises in place of an answer: the request arrived."""
        self.latency = 0.001

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        await trio.sleep(self.latency)
        self.seen.append(request)
        if self.before is not None:
            await self.before(request)
        app = self.apps.get(request.headers["host"])
        if app is None:
            raise httpx.ConnectError("nobody listens there")
        answer = await httpx.ASGITransport(app).handle_async_request(request)
        if self.after is not None:
            await self.after(request)
        return answer

    async def resolve(self, host: str, port: int) -> Sequence[str]:
        """Everything here is in a private network."""
        return ["10.0.0.1"]

    def rules(self, patience: float = 4.0) -> Rules:
        """How nodes call each other here."""
        return Rules(
            allow_private=True,
            clock=wall,
            patience=patience,
            transport=self,
            resolver=self.resolve,
        )


@dataclass
class Node:
    """One node's side of hops over HTTP."""

    identity: Identity
    nursery: trio.Nursery
    bodies: HopBodies = field(default_factory=lambda: HopBodies(2, small=0))
    """Every body needs a place: there are no long ones here."""
    streams_in_all: int = 4
    per_peer: int = 3
    clock: Callable[[], float] = wall

    def __post_init__(self) -> None:
        self.hops = self.table(HOP)
        self.app: FastAPI = make_app("node", "0", bodies=CAPS, rate=None, clock=self.clock)

    def table(self, protocol: str) -> HttpStreams:
        """The streams of a protocol, swept."""
        limits = StreamLimits(streams=self.streams_in_all, per_peer=self.per_peer, silence=SILENCE)
        streams = HttpStreams(protocol, self.nursery, limits)
        self.nursery.start_soon(streams.run)
        return streams

    def door(self, streams: HttpStreams, most: int) -> StreamDoor:
        """What leads to them; hop bodies have their quota."""
        calls = SignedCalls(self.identity.peer_id, self.clock, CallNonces())
        found = StreamDoor(identity=self.identity, calls=calls, streams=streams, max_body=most)
        if streams is not self.hops:
            return found
        return StreamDoor(
            identity=self.identity,
            calls=calls,
            streams=streams,
            max_body=most,
            place=self.bodies.place,
        )

    def forward(self, handler: Handler) -> None:
        """Serve hops."""
        add_forward(self.app, self.door(self.hops, MAX_HOP_BODY), handler)


def route(host: str, path: str = FORWARD_PATH) -> Route:
    """Where the node at that host answers."""
    return Route(f"http://{host}", path)
