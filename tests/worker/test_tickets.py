"""What a node makes of the ticket of a session that begins at it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from tessella.core.addresses import PeerAddress
from tessella.core.errors import (
    BadFrame,
    BadSignature,
    BadTicket,
    TicketExpired,
    TicketUsed,
)
from tessella.core.identity import Identity
from tessella.core.ids import ModelId, SessionId
from tessella.core.layers import LayerRange
from tessella.core.messages import Open, Stage, TicketStage
from tessella.core.tickets import START_SECONDS, TICKET_SECONDS
from tessella.core.tiers import Tier
from tessella.worker.tickets import MAX_OPENS, UNPAID, Presented, SignedTicket, Tickets
from tests.worker.mint import Mint

NOW = 1_800_000_000.0
MUSIVUM, OTHER = Identity(b"m" * 32), Identity(b"o" * 32)
PEERS = [
    PeerAddress(Identity(bytes([at + 1]) * 32).peer_id, ("/ip4/10.0.0.1/tcp/4001",))
    for at in range(3)
]
CHAIN = tuple(Stage(peer.peer_id, LayerRange(2 * at, 2 * at + 2)) for at, peer in enumerate(PEERS))
MINT = Mint(MUSIVUM, lambda: NOW)


class Clock:
    now = NOW

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def tickets(clock: Clock) -> Tickets:
    return Tickets([MUSIVUM.peer_id], clock)


@pytest.fixture
def opening(an_open: Callable[..., Open]) -> Callable[..., Open]:
    """The `Open` of a session with a ticket; keyword arguments change it."""

    def made(signed: SignedTicket, **changes: Any) -> Open:
        opened = an_open(PEERS, 1, ticket=signed.payload, ticket_signature=signed.signature)
        return replace(opened, **changes)

    return made


def test_a_node_that_was_started_again_takes_no_ticket_that_it_may_have_taken_before(
    clock: Clock, opening: Callable[..., Open]
) -> None:
    signed = MINT.ticket(CHAIN)
    Tickets([MUSIVUM.peer_id], clock).check(opening(signed))
    clock.now = NOW + 1
    again = Tickets([MUSIVUM.peer_id], clock)
    with pytest.raises(TicketExpired, match="before this node was started"):
        again.check(opening(signed))
    fresh = Mint(MUSIVUM, lambda: NOW + 1).ticket(CHAIN)
    assert again.check(opening(fresh)).ticket == fresh.ticket


@pytest.mark.parametrize("tier", list(Tier))
def test_a_good_ticket_says_the_tier(
    tickets: Tickets, opening: Callable[..., Open], tier: Tier
) -> None:
    signed = MINT.ticket(CHAIN, tier=tier.value)
    found = tickets.check(opening(signed))
    assert (found.ticket, found.tier, found.word) == (signed.ticket, tier, tier.value)


def test_without_a_ticket_nobody_pays(tickets: Tickets, an_open: Callable[..., Open]) -> None:
    assert tickets.check(an_open(PEERS, 1)) == UNPAID
    assert (UNPAID.tier, UNPAID.word) == (Tier.LEECH, "")


def test_a_foreign_ticket_is_as_none(tickets: Tickets, opening: Callable[..., Open]) -> None:
    signed = Mint(OTHER, lambda: NOW).ticket(CHAIN, tier="vip")
    assert tickets.check(opening(signed)) == UNPAID
    assert tickets.check(opening(signed, session_id=SessionId(b"x" * 16))) == UNPAID
    assert tickets.read(signed.payload, signed.signature) is None
    assert len(tickets) == 0


def test_a_node_without_a_musivum_reads_no_ticket(opening: Callable[..., Open]) -> None:
    assert Tickets().check(opening(MINT.ticket(CHAIN))) == UNPAID


@pytest.mark.parametrize(
    ("forge", "error"),
    [
        (lambda s: {"ticket_signature": bytes(64)}, BadSignature),
        (lambda s: {"ticket_signature": b""}, BadSignature),
        (lambda s: {"ticket": s.payload.replace(b"standard", b"vip_____")}, BadSignature),
        (lambda s: {"ticket": MINT.ticket(CHAIN, tier="vip").payload}, BadSignature),
        (lambda s: {"ticket": b"ticket"}, BadFrame),
        (lambda s: {"ticket": s.payload[:-1]}, BadFrame),
    ],
)
def test_a_forged_ticket_is_refused(
    tickets: Tickets, opening: Callable[..., Open], forge: Any, error: type[Exception]
) -> None:
    signed = MINT.ticket(CHAIN)
    with pytest.raises(error):
        tickets.check(opening(signed, **forge(signed)))
    assert len(tickets) == 0


def test_a_ticket_that_a_stranger_signed_in_musivums_name_is_refused(
    tickets: Tickets, opening: Callable[..., Open]
) -> None:
    forger = Mint(OTHER, lambda: NOW)
    with pytest.raises(BadSignature):
        tickets.check(opening(forger.ticket(CHAIN, issuer=MUSIVUM.peer_id)))


@pytest.mark.parametrize(
    "changes",
    [
        {"capacity": 65},
        {"model": ModelId("other")},
        {"contract": "other"},
        {"chain": (*CHAIN[:2], Stage(OTHER.peer_id, LayerRange(4, 6)))},
        {"chain": (*CHAIN[:1], Stage(CHAIN[1].peer_id, LayerRange(2, 6)))},
        {"chain": (Stage(CHAIN[1].peer_id, CHAIN[0].layers), *CHAIN[1:])},
    ],
)
def test_a_session_that_the_ticket_does_not_cover_is_refused(
    tickets: Tickets, opening: Callable[..., Open], changes: dict[str, Any]
) -> None:
    signed = MINT.ticket(CHAIN, max_tokens=64)
    with pytest.raises(BadTicket):
        tickets.check(opening(signed, **changes))
    # What was refused has not used it.
    assert tickets.check(opening(signed)).ticket == signed.ticket


def test_a_spare_may_take_a_place(tickets: Tickets, opening: Callable[..., Open]) -> None:
    spare = TicketStage(OTHER.peer_id, LayerRange(4, 6), "")
    signed = MINT.ticket(CHAIN, spares=(spare,))
    chain = (*CHAIN[:2], Stage(spare.peer_id, spare.layers))
    assert tickets.check(opening(signed, chain=chain)).ticket == signed.ticket


@pytest.mark.parametrize(
    ("now", "is_taken"),
    [
        (NOW - 59, True),
        (NOW - 61, False),
        (NOW - 3600, False),
        (NOW + START_SECONDS + 59, True),
        (NOW + START_SECONDS + 61, False),
        (NOW + 3600, False),
    ],
)
def test_a_clock_may_be_a_minute_off(
    tickets: Tickets, opening: Callable[..., Open], clock: Clock, now: float, is_taken: bool
) -> None:
    clock.now = now
    signed = MINT.ticket(CHAIN)
    if is_taken:
        assert tickets.check(opening(signed)).ticket == signed.ticket
    else:
        with pytest.raises(TicketExpired):
            tickets.check(opening(signed))


def test_a_ticket_is_for_one_session(tickets: Tickets, opening: Callable[..., Open]) -> None:
    signed = MINT.ticket(CHAIN)
    tickets.check(opening(signed))
    with pytest.raises(TicketUsed, match="another session"):
        tickets.check(opening(signed, session_id=SessionId(b"x" * 16), epoch=1))
    with pytest.raises(TicketUsed, match="epoch 0"):
        tickets.check(opening(signed))


def test_its_session_may_be_opened_again_while_the_ticket_lasts(
    tickets: Tickets, opening: Callable[..., Open], clock: Clock
) -> None:
    signed = MINT.ticket(CHAIN)
    tickets.check(opening(signed))
    clock.now += TICKET_SECONDS
    assert tickets.check(opening(signed, epoch=2)).ticket == signed.ticket
    with pytest.raises(TicketUsed, match="epoch 2"):
        tickets.check(opening(signed, epoch=1))
    clock.now += 61
    with pytest.raises(TicketExpired):
        tickets.check(opening(signed, epoch=3))


def test_it_is_not_opened_without_end(tickets: Tickets, opening: Callable[..., Open]) -> None:
    signed = MINT.ticket(CHAIN)
    for epoch in range(MAX_OPENS):
        tickets.check(opening(signed, epoch=epoch))
    with pytest.raises(TicketUsed, match=f"{MAX_OPENS} times"):
        tickets.check(opening(signed, epoch=MAX_OPENS))


def test_a_clock_that_is_set_back_forgets_nothing(
    tickets: Tickets, opening: Callable[..., Open], clock: Clock
) -> None:
    signed = MINT.ticket(CHAIN)
    tickets.check(opening(signed))
    clock.now -= 3600
    with pytest.raises(TicketUsed):
        tickets.check(opening(signed, session_id=SessionId(b"x" * 16)))


def test_what_is_used_is_forgotten_when_it_can_be_used_no_more(
    clock: Clock, opening: Callable[..., Open]
) -> None:
    tickets = Tickets([MUSIVUM.peer_id], clock, limit=2)
    old = [MINT.ticket(CHAIN) for _ in range(2)]
    for signed in old:
        tickets.check(opening(signed))
    clock.now += TICKET_SECONDS + 61
    later = Mint(MUSIVUM, clock)
    tickets.check(opening(later.ticket(CHAIN, request_id=b"b" * 16)))
    assert len(tickets) == 1
    # Whatever the clock says then.
    clock.now = NOW
    for signed in old:
        with pytest.raises(TicketExpired):
            tickets.check(opening(signed, session_id=SessionId(b"x" * 16)))


LIMIT = 64
FLOODER = Stage(Identity(b"f" * 32).peer_id, LayerRange(0, 2))
CLIENTS = [Identity(bytes([at + 100]) * 32).peer_id for at in range(40)]


class Node:
    """A node with a small table, and every ticket that began a session there."""

    def __init__(self, clock: Clock, opening: Callable[..., Open]) -> None:
        self.clock = clock
        self.opening = opening
        self.tickets = Tickets([MUSIVUM.peer_id], clock, limit=LIMIT)
        self.mint = Mint(MUSIVUM, clock)
        self.used: list[tuple[SignedTicket, tuple[Stage, ...]]] = []

    def begin(self, entry: Stage = CHAIN[0], **changes: Any) -> SignedTicket:
        """One more session, by an entry."""
        chain = (entry, *CHAIN[1:])
        signed = self.mint.ticket(chain, **changes)
        self.check(signed, chain)
        self.used.append((signed, chain))
        return signed

    def check(self, signed: SignedTicket, chain: tuple[Stage, ...] = CHAIN, **how: Any) -> None:
        """What the node says to a session with this ticket."""
        assert self.tickets.check(self.opening(signed, chain=chain, **how)).ticket is not None
        assert len(self.tickets) <= LIMIT

    def refused(self) -> int:
        """How many of all tickets that were used are refused for another session."""
        count = 0
        for signed, chain in self.used:
            with pytest.raises((TicketUsed, TicketExpired)):
                self.check(signed, chain, session_id=SessionId(b"x" * 16), epoch=9)
            count += 1
        return count


@pytest.fixture
def node(clock: Clock, opening: Callable[..., Open]) -> Node:
    return Node(clock, opening)


@pytest.mark.parametrize("seconds", [0.0, 0.5, 6.0, 60.0])
def test_a_flood_of_one_entry_pushes_out_its_own(
    node: Node, seconds: float, record_property: Callable[[str, object], None]
) -> None:
    running = [node.begin() for _ in range(8)]
    waiting = node.mint.ticket(CHAIN)
    for _ in range(3 * LIMIT // 2):
        node.clock.now += seconds
        with suppress(TicketExpired):
            node.begin(FLOODER)
    node.begin()
    # Who runs goes on, and a ticket that was not used yet is as good as without the flood.
    if node.clock.now < NOW + TICKET_SECONDS:
        for signed in running:
            node.check(signed, epoch=1)
    if node.clock.now < waiting.ticket.start_by:
        node.check(waiting)
    for number in range(10 * LIMIT):
        with suppress(TicketExpired):
            node.begin(FLOODER)
        if number % 20 == 0:
            node.clock.now += 0.1
            node.begin()
    refused = node.refused()
    line = f"tickets seconds={seconds:g} used={len(node.used)} limit={LIMIT} replayed=0"
    record_property("tickets", f"{line} refused={refused}")
    assert refused == len(node.used)


def test_a_flood_makes_the_tickets_of_its_own_entry_short_lived(node: Node) -> None:
    chain = (FLOODER, *CHAIN[1:])
    early, others = node.mint.ticket(chain), node.mint.ticket(CHAIN)
    for _ in range(2 * LIMIT):
        node.clock.now += 1
        node.begin(FLOODER)
    with pytest.raises(TicketExpired, match="too old"):
        node.check(early, chain)
    node.check(others)
    node.clock.now += 1
    node.begin(FLOODER)


def test_of_one_entry_whoever_asks_most_loses_its_own(node: Node) -> None:
    few = [node.begin(requester=client) for client in CLIENTS[1:]]
    for _ in range(2 * LIMIT):
        node.clock.now += 25
        node.begin(requester=CLIENTS[0])
    for signed in few:
        node.check(signed, epoch=1)
    assert node.refused() == len(node.used)


def test_many_entries_share_the_table(node: Node) -> None:
    entries = [Stage(peer_id, LayerRange(0, 2)) for peer_id in CLIENTS]
    running = node.begin()
    for number in range(8 * LIMIT):
        node.clock.now += 0.1
        node.begin(entries[number % len(entries)])
    node.check(running, epoch=1)
    assert node.refused() == len(node.used)


def test_a_client_brings_its_own_ticket_and_no_other(tickets: Tickets) -> None:
    client = Identity(b"c" * 32).peer_id
    own, anonymous = MINT.ticket(CHAIN, requester=client), MINT.ticket(CHAIN)
    assert tickets.admit(Presented(own.payload, own.signature, client)) == own
    assert tickets.admit(Presented(b"", b"", client)) is None
    for signed, presenter in ((own, OTHER.peer_id), (anonymous, client)):
        with pytest.raises(BadTicket, match=f"{presenter} brought it"):
            tickets.admit(Presented(signed.payload, signed.signature, presenter))
