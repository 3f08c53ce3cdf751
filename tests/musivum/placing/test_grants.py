"""A ticket names a chain that musivum drew, the tier that its requester earned, and its bounds."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest
import trio
from trio.testing import MockClock

from musivum.clocks import Clocks
from musivum.config import MusivumConfig
from musivum.nodes.books import Books, open_books
from musivum.nodes.registration import read_registration
from musivum.placing import grants as module
from musivum.placing.grants import KEPT_SECONDS, Grants
from musivum.store.memory import MemoryStore
from musivum.testing import EPOCH, HOUSE, a_registration, clock
from tessella.core.contracts import contract_of
from tessella.core.errors import (
    BadRequest,
    ModelUnavailable,
    NotAuthorized,
    TessellaError,
    UnknownModel,
    UnknownWorker,
)
from tessella.core.identity import Identity
from tessella.core.ids import ModelId, PeerId
from tessella.core.layers import LayerRange
from tessella.core.messages import Announce, AskGrant, Granted, Ticket
from tessella.core.shape_json import encode_shape
from tessella.core.tickets import check_session, open_ticket, stages_of
from tessella.core.tiers import MICRO

US = Identity(b"m" * 32)
IDS = [Identity(bytes([number]) * 32).peer_id for number in range(1, 9)]
CLIENT = Identity(b"c" * 32).peer_id
ASKED = AskGrant(ModelId("small"), 100, False, b"")
CONFIG = MusivumConfig(min_vram_mb=0)


@dataclass
class Accounts:
    """Balances that a test sets."""

    micro: dict[str, int] = field(default_factory=dict)

    async def balance(self, account: str) -> int:
        return self.micro.get(account, 0)


@dataclass
class Trust:
    """Whom audits speak for or against, as a test sets it."""

    suspected: set[PeerId] = field(default_factory=set)
    out: set[PeerId] = field(default_factory=set)
    hiding: set[PeerId] = field(default_factory=set)
    dear: dict[PeerId, float] = field(default_factory=dict)

    def suspects(self, peer_id: PeerId) -> bool:
        return peer_id in self.suspected

    def barred(self, peer_id: PeerId) -> str | None:
        return "a cheat" if peer_id in self.out else None

    def is_benched(self, peer_id: PeerId) -> bool:
        return peer_id in self.hiding

    def weight(self, peer_id: PeerId) -> float:
        return self.dear.get(peer_id, 1.0)


@dataclass
class Hub:
    """A musivum's books, and its grants."""

    books: Books
    accounts: Accounts
    grants: Grants
    trust: Trust

    def serves(self, number: int, start: int, stop: int, **changes: object) -> PeerId:
        """Have a node of the small model serve these layers."""
        wanted = replace(a_registration(), wanted=LayerRange(start, stop), claim_mb=64)
        wish = read_registration(replace(wanted, **changes), HOUSE)  # type: ignore[arg-type]
        now = self.books.clocks.now()
        self.books.roster.join(IDS[number], wish, now)
        self.books.roster.ready(IDS[number], LayerRange(start, stop), now)
        return IDS[number]

    def hears_of(self, number: int) -> None:
        """Have a node say that nothing waits there: by then it counts what it was granted."""
        now = self.books.clocks.now() + 1e-3
        self.books.roster.announce(IDS[number], Announce("Healthy", 0, 0.0), now)

    async def ticket(self, asked: AskGrant = ASKED, caller: PeerId = CLIENT) -> Ticket:
        """The ticket of a grant."""
        return opened(await self.grants.grant(caller, asked))


def opened(granted: Granted) -> Ticket:
    return open_ticket(granted.ticket, granted.signature, {US.peer_id})


Make = Callable[..., Hub]


@pytest.fixture
async def make() -> Make:
    books = await open_books(CONFIG, MemoryStore(), Clocks(clock))

    def made(seed: int = 0, config: MusivumConfig = CONFIG) -> Hub:
        accounts, trust = Accounts(), Trust()
        grants = Grants(US, config, books, accounts, trust, random.Random(seed).random)
        return Hub(books, accounts, grants, trust)

    return made


@pytest.fixture
def hub(make: Make) -> Hub:
    """Three nodes with 0:4, 4:10 and 10:12, and a second one with 4:10."""
    found = make()
    found.serves(0, 0, 4, weights="q4_1", api_url="http://10.0.0.9:8080")
    found.serves(1, 4, 10, weights="bf16", dtype="bf16")
    found.serves(2, 10, 12)
    found.serves(3, 4, 10, weights="q8_0")
    return found


async def test_a_ticket_names_a_chain_and_how_each_stage_computes(hub: Hub) -> None:
    granted = await hub.grants.grant(CLIENT, ASKED)
    ticket = opened(granted)
    (first, middle, last) = ticket.chain
    assert (first.peer_id, first.numeric) == (IDS[0], "f32/q4_1/f32")
    numeric = {IDS[1]: "bf16/bf16/f32", IDS[3]: "f32/q8_0/f32"}
    assert numeric[middle.peer_id] == middle.numeric
    assert (last.peer_id, last.layers, last.numeric) == (IDS[2], LayerRange(10, 12), "f32/f32/f32")
    (spare,) = ticket.spares
    assert {spare.peer_id, middle.peer_id} == {IDS[1], IDS[3]}
    assert spare.layers == middle.layers == LayerRange(4, 10)
    row = hub.books.roster.node(IDS[0]).row
    assert (granted.addrs, granted.api_url) == (row.addrs, "http://10.0.0.9:8080")


async def test_who_does_not_say_what_its_weights_are_is_in_no_ticket(make: Make) -> None:
    hub = make()
    silent, told = hub.serves(0, 0, 12, weights=""), hub.serves(1, 0, 12)
    for _ in range(20):
        ticket = await hub.ticket()
        assert [stage.peer_id for stage in (*ticket.chain, *ticket.spares)] == [told]
    with pytest.raises(BadRequest, match="the format of its weights"):
        await hub.ticket(replace(ASKED, anonymous=True), caller=silent)


async def test_a_ticket_holds_for_the_session_that_follows(hub: Hub) -> None:
    ticket = await hub.ticket()
    assert (ticket.issuer, ticket.requester, ticket.max_tokens) == (US.peer_id, CLIENT, 100)
    now = ticket.issued_at
    assert (ticket.start_by - now, ticket.expires_at - now) == (300.0, 3600.0)
    assert now == pytest.approx(EPOCH + trio.current_time())
    check_session(
        ticket,
        stages_of(ticket),
        model="small",
        contract=ticket.contract,
        capacity=100,
        now=now,
    )


async def test_no_two_tickets_are_of_one_request(hub: Hub) -> None:
    ids = {(await hub.ticket()).request_id for _ in range(50)}
    assert {len(each) for each in ids} == {16}
    assert len(ids) == 50


async def test_who_serves_is_drawn(hub: Hub) -> None:
    hub.serves(1, 4, 10)
    middles = {(await hub.ticket()).chain[1].peer_id for _ in range(40)}
    assert middles == {IDS[1], IDS[3]}


@pytest.mark.parametrize(
    ("micro", "suspect", "tier"),
    [
        (0, False, "leech"),
        (-MICRO, False, "leech"),
        (1, False, "standard"),
        (1000 * MICRO, False, "standard"),
        (1000 * MICRO + 1, False, "vip"),
        (5000 * MICRO, True, "standard"),
        (0, True, "leech"),
    ],
)
async def test_a_balance_earns_a_tier_and_a_suspect_is_no_vip(
    micro: int, suspect: bool, tier: str, hub: Hub
) -> None:
    hub.accounts.micro[CLIENT] = micro
    if suspect:
        hub.trust.suspected.add(CLIENT)
    assert (await hub.ticket()).tier == tier


async def test_who_is_barred_serves_nobody_and_who_is_suspected_seldom(hub: Hub) -> None:
    for number in (1, 3, 4):
        hub.serves(number, 4, 10)
    hub.trust.out.add(IDS[1])
    hub.trust.dear[IDS[3]] = 2.0
    first = await hub.ticket()
    for _ in range(20):
        hub.hears_of(4)
        ticket = await hub.ticket()
        assert ticket.chain[1].peer_id == IDS[4]
        assert {spare.peer_id for spare in ticket.spares} == {IDS[3]}
    hub.trust.out.add(IDS[4])
    assert (await hub.ticket(replace(ASKED, after=first.request_id))).chain[1].peer_id == IDS[3]


async def test_who_hides_what_it_has_to_keep_is_in_no_ticket_and_gets_none(hub: Hub) -> None:
    for number in (1, 3, 4):
        hub.serves(number, 4, 10)
    first = await hub.ticket()
    hidden = first.chain[1].peer_id
    hub.trust.hiding.add(hidden)
    for after in (b"", first.request_id):
        ticket = await hub.ticket(replace(ASKED, after=after))
        assert hidden not in {stage.peer_id for stage in (*ticket.chain, *ticket.spares)}
    hub.trust.hiding.add(IDS[0])
    with pytest.raises(NotAuthorized, match="gets no tickets for a day"):
        await hub.ticket(replace(ASKED, anonymous=True), IDS[0])


async def test_an_anonymous_request_begins_at_the_entry_that_asks_and_is_a_leech(
    hub: Hub,
) -> None:
    other = hub.serves(4, 0, 12)
    hub.accounts.micro[IDS[0]] = 5000 * MICRO
    for caller in (IDS[0], other):
        ticket = await hub.ticket(replace(ASKED, anonymous=True), caller)
        assert (ticket.chain[0].peer_id, ticket.requester) == (caller, "anonymous")
        assert ticket.tier == "leech"


async def test_a_node_that_asks_for_itself_is_a_requester_as_any(hub: Hub) -> None:
    ticket = await hub.ticket(ASKED, IDS[2])
    assert (ticket.requester, ticket.chain[0].peer_id) == (IDS[2], IDS[0])


@pytest.mark.parametrize(
    ("asked", "caller", "error", "named"),
    [
        (replace(ASKED, model=ModelId("other")), CLIENT, UnknownModel, "other"),
        (replace(ASKED, max_tokens=0), CLIENT, BadRequest, "max_tokens"),
        (replace(ASKED, max_tokens=-5), CLIENT, BadRequest, "max_tokens"),
        (replace(ASKED, max_tokens=131_073), CLIENT, BadRequest, "131072"),
        (replace(ASKED, after=b"short"), CLIENT, BadRequest, "after"),
        (replace(ASKED, anonymous=True), CLIENT, UnknownWorker, CLIENT),
        (replace(ASKED, anonymous=True), IDS[1], BadRequest, "layer 0"),
    ],
)
async def test_what_cannot_be_granted_is_refused_with_its_reason(
    asked: AskGrant, caller: PeerId, error: type[TessellaError], named: str, hub: Hub
) -> None:
    with pytest.raises(error, match=named):
        await hub.grants.grant(caller, asked)
    assert len(hub.grants) == 0


async def test_an_entry_of_another_model_is_none_of_this_one(hub: Hub) -> None:
    hub.serves(4, 0, 4, model=ModelId("large"))
    asked = replace(ASKED, anonymous=True)
    with pytest.raises(BadRequest, match="layer 0 of small"):
        await hub.grants.grant(IDS[4], asked)
    # It knows its name alone.
    with pytest.raises(ModelUnavailable):
        await hub.grants.grant(CLIENT, replace(ASKED, model=ModelId("large")))


async def test_missing_layers_are_told_with_what_would_help(hub: Hub) -> None:
    hub.books.roster.leave(IDS[2])
    with pytest.raises(ModelUnavailable, match="layers 10:12") as caught:
        await hub.ticket()
    assert caught.value.details["missing"] == [[10, 12]]
    hub.books.roster.leave(IDS[0])
    hub.serves(4, 0, 4, canary=True)
    with pytest.raises(ModelUnavailable, match="0:4"):
        await hub.ticket()


async def test_nodes_of_other_weights_have_the_name_alone(hub: Hub) -> None:
    wish = hub.books.roster.node(IDS[0]).wish
    other = replace(wish.shape, vocab=4097)
    for number in (5, 6):
        changes = {"shape": encode_shape(other), "contract": contract_of(other)}
        hub.serves(number, 0, 12, **changes)
    ticket = await hub.ticket()
    assert {stage.peer_id for stage in (*ticket.chain, *ticket.spares)} == set(IDS[:4])


async def test_a_conversation_keeps_its_chain_while_all_of_it_serves(hub: Hub) -> None:
    first = await hub.ticket()
    for _ in range(20):
        again = await hub.ticket(replace(ASKED, after=first.request_id, max_tokens=7))
        assert stages_of(again) == stages_of(first)
        assert (again.max_tokens, again.request_id == first.request_id) == (7, False)
    middle = first.chain[1].peer_id
    hub.books.roster.announce(middle, Announce("Saturated", 9, 0.0), trio.current_time())
    other = await hub.ticket(replace(ASKED, after=first.request_id))
    assert other.chain[1].peer_id != middle


async def test_a_chain_of_somebody_else_or_of_long_ago_is_not_given_again(
    make: Make, autojump_clock: MockClock
) -> None:
    hub = make(seed=3)
    for number in range(6):
        hub.serves(number, 0, 12)
    other = Identity(b"o" * 32).peer_id

    async def entries(caller: PeerId, after: bytes) -> set[PeerId]:
        asked = replace(ASKED, after=after)
        return {(await hub.ticket(asked, caller)).chain[0].peer_id for _ in range(30)}

    first = await hub.ticket()
    assert await entries(CLIENT, first.request_id) == {first.chain[0].peer_id}
    assert len(await entries(other, first.request_id)) > 2
    assert len(await entries(CLIENT, b"?" * 16)) > 2
    # Asking for it again does not keep it for longer.
    await trio.sleep(KEPT_SECONDS - 1)
    last = await hub.ticket(replace(ASKED, after=first.request_id))
    assert last.chain[0].peer_id == first.chain[0].peer_id
    await trio.sleep(1)
    assert len(await entries(CLIENT, last.request_id)) > 2


async def test_an_entrys_chain_for_the_nameless_is_not_its_own(hub: Hub) -> None:
    hub.serves(4, 0, 4)
    first = await hub.ticket(replace(ASKED, anonymous=True), IDS[4])
    again = replace(ASKED, after=first.request_id)
    entries = {(await hub.ticket(again, IDS[4])).chain[0].peer_id for _ in range(30)}
    assert entries == {IDS[0], IDS[4]}


async def test_no_more_chains_are_remembered_than_there_may_be(
    hub: Hub, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_REMEMBERED", 5)
    for _ in range(9):
        await hub.ticket()
    assert len(hub.grants) == 5
    await trio.sleep(KEPT_SECONDS)
    await hub.ticket()
    assert len(hub.grants) == 1


async def test_the_operator_says_how_large_a_ticket_may_be(make: Make) -> None:
    hub = make(config=replace(CONFIG, max_ticket_tokens=50))
    hub.serves(0, 0, 12)
    assert (await hub.ticket(replace(ASKED, max_tokens=50))).max_tokens == 50
    with pytest.raises(BadRequest, match="1 to 50"):
        await hub.ticket(replace(ASKED, max_tokens=51))


async def test_what_was_granted_is_spread_before_anybody_says_how_busy_it_is(hub: Hub) -> None:
    hub.serves(1, 4, 10)
    hub.serves(3, 4, 10)
    drawn = [(await hub.ticket()).chain[1].peer_id for _ in range(20)]
    assert {drawn.count(IDS[1]), drawn.count(IDS[3])} == {10}


async def test_a_node_that_measured_nothing_yet_is_drawn_like_its_twins(hub: Hub) -> None:
    for number in (1, 3):
        hub.serves(number, 4, 10)
    hub.books.roster.announce(IDS[1], Announce("Healthy", 0, 2.0), hub.books.clocks.now() + 1e-3)
    drawn = [(await hub.ticket()).chain[1].peer_id for _ in range(10)]
    assert drawn.count(IDS[3]) == 5
