"""The HTTP door of a node: every route of its API, each leading to a room that libp2p leads to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import trio
from starlette.requests import Request

from p2p.peers import Handler
from tessella.core.errors import ModelUnavailable
from tessella.core.messages import HOP, TOKENS
from tessella.core.peers import NodeStatus
from tessella.core.tool_calls import ToolFormat
from tessella.web.limits import RateLimits
from tessella.web.server import ServeLimits
from tessella.web.targets import parse_url
from tessella.worker.api.app import node_app
from tessella.worker.api.brought import TicketDoor
from tessella.worker.api.forward import add_forward
from tessella.worker.api.operate import OwnerRoom, add_operate
from tessella.worker.api.orders import PATH as ORDERS_PATH
from tessella.worker.api.orders import OrderRoom, add_orders
from tessella.worker.api.p2p_id import P2pIdRoom, add_p2p_id
from tessella.worker.api.rooms import Answer, Rooms
from tessella.worker.api.signed import CallNonces, SignedCalls
from tessella.worker.api.tokens import TokenRoom, add_tokens
from tessella.worker.complete import Clients
from tessella.worker.config import WorkerConfig
from tessella.worker.counters import Counters
from tessella.worker.ground import Ground
from tessella.worker.http_hops.asks import (
    FORWARD_PATH,
    MAX_HOP_BODY,
    MAX_TOKEN_BODY,
    TOKEN_PATH,
)
from tessella.worker.http_hops.bodies import HopBodies
from tessella.worker.http_hops.doors import StreamDoor
from tessella.worker.http_hops.table import HttpStreams, StreamLimits
from tessella.worker.limits import InputLimits
from tessella.worker.orders import Orders
from tessella.worker.pausing import Pausing
from tessella.worker.prompts import Prompts
from tessella.worker.state import NodeState
from tessella.worker.tokens import TokenDesk

Document = dict[str, Any]
# What is signed comes as often as tokens and hidden states do.
RATE = RateLimits(signed=(FORWARD_PATH, TOKEN_PATH, ORDERS_PATH))
BODIES = {FORWARD_PATH: MAX_HOP_BODY, TOKEN_PATH: MAX_TOKEN_BODY}


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRooms:
    """What both doors of a node lead to."""

    clients: Clients
    desk: TokenDesk
    hops: Handler
    """Serves a hop stream."""
    status: Callable[[], Document]
    """The status document."""
    orders: Orders
    pausing: Pausing
    state: NodeState
    counters: Counters
    bodies: HopBodies


class Door:
    """The app of a node, and the streams that callers open through it.

    Resource handling: streams run in the nursery that was given; start `run` there too.
    """

    def __init__(
        self, config: WorkerConfig, ground: Ground, rooms: NodeRooms, nursery: trio.Nursery
    ) -> None:
        ourselves, streams = ground.host.address.peer_id, 2 * config.max_sessions
        limits = StreamLimits(streams=streams, per_peer=streams, silence=config.hop_timeout)
        calls = SignedCalls(ourselves, ground.clock, CallNonces())
        self._streams = [HttpStreams(protocol, nursery, limits) for protocol in (HOP, TOKENS)]
        to_hops, to_tokens = self._streams
        hops = StreamDoor(
            identity=ground.identity,
            calls=calls,
            streams=to_hops,
            max_body=MAX_HOP_BODY,
            place=rooms.bodies.place,
        )
        tokens = StreamDoor(
            identity=ground.identity, calls=calls, streams=to_tokens, max_body=MAX_TOKEN_BODY
        )
        # Each stream keeps a read waiting; browsers and clients come beside them.
        self.limits = ServeLimits(per_address=streams + ServeLimits().per_address)
        told = _told(config, ground, rooms, TicketDoor(calls))
        public = config.public_api_url
        pages = (parse_url(public).host,) if public else ()
        self.app = node_app(told, rate=RATE, clock=ground.clock, bodies=BODIES, pages=pages)
        add_forward(self.app, hops, rooms.hops)
        add_tokens(self.app, TokenRoom(tokens, rooms.desk))
        orders = OrderRoom.of(ourselves, rooms.orders, config.model, ground.clock)
        add_orders(self.app, orders)
        add_p2p_id(self.app, P2pIdRoom(ground.identity, lambda: ground.host.address.addrs))
        add_operate(self.app, OwnerRoom.of(ourselves, rooms.pausing, rooms.state, ground.clock))

    async def run(self) -> None:
        """Notice until cancelled which callers are gone."""
        async with trio.open_nursery() as nursery:
            for streams in self._streams:
                nursery.start_soon(streams.run)


def _told(config: WorkerConfig, ground: Ground, rooms: NodeRooms, tickets: TicketDoor) -> Rooms:
    """What the routes of clients lead to."""
    state = rooms.state

    async def with_ticket(request: Request) -> Answer:
        return partial(rooms.clients.answer, brought=await tickets.read(request))

    def unavailable() -> ModelUnavailable:
        return state.unavailable(trio.current_time())

    def prompts() -> Prompts:
        if state.loaded is None:
            raise unavailable()
        return state.loaded.entry.prompts

    def tool_format() -> ToolFormat | None:
        return prompts().tokenizer.tool_format

    def token_text(one: int) -> bytes:
        return prompts().tokenizer.piece(one)

    def limits() -> InputLimits:
        return prompts().limits

    def health() -> NodeStatus:
        return state.status

    return Rooms(
        model=config.model,
        started=ground.clock(),
        answer=rooms.clients.answer,
        tool_format=tool_format,
        token_text=token_text,
        status=rooms.status,
        health=health,
        unavailable=unavailable,
        limits=limits,
        counters=rooms.counters,
        with_ticket=with_ticket,
    )
