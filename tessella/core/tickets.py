"""A ticket's rules: who signed it, for whom, for which chain, and until when.

    issued_at ── start_by (5 min) ── expires_at (1 h) ── settle until (24 h more)

A session begins before `start_by` and its proofs may come until a day after it expired, so that a
node that was cut off is paid for what it served.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from functools import lru_cache

from tessella.core.errors import BadFrame, BadTicket, ForeignTicket, TicketExpired
from tessella.core.identity import Identity, check_signature, public_key_of
from tessella.core.ids import PeerId
from tessella.core.messages import Stage, Ticket, TicketStage, decode_sealed, seal
from tessella.core.tiers import Tier

PURPOSE_TICKET = b"ticket"
ANONYMOUS = "anonymous"
REQUEST_ID_BYTES = 16

START_SECONDS = 300.0
TICKET_SECONDS = 3600.0
SETTLE_SECONDS = 24 * 3600.0
# What a node's clock and the issuer's may be apart: that of signed calls.
CLOCK_SECONDS = 60.0
# A frame's arrays end there, and no chain is longer.
MAX_STAGES = 64
# Of so many stages and as many spares.
MAX_TICKET_BYTES = 16 * 1024


def seal_ticket(ticket: Ticket, identity: Identity) -> tuple[bytes, bytes]:
    """A ticket as its issuer signs it: the bytes, and the signature."""
    payload = seal(ticket)
    return payload, identity.sign(PURPOSE_TICKET, payload)


def open_ticket(payload: bytes, signature: bytes, issuers: Container[PeerId]) -> Ticket:
    """A ticket that one of these musivums signed.

    Raises BadFrame for what is none, ForeignTicket for one of another issuer, BadSignature for one
    that its issuer did not sign.
    """
    if len(payload) > MAX_TICKET_BYTES:
        raise BadFrame(f"a ticket of {len(payload)} bytes, over {MAX_TICKET_BYTES}")
    # Who is said to have signed is inside: nothing else is believed before the signature is seen.
    ticket = _read(payload)
    if ticket.issuer not in issuers:
        raise ForeignTicket(f"a ticket of {ticket.issuer[:64]}, which is not of this mesh")
    _check_signed(payload, signature)
    return ticket


# The proofs of one chain come together, and each brings the same ticket: half of the work.
@lru_cache(maxsize=1024)
def _read(payload: bytes) -> Ticket:
    return decode_sealed(payload, Ticket)


@lru_cache(maxsize=1024)
def _check_signed(payload: bytes, signature: bytes) -> None:
    ticket = _read(payload)
    check_signature(ticket.issuer, PURPOSE_TICKET, payload, signature)
    _check_form(ticket)


def _check_form(ticket: Ticket) -> None:
    if len(ticket.request_id) != REQUEST_ID_BYTES or not 1 <= len(ticket.chain) <= MAX_STAGES:
        raise BadFrame("a ticket without a request or a chain")
    if ticket.tier not in set(Tier) or ticket.max_tokens < 1:
        raise BadFrame(f"a ticket of tier {ticket.tier[:20]!r} for {ticket.max_tokens} positions")
    if not ticket.issued_at <= ticket.start_by <= ticket.expires_at:
        raise BadFrame("a ticket whose times are out of order")
    if ticket.requester != ANONYMOUS:
        public_key_of(ticket.requester)


def check_session(
    ticket: Ticket, chain: Sequence[Stage], *, model: str, contract: str, capacity: int, now: float
) -> None:
    """Whether a session that begins now is the one that a ticket is for.

    Raises TicketExpired for one out of its time, BadTicket that names the difference otherwise.
    """
    if now > ticket.start_by + CLOCK_SECONDS:
        raise TicketExpired(f"the ticket was to be used {now - ticket.start_by:.0f} s ago")
    if now < ticket.issued_at - CLOCK_SECONDS:
        raise TicketExpired(f"the ticket is of {ticket.issued_at - now:.0f} s from now")
    if (ticket.model, ticket.contract) != (model, contract):
        raise BadTicket(f"the ticket is for other weights: {ticket.model[:80]}")
    if capacity > ticket.max_tokens:
        raise BadTicket(f"{capacity} positions, the ticket is for {ticket.max_tokens}")
    allowed = {(stage.peer_id, stage.layers) for stage in (*ticket.chain, *ticket.spares)}
    for stage in chain:
        if (stage.peer_id, stage.layers) not in allowed:
            raise BadTicket(f"{stage.peer_id} with layers {stage.layers} is not in the ticket")


def check_presenter(ticket: Ticket, presenter: str) -> None:
    """Raises BadTicket unless the ticket is the presenter's own.

    `presenter` is a proven peer id, or `anonymous`.
    """
    if ticket.requester != presenter:
        raise BadTicket(f"the ticket is {ticket.requester}'s, and {presenter} brought it")


def stages_of(ticket: Ticket) -> tuple[Stage, ...]:
    """The chain as an `Open` has it."""
    return tuple(Stage(stage.peer_id, stage.layers) for stage in ticket.chain)


def place_of(ticket: Ticket, worker: PeerId) -> tuple[int, TicketStage]:
    """A worker's place in the chain, and what it is there. Raises BadTicket if it has none."""
    for place, stage in enumerate(ticket.chain):
        if stage.peer_id == worker:
            return place, stage
    raise BadTicket(f"{worker} is not in the ticket's chain")
