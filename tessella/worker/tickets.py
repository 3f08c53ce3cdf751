"""Tickets at a node: whether a session is paid, how soon its work is due, and that it is the first.

A ticket of a musivum that this node did not pin says nothing here: such a session is served as one
without a ticket. A ticket that is of ours, and not for this session, is refused.

Of a full table each entry has the same share, so who floods pushes out its own. An entry's share is
first of tickets that might begin a session yet, the latest of them, and then of those of sessions
that run, of each requester in turn. Where one of the first is forgotten, no ticket of that entry is
taken any more that is as old, used or not; nor is one that was signed before this node was started.
So none is ever good twice, and a flood only makes the tickets of its own entry short-lived.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from tessella.core.errors import ForeignTicket, TicketExpired, TicketUsed
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

T = TypeVar("T")

# Each is remembered for an hour, in 600 bytes: 18 sessions a second, all of them paid.
MAX_USED = 65_536
# Of a full table so much is forgotten at once: looking through it takes a tenth of a second.
_FREED_SHARE = 16
# Times that one session may be opened at one node: once, anew where its KV is lost, and over others
# where stages are. It is paid once.
MAX_OPENS = 8


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
    start_by: float
    until: float
    entry: PeerId
    """Who brings it to the other stages."""
    requester: str
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
        # What was used before is not remembered: what was signed before is not taken. Where our
        # clock is ahead, that is nothing until musivum's has caught up with our start.
        self._since = clock()
        self._used: dict[bytes, _Use] = {}
        # By entry: of tickets that were to begin by then, those that were used are forgotten.
        self._forgotten: dict[PeerId, float] = {}
        # The same of all entries, where that time is over by our clock.
        self._passed = float("-inf")

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

        Raises what `read` raises, TicketExpired, also for one as old as some that were forgotten,
        BadTicket that names what it does not cover, TicketUsed for one of another session.
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
        elif ticket.issued_at < self._since:
            raise TicketExpired("it was signed before this node was started")
        elif ticket.start_by <= max(self._passed, self._forgotten.get(_entry_of(ticket), 0.0)):
            raise TicketExpired("it is too old for how many of its entry's tickets were used")
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
            self._make_room()
        self._used[ticket.request_id] = _Use(
            opened.session_id,
            opened.epoch,
            ticket.start_by,
            ticket.expires_at + CLOCK_SECONDS,
            _entry_of(ticket),
            ticket.requester,
        )

    def _make_room(self) -> None:
        now = self.clock()
        ended = [request for request, use in self._used.items() if use.until < now]
        self._forget(ended)
        keep = self._limit - max(1, self._limit // _FREED_SHARE)
        if len(self._used) > keep:
            self._forget(self._by_worth(now)[keep:])
        over = [each for each, at in self._forgotten.items() if at + CLOCK_SECONDS < now]
        for entry in over:
            self._passed = max(self._passed, self._forgotten.pop(entry))

    def _forget(self, requests: Iterable[bytes]) -> None:
        for request in requests:
            use = self._used.pop(request)
            before = self._forgotten.get(use.entry, use.start_by)
            self._forgotten[use.entry] = max(before, use.start_by)

    def _by_worth(self, now: float) -> list[bytes]:
        """All that is remembered, first what is forgotten last."""
        latest = list(reversed(self._used.items()))
        fresh = now - CLOCK_SECONDS
        # Of what may begin yet, the latest: what is forgotten of it tells how old is too old.
        may_begin = [each for each in latest if each[1].start_by >= fresh]
        begun = [each for each in latest if each[1].start_by < fresh]
        order = may_begin + _in_turn(begun, [(use.entry, use.requester) for _, use in begun])
        return [request for request, _ in _in_turn(order, [use.entry for _, use in order])]


def _entry_of(ticket: Ticket) -> PeerId:
    return ticket.chain[0].peer_id


def _in_turn(found: Sequence[T], names: Iterable[Hashable]) -> list[T]:
    """The first of each name, then the second of each, and so on; else in their order."""
    turns: list[list[T]] = []
    counted: dict[Hashable, int] = {}
    for each, name in zip(found, names, strict=True):
        turn = counted.get(name, 0)
        counted[name] = turn + 1
        if turn == len(turns):
            turns.append([])
        turns[turn].append(each)
    return [each for turn in turns for each in turn]


def _check_again(used: _Use, opened: Open) -> None:
    """Raises TicketUsed, unless the session that used a ticket goes on."""
    if used.session_id != opened.session_id:
        raise TicketUsed("the ticket was used for another session")
    if opened.epoch <= used.epoch:
        raise TicketUsed(f"the ticket was used for epoch {used.epoch} of this session")
    if used.opens >= MAX_OPENS:
        raise TicketUsed(f"the session of this ticket was opened {MAX_OPENS} times")
