"""Tickets for clients that bring none: the entry asks for them, for nobody in particular.

Nobody waits for them: a request that musivum says nothing about goes on without a ticket.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

import trio

from tessella.core.errors import OutOfTurn, PeerSilent, RemoteFailure, TessellaError
from tessella.core.ids import ModelId
from tessella.core.messages import AskGrant, Granted, Message
from tessella.core.tickets import ANONYMOUS
from tessella.worker.tickets import SignedTicket, Tickets

logger = logging.getLogger(__name__)

# All that a client waits longer for its first token because musivum is gone.
GRANT_TIMEOUT = 1.0
# And how long the next ones do not wait for it at all.
AWAY_SECONDS = 10.0

AskLedger = Callable[[Message], Awaitable[Message]]
"""Signs a message and gives musivum's answer. Raises RemoteFailure with its refusal, PeerGone."""


class Grants:
    """Asks musivum for one ticket after the other."""

    def __init__(self, tickets: Tickets, ask: AskLedger | None = None) -> None:
        """Without `ask` there is no musivum, and no ticket."""
        self._tickets = tickets
        self._ask = ask
        self._ask_at = float("-inf")

    async def grant(
        self, model: ModelId, positions: int, after: bytes = b""
    ) -> SignedTicket | None:
        """A ticket for a chain that begins here, or None; takes GRANT_TIMEOUT at most.

        `after` is the request id of the grant whose chain is wanted again.
        """
        if self._ask is None or trio.current_time() < self._ask_at:
            return None
        asked = AskGrant(model, positions, anonymous=True, after=after)
        try:
            with trio.fail_after(GRANT_TIMEOUT):
                answer = await self._ask(asked)
            return self._read(answer)
        except trio.TooSlowError:
            self._is_away(PeerSilent(f"no answer within {GRANT_TIMEOUT:g} s"))
        except RemoteFailure as exc:
            # It is there, and its answer is no: the next request may have another.
            logger.info("no ticket: %s: %s", exc.code, exc)
        except TessellaError as exc:
            self._is_away(exc)
        return None

    def _read(self, answer: Message) -> SignedTicket | None:
        if not isinstance(answer, Granted):
            raise OutOfTurn(f"{type(answer).__name__} in place of a grant")
        found = self._tickets.read(answer.ticket, answer.signature)
        if found is not None and found.ticket.requester != ANONYMOUS:
            raise OutOfTurn(f"a ticket for {found.ticket.requester}, asked for nobody")
        return found

    def _is_away(self, error: TessellaError) -> None:
        self._ask_at = trio.current_time() + AWAY_SECONDS
        logger.info(
            "musivum gives no tickets, going on without for %g s: %s: %s",
            AWAY_SECONDS,
            error.code,
            error,
        )
