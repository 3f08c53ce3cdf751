"""What the routes of a node's HTTP API lead to: a route knows nothing else of its node."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request

from tessella.core.completions import CompletionRequest
from tessella.core.errors import ModelUnavailable
from tessella.core.ids import ModelId
from tessella.core.messages import Message
from tessella.core.peers import NodeStatus
from tessella.core.ticket_header import TICKET
from tessella.core.tool_calls import ToolFormat
from tessella.worker.api.brought import check_one
from tessella.worker.counters import Counters
from tessella.worker.limits import InputLimits

Say = Callable[[Message], Awaitable[None]]
"""Takes one message of an answer. It may wait for the client to read."""
Answer = Callable[[CompletionRequest, Say], Awaitable[None]]
Clock = Callable[[], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rooms:
    """The rooms of one node. What is a function is asked each time: a node may load anew."""

    model: ModelId
    started: float
    """Unix seconds: since when the model is served here."""
    answer: Answer
    """Says Begun (again, where it has to begin anew before the first Delta), a Delta a token,
    Progress at any time, and Done. Raises TessellaErrors. Cancelled, it frees the session on every
    stage."""
    tool_format: Callable[[], ToolFormat | None]
    """How the model writes calls of functions; None if it has no way to."""
    token_text: Callable[[int], bytes]
    """The bytes of one token of the vocabulary: a character may be in several."""
    status: Callable[[], Mapping[str, Any]]
    """The status document."""
    health: Callable[[], NodeStatus]
    unavailable: Callable[[], ModelUnavailable]
    """Why no session begins here, and when to ask again. Of a node that is not Healthy."""
    limits: Callable[[], InputLimits]
    """Raises ModelUnavailable while nothing is loaded."""
    counters: Counters
    with_ticket: Callable[[Request], Awaitable[Answer]] | None = None
    """`answer` for a request with a ticket in its headers; raises what `TicketDoor.read` does."""

    async def answering(self, request: Request, sessions: int) -> Answer:
        """What answers a request that asks for so many sessions, by its ticket if it has one.

        Raises what `with_ticket` raises, and BadRequest for a ticket for several sessions.
        """
        if self.with_ticket is None or TICKET not in request.headers:
            return self.answer
        check_one(sessions)
        return await self.with_ticket(request)
