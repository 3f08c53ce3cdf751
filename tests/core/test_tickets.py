"""Who may use a ticket, for what, and until when."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tessella.core.errors import (
    BadFrame,
    BadSignature,
    BadTicket,
    ForeignTicket,
    TessellaError,
    TicketExpired,
)
from tessella.core.ids import ModelId, PeerId
from tessella.core.layers import LayerRange
from tessella.core.messages import Stage, seal
from tessella.core.tickets import (
    ANONYMOUS,
    CLOCK_SECONDS,
    START_SECONDS,
    check_presenter,
    check_session,
    open_ticket,
    place_of,
    seal_ticket,
    stages_of,
)
from tests.core.work import MUSIVUM, NOW, Work, identity

WORK = Work([identity(1), identity(2)])
ISSUERS = {MUSIVUM.peer_id}


def test_a_ticket_is_read_as_it_was_written() -> None:
    assert open_ticket(WORK.payload, WORK.signature, ISSUERS) == WORK.ticket


def test_a_changed_byte_anywhere_is_seen() -> None:
    for at in range(0, len(WORK.payload), 7):
        payload = bytearray(WORK.payload)
        payload[at] ^= 1
        with pytest.raises((BadSignature, BadFrame, ForeignTicket)):
            open_ticket(bytes(payload), WORK.signature, ISSUERS)


def test_a_ticket_of_a_musivum_that_is_not_known_is_foreign() -> None:
    with pytest.raises(ForeignTicket, match=MUSIVUM.peer_id):
        open_ticket(WORK.payload, WORK.signature, {identity(9).peer_id})


def test_a_ticket_that_a_worker_signed_itself_is_forged() -> None:
    payload, signature = seal_ticket(WORK.ticket, identity(1))
    with pytest.raises(BadSignature):
        open_ticket(payload, signature, ISSUERS)


def test_what_was_signed_for_another_purpose_is_no_ticket() -> None:
    payload = seal(WORK.ticket)
    with pytest.raises(BadSignature):
        open_ticket(payload, MUSIVUM.sign(b"proof", payload), ISSUERS)


@pytest.mark.parametrize(
    "changes",
    [
        {"request_id": b"short"},
        {"chain": ()},
        {"tier": "emperor"},
        {"max_tokens": 0},
        {"start_by": NOW - 1},
        {"expires_at": NOW},
        {"requester": "nobody's key"},
    ],
)
def test_a_signed_ticket_that_makes_no_sense_is_refused(changes: dict[str, Any]) -> None:
    work = Work([identity(1)], changes=changes)
    with pytest.raises((BadFrame, BadSignature)):
        open_ticket(work.payload, work.signature, ISSUERS)


CHAIN = stages_of(WORK.ticket)
STRANGER = Stage(identity(5).peer_id, CHAIN[1].layers)
SHIFTED = replace(CHAIN[1], layers=LayerRange(9, 20))


@pytest.mark.parametrize(
    ("asked", "error"),
    [
        ({}, None),
        ({"capacity": 1}, None),
        ({"capacity": 101}, BadTicket),
        ({"model": "other"}, BadTicket),
        ({"contract": "other"}, BadTicket),
        ({"chain": (CHAIN[0], STRANGER)}, BadTicket),
        ({"chain": (CHAIN[0], SHIFTED)}, BadTicket),
        ({"now": NOW + START_SECONDS + CLOCK_SECONDS - 1}, None),
        ({"now": NOW + START_SECONDS + CLOCK_SECONDS + 1}, TicketExpired),
        ({"now": NOW - CLOCK_SECONDS + 1}, None),
        ({"now": NOW - CLOCK_SECONDS - 1}, TicketExpired),
        ({"now": NOW + 3600 * 24}, TicketExpired),
    ],
)
def test_a_session_has_to_be_the_one_the_ticket_is_for(
    asked: dict[str, Any], error: type[TessellaError] | None
) -> None:
    terms: dict[str, Any] = {"model": "m", "contract": "c", "capacity": 100, "now": NOW}
    chain = asked.pop("chain", CHAIN)
    terms |= asked
    if error is None:
        check_session(WORK.ticket, chain, **terms)
    else:
        with pytest.raises(error):
            check_session(WORK.ticket, chain, **terms)


def test_a_spare_may_take_the_place_of_a_stage() -> None:
    spare = replace(WORK.ticket.chain[1], peer_id=identity(7).peer_id)
    ticket = replace(WORK.ticket, spares=(spare,))
    chain = (CHAIN[0], Stage(spare.peer_id, spare.layers))
    check_session(ticket, chain, model="m", contract="c", capacity=9, now=NOW)


def test_only_whose_ticket_it_is_may_bring_it() -> None:
    mine = identity(8).peer_id
    ticket = replace(WORK.ticket, requester=mine)
    check_presenter(ticket, mine)
    check_presenter(WORK.ticket, ANONYMOUS)
    for other in (identity(9).peer_id, ANONYMOUS):
        with pytest.raises(BadTicket, match=mine):
            check_presenter(ticket, other)


def test_the_place_of_a_worker_is_that_in_the_chain() -> None:
    assert place_of(WORK.ticket, identity(2).peer_id) == (1, WORK.ticket.chain[1])
    with pytest.raises(BadTicket):
        place_of(WORK.ticket, PeerId(ModelId("stranger")))
