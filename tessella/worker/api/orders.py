"""`POST /api/v1/update_assignment`: an order of musivum, where no libp2p leads to this node.

The same room as `tessella.worker.orders`, and the same rule: a musivum of this node's own, and
nobody else, by a signed call that is taken once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Literal

from fastapi import FastAPI
from pydantic import BaseModel, Field
from starlette.requests import Request

from tessella.core.configs import MAX_LAYERS
from tessella.core.errors import BadRequest, Refused
from tessella.core.frames import KIB
from tessella.core.ids import ModelId, PeerId
from tessella.core.layers import LayerRange
from tessella.worker.api.reading import Body, parse_json
from tessella.worker.api.signed import SignedCalls, documented, read_body
from tessella.worker.orders import Nonces, Orders

PATH = "/api/v1/update_assignment"
MAX_ORDER = 4 * KIB
"""Of a body: a model's name and a range."""

_At = Annotated[int, Field(ge=0, le=MAX_LAYERS)]


class Order(Body):
    """A range of layers to hold."""

    model_repo: Annotated[str, Field(min_length=1, max_length=256)]
    layer_ranges: Annotated[
        list[Annotated[list[_At], Field(min_length=2, max_length=2)]],
        Field(min_length=1, max_length=1),
    ]
    """Half-open: [start, stop)."""
    replica_group_id: int = 0
    expert_range: None = None


class Taken(BaseModel):
    """The node begins."""

    ok: Literal[True] = True


@dataclass(frozen=True, slots=True)
class OrderRoom:
    """Orders to a node that serves `model`."""

    calls: SignedCalls
    orders: Orders
    model: ModelId

    @classmethod
    def of(
        cls, ourselves: PeerId, orders: Orders, model: ModelId, clock: Callable[[], float]
    ) -> OrderRoom:
        """The room of a node. `clock` gives seconds since 1970."""
        calls = SignedCalls(ourselves, clock, Nonces(), callers=orders.musivums)
        return cls(calls, orders, model)

    async def take(self, request: Request) -> Taken:
        """Take an order before it is carried out.

        Raises Refused where the node insists, BadRequest or UnsupportedField for what is no order,
        and what `SignedCalls.admit` and `read_body` raise.
        """
        call = self.calls.admit(request)
        order = Order.model_validate(parse_json(await read_body(request, call, MAX_ORDER)))
        if order.model_repo != self.model:
            raise Refused(f"this node serves {self.model}, not {order.model_repo:.80}")
        (ends,) = order.layer_ranges
        try:
            layers = LayerRange(*ends)
        except ValueError as exc:
            raise BadRequest(f"layer_ranges: {exc}") from None
        self.orders.want(layers)
        return Taken()


def add_orders(app: FastAPI, room: OrderRoom) -> None:
    """The route of orders."""
    schema = Order.model_json_schema()
    body = {"required": True, "content": {"application/json": {"schema": schema}}}

    @app.post(PATH, **documented("update_assignment", PATH, 409, 429, parameters=[], body=body))
    async def update_assignment(request: Request) -> Taken:
        """A new range to hold, by a musivum of this node's own."""
        return await room.take(request)
