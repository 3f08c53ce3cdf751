"""What the owner of a node tells it while it runs: a call signed with the node's own key.

Whoever holds the key file is the owner. Nobody else has one: no token, no other peer, no musivum.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Literal

import trio
from fastapi import FastAPI
from pydantic import BaseModel, Field
from starlette.requests import Request

from tessella.core.errors import BadRequest
from tessella.core.frames import KIB
from tessella.core.ids import PeerId
from tessella.worker.api.reading import Body, parse_json
from tessella.worker.api.signed import SignedCalls, documented, read_body
from tessella.worker.orders import Nonces
from tessella.worker.pausing import MAX_PAUSE_MINUTES, Pausing
from tessella.worker.state import NodeState

PATH = "/api/v1/operate"
MAX_ORDER = KIB
"""Of a body: a word and a number."""


class OwnersOrder(Body):
    """What the node is to do."""

    order: Literal["pause", "resume", "drain"]
    minutes: Annotated[float, Field(gt=0, le=MAX_PAUSE_MINUTES)] | None = None
    """How long to pause; until it is resumed if this is left out."""


class Ordered(BaseModel):
    """What holds from here on. The node does it as soon as its sessions let it."""

    ok: Literal[True] = True
    order: str
    paused_by: str | None = Field(
        description="`owner`, `schedule` or `gpu`; null for a node that is not paused."
    )
    resumes_in_seconds: float | None = Field(
        description="When a pause is over by itself; null where nobody knows."
    )


@dataclass(frozen=True, slots=True)
class OwnerRoom:
    """The orders of a node's owner."""

    calls: SignedCalls
    pausing: Pausing
    state: NodeState

    @classmethod
    def of(
        cls, ourselves: PeerId, pausing: Pausing, state: NodeState, clock: Callable[[], float]
    ) -> OwnerRoom:
        """The room of a node. `clock` gives seconds since 1970."""
        calls = SignedCalls(ourselves, clock, Nonces(), callers=frozenset({ourselves}))
        return cls(calls, pausing, state)

    async def take(self, request: Request) -> Ordered:
        """Have one order hold. Raises BadRequest, and what keeps a call from being let in."""
        call = self.calls.admit(request)
        asked = OwnersOrder.model_validate(parse_json(await read_body(request, call, MAX_ORDER)))
        if asked.minutes is not None and asked.order != "pause":
            raise BadRequest(f"minutes: how long to pause, and the order is {asked.order!r}")
        match asked.order:
            case "pause":
                self.pausing.pause(asked.minutes)
            case "resume":
                self.pausing.resume()
            case "drain":
                self.pausing.drain()
        pause = self.state.pause
        return Ordered(
            order=asked.order,
            paused_by=pause.why.value if pause else None,
            resumes_in_seconds=pause.seconds_left(trio.current_time()) if pause else None,
        )


def add_operate(app: FastAPI, room: OwnerRoom) -> None:
    """The route of the owner's orders."""
    schema = OwnersOrder.model_json_schema()
    body = {"required": True, "content": {"application/json": {"schema": schema}}}

    @app.post(PATH, **documented("operate", PATH, 429, parameters=[], body=body))
    async def operate(request: Request) -> Ordered:
        """Pause, resume or drain this node: by its owner, signed with the node's own key."""
        return await room.take(request)
