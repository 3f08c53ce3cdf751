"""Tickets at a node: whether a session is paid, how soon its work is due, and that it is the first.

A ticket of a musivum that this node did not pin says nothing here: such a session is served as one
without a ticket. A ticket that is of ours, and not for this session, is refused.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tessella.core.errors import Busy, ForeignTicket, TicketUsed
from tessella.core.ids import PeerId, SessionId
from tessella.core.messages import Open, Stage, Ticket
from tessella.core.tickets import (
    CLOCK_SECONDS,
    check_presenter,
    check_session,
    open_ticket,
    stages_of,
)
from tessella.core.tiers import Tier

# Each is remembered for an hour, in 300 bytes: 18 sessions a second, all of them paid.
MAX_USED = 65_536
# Times that one session may be opened at one node: once, anew where its KV is lost, and over others
# where stages are. It is paid once.
MAX_OPENS = 8
# Looking through a full table takes milliseconds.
_SWEEP_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class SignedTicket:
    """A ticket that a musivum of ours signed, with what was signed."""

    ticket: Ticket
    payload: bytes
    signature: bytes

    @property
    def tier(self) -> Tier:
        """How soon the work for it is due."""
        return Tier(self.ticket.tier)

    @property
    def chain(self) -> tuple[Stage, ...]:
        """The stages, the entry first."""
        return stages_of(self.ticket)


@dataclass(frozen=True, slots=True)
class Presented:
    """A ticket as a client brings it."""

    payload: bytes
    signature: bytes
    presenter: PeerId
    """Whose key the client has."""


@dataclass(frozen=True, slots=True)
class Ticketed:
    """What a session's ticket comes to at this node."""

    ticket: Ticket | None
    """None for a session that nobody pays."""
    tier: Tier

    @property
    def word(self) -> str:
        """The tier as `Begun` has it: empty for a session that nobody pays."""
        return self.tier.value if self.ticket is not None else ""


UNPAID = Ticketed(None, Tier.LEECH)


@dataclass(slots=True)
class _Use:
    session_id: SessionId
    epoch: int
    until: float
    opens: int = 1


class Tickets:
    """The tickets of one node, each good for one session."""

    def __init__(
        self,
        issuers: Iterable[PeerId] = (),
        clock: Callable[[], float] = time.time,
        limit: int = MAX_USED,
    ) -> None:
        """`issuers` are the musivums whose keys are pinned; `clock` gives seconds since 1970."""
        self._issuers = frozenset(issuers)
        self.clock = clock
        self._limit = limit
        # By request, those that end first about first.
        self._used: dict[bytes, _Use] = {}
        self._swept_at = float("-inf")

    def __len__(self) -> int:
        return len(self._used)

    def read(self, payload: bytes, signature: bytes) -> SignedTicket | None:
        """A ticket, whatever it is for; None where there is none, or not of a musivum of ours.

        Raises BadFrame for what is no ticket, BadSignature for one that its issuer did not sign.
        """
        if not payload:
            return None
        try:
            return SignedTicket(open_ticket(payload, signature, self._issuers), payload, signature)
        except ForeignTicket:
            return None

    def admit(self, presented: Presented) -> SignedTicket | None:
        """The same for one that a client brings: raises BadTicket too, for one of another's."""
        found = self.read(presented.payload, presented.signature)
        if found is not None:
            check_presenter(found.ticket, presented.presenter)
        return found

    def check(self, opened: Open) -> Ticketed:
        """What a session that begins now is, by the ticket in its `Open`; the ticket is then used.

        Raises what `read` raises, TicketExpired, BadTicket that names what it does not cover,
        TicketUsed for one of another session, and Busy where more are in use than are remembered.
        """
        found = self.read(opened.ticket, opened.ticket_signature)
        if found is None:
            return UNPAID
        ticket, now = found.ticket, self.clock()
        used = self._used.get(ticket.request_id)
        if used is not None:
            _check_again(used, opened)
            if now <= used.until:
                # It began in time, and is only opened again.
                now = min(now, ticket.start_by)
        check_session(
            ticket,
            opened.chain,
            model=opened.model,
            contract=opened.contract,
            capacity=opened.capacity,
            now=now,
        )
        self._remember(ticket, opened)
        return Ticketed(ticket, found.tier)

    def _remember(self, ticket: Ticket, opened: Open) -> None:
        used = self._used.get(ticket.request_id)
        if used is not None:
            used.epoch, used.opens = opened.epoch, used.opens + 1
            return
        if len(self._used) >= self._limit:
            self._sweep()
        until = ticket.expires_at + CLOCK_SECONDS
        self._used[ticket.request_id] = _Use(opened.session_id, opened.epoch, until)

    def _sweep(self) -> None:
        now = self.clock()
        if abs(now - self._swept_at) >= _SWEEP_SECONDS:
            self._swept_at = now
            ended = [request for request, use in self._used.items() if use.until < now]
            for request in ended:
                del self._used[request]
        if len(self._used) >= self._limit:
            raise Busy(f"{self._limit} tickets are in use, and no more are remembered")


def _check_again(used: _Use, opened: Open) -> None:
    """Raises TicketUsed, unless the session that used a ticket goes on."""
    if used.session_id != opened.session_id:
        raise TicketUsed("the ticket was used for another session")
    if opened.epoch <= used.epoch:
        raise TicketUsed(f"the ticket was used for epoch {used.epoch} of this session")
    if used.opens >= MAX_OPENS:
        raise TicketUsed(f"the session of this ticket was opened {MAX_OPENS} times")
