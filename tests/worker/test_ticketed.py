"""Tickets that are brought, and what becomes of those that are not for the session."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from p2p.streams import FrameStream
from tessella.core.errors import RemoteFailure
from tessella.core.identity import Identity
from tessella.core.ids import ModelId, SessionId
from tessella.core.layers import LayerRange
from tessella.core.messages import HOP, Fail, Open, Stage
from tessella.core.sampling import Sampling
from tessella.core.tickets import ANONYMOUS, MAX_TICKET_BYTES
from tessella.worker.tickets import SignedTicket
from tessella.worker.tokens import TokenDesk
from tests.worker.conftest import wall_clock
from tests.worker.mint import Mint
from tests.worker.ticketed import MUSIVUM, NAME, RANGES, STRANGER, ask, chain_of, for_client

OpenHub = Callable[..., Any]
# Whose key the client of a mesh has.
CLIENT = Identity(b"c" * 32)


@pytest.fixture
def mint() -> Mint:
    return Mint(MUSIVUM, wall_clock)


@pytest.mark.parametrize("tier", ["vip", "standard", "leech"])
async def test_a_request_with_a_ticket_goes_through_its_chain_in_its_tier(
    open_hub: OpenHub, autojump_clock: MockClock, mint: Mint, tier: str
) -> None:
    async with open_hub(RANGES) as (mesh, _):
        answer = await ask(mesh, for_client(mint, mesh, tier=tier))
        assert answer.begun.tier == tier
        assert answer.begun.chain == chain_of(mesh)
        assert answer.ids == (await ask(mesh)).ids


async def test_a_ticket_chooses_among_nodes_that_hold_the_same(
    open_hub: OpenHub, autojump_clock: MockClock, mint: Mint
) -> None:
    async with open_hub([*RANGES, (4, 6)]) as (mesh, _):
        for tail in mesh.nodes[2:]:
            chain = (*chain_of(mesh)[:2], Stage(tail.identity.peer_id, LayerRange(4, 6)))
            answer = await ask(mesh, for_client(mint, mesh, chain=chain))
            assert answer.begun.chain == chain


def forged(mint: Mint, mesh: Any) -> SignedTicket:
    signed = for_client(mint, mesh, tier="vip")
    return replace(signed, signature=for_client(mint, mesh).signature)


def in_musivums_name(mint: Mint, mesh: Any) -> SignedTicket:
    return for_client(Mint(STRANGER, wall_clock), mesh, issuer=MUSIVUM.peer_id)


def expired(mint: Mint, mesh: Any) -> SignedTicket:
    return for_client(Mint(MUSIVUM, lambda: wall_clock() - 3600), mesh)


def of_tomorrow(mint: Mint, mesh: Any) -> SignedTicket:
    return for_client(Mint(MUSIVUM, lambda: wall_clock() + 3600), mesh)


def for_fewer(mint: Mint, mesh: Any) -> SignedTicket:
    return for_client(mint, mesh, max_tokens=10)


def for_other_weights(mint: Mint, mesh: Any) -> SignedTicket:
    return for_client(mint, mesh, contract="other")


def of_somebody_else(mint: Mint, mesh: Any) -> SignedTicket:
    return for_client(mint, mesh, requester=STRANGER.peer_id)


def of_nobody(mint: Mint, mesh: Any) -> SignedTicket:
    return for_client(mint, mesh, requester=ANONYMOUS)


def through_a_gap(mint: Mint, mesh: Any) -> SignedTicket:
    first, _, last = chain_of(mesh)
    return for_client(mint, mesh, chain=(first, last))


BAD = [
    (forged, "bad_signature"),
    (in_musivums_name, "bad_signature"),
    (expired, "ticket_expired"),
    (of_tomorrow, "ticket_expired"),
    (for_fewer, "bad_ticket"),
    (for_other_weights, "bad_ticket"),
    (of_somebody_else, "bad_ticket"),
    (of_nobody, "bad_ticket"),
    (through_a_gap, "bad_frame"),
]


@pytest.mark.parametrize(("make", "code"), BAD, ids=lambda one: getattr(one, "__name__", one))
async def test_a_ticket_that_is_not_for_this_buys_nothing_at_the_entry(
    open_hub: OpenHub,
    autojump_clock: MockClock,
    mint: Mint,
    make: Callable[[Mint, Any], SignedTicket],
    code: str,
) -> None:
    async with open_hub(RANGES) as (mesh, _):
        with pytest.raises(RemoteFailure) as caught:
            await ask(mesh, make(mint, mesh))
        assert caught.value.code == code
        for node in mesh.nodes:
            status = await mesh.status(node)
            assert (status["sessions"], status["positions_computed"]) == ([], 0)
            assert status["peer_failures"] == {}


async def test_a_foreign_ticket_is_served_as_none(
    open_hub: OpenHub, autojump_clock: MockClock
) -> None:
    async with open_hub(RANGES) as (mesh, _):
        signed = for_client(Mint(STRANGER, wall_clock), mesh, tier="vip")
        for _again in range(2):
            assert (await ask(mesh, signed)).begun.tier == ""


async def test_a_ticket_is_good_for_one_answer(
    open_hub: OpenHub, autojump_clock: MockClock, mint: Mint
) -> None:
    async with open_hub(RANGES) as (mesh, _):
        signed = for_client(mint, mesh)
        await ask(mesh, signed)
        with pytest.raises(RemoteFailure) as caught:
            await ask(mesh, signed)
        assert caught.value.code == "ticket_used"


@pytest.mark.parametrize("place", [1, 2])
async def test_a_node_that_is_not_the_entry_names_it(
    open_hub: OpenHub, autojump_clock: MockClock, mint: Mint, place: int
) -> None:
    async with open_hub(RANGES) as (mesh, _):
        entry = mesh.nodes[0].address
        with pytest.raises(RemoteFailure, match=f"{entry.addrs[0]}/p2p/{entry.peer_id}") as caught:
            await ask(mesh, for_client(mint, mesh), at=place)
        assert caught.value.code == "bad_ticket"


@asynccontextmanager
async def hop(mesh: Any, node: Any) -> AsyncIterator[FrameStream]:
    await mesh.client.connect(node.address, timeout=5)
    stream = await mesh.client.open_stream(node.identity.peer_id, HOP, timeout=5)
    yield stream
    await stream.reset()


@pytest.fixture
def to_middle(an_open: Callable[..., Open]) -> Callable[..., Open]:
    """What the client, as entry, says to the second of three nodes, with a ticket."""

    def made(mesh: Any, signed: SignedTicket, **changes: Any) -> Open:
        _, middle, tail = mesh.nodes
        opened = an_open([mesh.client.address, middle.address, tail.address], 1)
        desk = TokenDesk(CLIENT)
        session_id = changes.get("session_id", opened.session_id)
        granted = desk.grant(session_id, opened.epoch, tail.identity.peer_id)
        ours = {
            "contract": mesh.contract,
            **dict(zip(("grant", "grant_signature"), granted, strict=True)),
            "ticket": signed.payload,
            "ticket_signature": signed.signature,
        }
        return replace(opened, **{**ours, **changes})

    return made


def through_client(mint: Mint, mesh: Any, **changes: Any) -> SignedTicket:
    """A ticket for a chain that the client begins."""
    first = Stage(mesh.client.address.peer_id, LayerRange(0, 2))
    wanted = {"contract": mesh.contract, "max_tokens": 64, "tier": "vip"}
    return mint.ticket((first, *chain_of(mesh)[1:]), **{**wanted, **changes})


HOP_ATTACKS: list[Any] = [
    pytest.param({}, {"ticket_signature": bytes(64)}, "bad_signature", id="forged"),
    pytest.param({}, {"ticket": b"\x91\x01"}, "bad_frame", id="no ticket"),
    pytest.param({}, {"ticket": bytes(MAX_TICKET_BYTES + 1)}, "bad_frame", id="too long"),
    pytest.param({}, {"epoch": 1}, "out_of_turn", id="an epoch that the entry did not open"),
    pytest.param({}, {"grant_signature": bytes(64)}, "bad_signature", id="of no entry"),
    pytest.param({}, {"grant": b"", "grant_signature": b""}, "bad_signature", id="no grant"),
    pytest.param({"max_tokens": 63}, {}, "bad_ticket", id="more positions"),
    pytest.param({"contract": "other"}, {}, "bad_ticket", id="other weights"),
    pytest.param(
        {"issued_at": 0.0, "start_by": 300.0, "expires_at": 3600.0},
        {},
        "ticket_expired",
        id="expired",
    ),
]


@pytest.mark.parametrize(("ticket", "opened", "code"), HOP_ATTACKS)
async def test_a_stage_looks_at_the_ticket_itself(
    open_hub: OpenHub,
    autojump_clock: MockClock,
    mint: Mint,
    to_middle: Callable[..., Open],
    ticket: dict[str, Any],
    opened: dict[str, Any],
    code: str,
) -> None:
    async with open_hub(RANGES) as (mesh, _):
        async with hop(mesh, mesh.nodes[1]) as stream:
            await stream.send(to_middle(mesh, through_client(mint, mesh, **ticket), **opened))
            failed = await stream.receive(5)
        assert isinstance(failed, Fail)
        assert failed.code == code
        assert (await mesh.status(mesh.nodes[1]))["sessions"] == []


async def test_a_ticket_of_another_chain_is_refused_by_a_stage(
    open_hub: OpenHub, autojump_clock: MockClock, mint: Mint, to_middle: Callable[..., Open]
) -> None:
    async with open_hub(RANGES) as (mesh, _), hop(mesh, mesh.nodes[1]) as stream:
        signed = mint.ticket(chain_of(mesh), contract=mesh.contract)
        await stream.send(to_middle(mesh, signed))
        failed = await stream.receive(5)
        assert isinstance(failed, Fail)
        assert failed.code == "bad_ticket"
        assert mesh.client.address.peer_id in failed.text


async def test_a_ticket_that_a_stage_saw_is_not_taken_for_another_session(
    open_hub: OpenHub, autojump_clock: MockClock, mint: Mint, to_middle: Callable[..., Open]
) -> None:
    async with open_hub(RANGES) as (mesh, _):
        signed = through_client(mint, mesh)
        async with hop(mesh, mesh.nodes[1]) as stream:
            await stream.send(to_middle(mesh, signed))
            await trio.sleep(0.1)
            assert len((await mesh.status(mesh.nodes[1]))["sessions"]) == 1
        codes = []
        for changes in ({"session_id": SessionId(b"another session.")}, {}):
            async with hop(mesh, mesh.nodes[1]) as stream:
                await stream.send(to_middle(mesh, signed, **changes))
                codes.append((await stream.receive(5)).code)
        assert codes == ["ticket_used", "ticket_used"]


@pytest.mark.parametrize(
    ("skew", "code"),
    [
        (59.0, ""),
        (-59.0, ""),
        (-61.0, "ticket_expired"),
        (-3600.0, "ticket_expired"),
        (300.0 + 61.0, "ticket_expired"),
        (3600.0, "ticket_expired"),
    ],
)
async def test_a_stage_whose_clock_is_more_than_a_minute_off_is_told_apart(
    open_hub: OpenHub,
    autojump_clock: MockClock,
    to_middle: Callable[..., Open],
    skew: float,
    code: str,
) -> None:
    """`skew` is how far the stage's clock is ahead of musivum's."""
    async with open_hub(RANGES) as (mesh, _), hop(mesh, mesh.nodes[1]) as stream:
        # Until then musivum's tickets are older than the node by its clock.
        await trio.sleep(max(0.0, skew) if code == "" else 0.0)
        mint = Mint(MUSIVUM, lambda: wall_clock() - skew)
        await stream.send(to_middle(mesh, through_client(mint, mesh)))
        with trio.move_on_after(0.5):
            failed = await stream.receive(5)
            assert isinstance(failed, Fail)
            assert failed.code == code
            return
        assert code == ""
        assert len((await mesh.status(mesh.nodes[1]))["sessions"]) == 1


async def test_a_ticket_is_for_one_answer_of_a_conversation(
    open_hub: OpenHub, autojump_clock: MockClock, mint: Mint
) -> None:
    async with open_hub(RANGES) as (mesh, _):
        signed = for_client(mint, mesh)
        await ask(mesh, signed, session=NAME)
        with pytest.raises(RemoteFailure) as caught:
            await ask(mesh, signed, session=NAME)
        assert caught.value.code == "ticket_used"
        again = await ask(mesh, for_client(mint, mesh), session=NAME)
        assert again.begun.cached_tokens > 0, "the conversation is kept all the same"


async def test_a_lost_past_costs_a_prefill_and_not_the_ticket(
    open_hub: OpenHub, autojump_clock: MockClock, mint: Mint
) -> None:
    async with open_hub(RANGES) as (mesh, _):
        await ask(mesh, for_client(mint, mesh), session=NAME)
        # Whoever waits for its room gets it: the middle lets the conversation go.
        async with hop(mesh, mesh.nodes[1]) as one, hop(mesh, mesh.nodes[1]) as two:
            await trio.sleep(0.1)
            for number, stream in enumerate((one, two)):
                first = Stage(mesh.client.address.peer_id, LayerRange(0, 2))
                await stream.send(
                    Open(
                        session_id=SessionId(bytes([number]) * 16),
                        epoch=0,
                        model=ModelId("toy"),
                        contract=mesh.contract,
                        dtype="f32",
                        chain=(first, *chain_of(mesh)[1:]),
                        place=1,
                        capacity=256,
                        prompt=b"",
                        sampling=Sampling().encode(),
                        entry_addrs=(),
                        entry_url="",
                        grant=b"",
                        grant_signature=b"",
                    )
                )
            await trio.sleep(0.5)
        await trio.sleep(0.5)
        again = await ask(mesh, for_client(mint, mesh), session=NAME)
        assert (again.begun.cached_tokens, again.begun.tier) == (0, "standard")
        assert again.done.reason == "length"
