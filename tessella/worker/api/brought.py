"""Tickets that HTTP clients bring, in a header of a request that is signed as every signed call.

A ticket is for the key of whoever asked for it, so that one that was seen on its way, or is asked
for a second time, is worth nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from starlette.requests import Request

from tessella.core.errors import BadRequest, BadSignature
from tessella.core.signed_request import digest_of
from tessella.core.ticket_header import PATTERN, TICKET, read_ticket_header
from tessella.web.signed_docs import header_parameters
from tessella.worker.api.signed import SignedCalls
from tessella.worker.tickets import Presented

TICKET_PARAMETERS: list[dict[str, Any]] = header_parameters(
    (
        (
            "Tessella-Ticket",
            PATTERN,
            "A ticket of musivum for this request, in base64url, a dot, and its signature. The "
            "request is then signed, as signed calls are, by the key that the ticket is for.",
        ),
    ),
    required=False,
)
"""What OpenAPI says of it."""


@dataclass(frozen=True, slots=True)
class TicketDoor:
    """Reads the tickets of completion requests."""

    calls: SignedCalls

    async def read(self, request: Request) -> Presented:
        """The ticket of a request that has the header, with who proved to be its presenter.

        Raises BadRequest for a header that is no ticket, and what `SignedCalls.admit` raises.
        """
        payload, signature = read_ticket_header(request.headers[TICKET])
        call = self.calls.admit(request)
        # The body was read before: its size is bounded, whoever sends it.
        if digest_of(await request.body()) != call.head.digest:
            raise BadSignature("a body that is not the one that was signed")
        return Presented(payload, signature, call.peer_id)


def check_one(sessions: int) -> None:
    """Raises BadRequest for a request with a ticket that asks for several sessions."""
    if sessions != 1:
        raise BadRequest(f"header {TICKET}: a ticket is for one session, and here are {sessions}")
