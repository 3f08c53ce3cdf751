"""Tickets for the requests of a client that has a key: one from musivum for each.

A request that no ticket is given for is asked all the same, in nobody's name.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import trio

from p2p.peers import Host
from tessella.client import Grant, ask_grant
from tessella.core.addresses import PeerAddress
from tessella.core.completions import CompletionRequest
from tessella.core.errors import (
    BadTicket,
    PeerGone,
    PeerSilent,
    RemoteFailure,
    TessellaError,
    TicketExpired,
    TicketUsed,
)
from tessella.core.identity import Identity
from tessella.core.messages import AskGrant

logger = logging.getLogger(__name__)

GRANT_SECONDS = 5.0
"""For musivum to answer: a dial over a slow link, and a draw."""
AWAY_SECONDS = 30.0
"""For how long one that did not answer is not asked."""
MAX_POSITIONS = 131_072
"""What a ticket is asked for at most: what a musivum grants unless it is set otherwise."""
# What a chat template adds to a message, to a conversation, and to functions, in tokens.
_MESSAGE_TOKENS, _REQUEST_TOKENS, _TOOLS_TOKENS = 64, 256, 1024
_OF_TICKETS = frozenset({BadTicket.code, TicketExpired.code, TicketUsed.code})


@dataclass(slots=True)
class Granting:
    """Asks one musivum for tickets, each for the chain of the one before where that still serves.

    `identity` is the host's.
    """

    host: Host
    identity: Identity
    musivum: PeerAddress
    after: bytes = b""
    """The request id of the last ticket that was of use: its chain is wanted again."""
    clock: Callable[[], float] = time.time
    _ask_at: float = field(default=float("-inf"))

    async def grant(self, request: CompletionRequest) -> Grant | None:
        """A ticket for a request, or None where musivum gives none."""
        if trio.current_time() < self._ask_at:
            return None
        asked = AskGrant(request.model, positions_of(request), anonymous=False, after=self.after)
        try:
            with trio.fail_after(GRANT_SECONDS):
                return await ask_grant(
                    self.host, self.identity, self.musivum, asked, clock=self.clock
                )
        except trio.TooSlowError:
            self._is_away(PeerSilent(f"no answer within {GRANT_SECONDS:g} s"))
        except PeerGone as exc:
            self._is_away(exc)
        except TessellaError as exc:
            logger.info("no ticket: %s: %s", exc.code, exc)
        return None

    def _is_away(self, error: TessellaError) -> None:
        self._ask_at = trio.current_time() + AWAY_SECONDS
        logger.info("musivum gives no tickets: %s: %s", error.code, error)


def positions_of(request: CompletionRequest) -> int:
    """Positions that a request takes at most, prompt and answer: no token is under a byte.

    A ticket for more than is used costs nobody anything; one for less is refused.
    """
    texts = [request.prompt, *(message.content for message in request.messages)]
    if request.fill is not None:
        texts += [request.fill.prefix, request.fill.suffix]
    tools = str(request.tools) if request.tools else ""
    prompt = sum(len(text.encode()) for text in (*texts, tools))
    added = _REQUEST_TOKENS + _MESSAGE_TOKENS * len(request.messages)
    added += _TOOLS_TOKENS if tools else 0
    return min(prompt + added + request.sampling.max_tokens, MAX_POSITIONS)


def is_of_ticket(error: TessellaError) -> bool:
    """Whether a node refused a ticket, and not the request that it was for."""
    return isinstance(error, RemoteFailure) and error.code in _OF_TICKETS
