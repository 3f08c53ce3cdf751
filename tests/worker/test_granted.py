"""Tickets that an entry asks for, in the name of nobody, and the conversations that they keep."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from tessella.core.errors import UnknownWorker
from tessella.core.layers import LayerRange
from tessella.core.messages import Stage
from tessella.worker.grants import AWAY_SECONDS, GRANT_TIMEOUT
from tessella.worker.tickets import SignedTicket
from tests.worker.conftest import wall_clock
from tests.worker.mint import Mint
from tests.worker.ticketed import MUSIVUM, NAME, PROMPT, RANGES, STRANGER, ask, chain_of, for_client

OpenHub = Callable[..., Any]


@pytest.fixture
def mint() -> Mint:
    return Mint(MUSIVUM, wall_clock)


async def test_an_entry_asks_for_whoever_brings_none(
    open_hub: OpenHub, autojump_clock: MockClock, mint: Mint
) -> None:
    async with open_hub(RANGES) as (mesh, hub):
        mint.serve_on(
            hub.host,
            lambda caller, asked: mint.ticket(
                chain_of(mesh), contract=mesh.contract, max_tokens=asked.max_tokens, tier="leech"
            ),
        )
        answer = await ask(mesh)
        assert answer.begun.tier == "leech"
        (asked,) = mint.asked
        assert (asked.anonymous, asked.after, asked.model) == (True, b"", "toy")
        assert asked.max_tokens == answer.begun.prompt_tokens + 6


async def test_a_request_that_another_node_took_in_is_paid_too(
    open_hub: OpenHub, autojump_clock: MockClock, mint: Mint
) -> None:
    async with open_hub(RANGES) as (mesh, hub):
        mint.serve_on(
            hub.host, lambda *_: mint.ticket(chain_of(mesh), contract=mesh.contract, tier="leech")
        )
        assert (await ask(mesh, at=2)).begun.tier == "leech"


async def test_without_an_answer_it_goes_on_unpaid_and_does_not_ask_for_a_while(
    open_hub: OpenHub, autojump_clock: MockClock, mint: Mint
) -> None:
    async with open_hub(RANGES) as (mesh, hub):
        mint.delay = 3600.0
        mint.serve_on(hub.host, lambda *_: mint.ticket(chain_of(mesh), contract=mesh.contract))
        started = trio.current_time()
        answer = await ask(mesh)
        took = trio.current_time() - started
        assert answer.begun.tier == ""
        assert GRANT_TIMEOUT <= took < GRANT_TIMEOUT + 0.5
        assert (await ask(mesh)).done.total_seconds < 0.5
        assert len(mint.asked) == 1
        mint.delay = 0.0
        await trio.sleep(AWAY_SECONDS)
        assert (await ask(mesh)).begun.tier == "standard"


async def test_a_musivum_that_refuses_is_asked_the_next_time(
    open_hub: OpenHub, autojump_clock: MockClock, mint: Mint
) -> None:
    async with open_hub(RANGES) as (mesh, hub):
        mint.refusal = UnknownWorker("nobody of that name")
        mint.serve_on(hub.host, lambda *_: mint.ticket(chain_of(mesh), contract=mesh.contract))
        assert (await ask(mesh)).begun.tier == ""
        mint.refusal = None
        assert (await ask(mesh)).begun.tier == "standard"


@pytest.mark.parametrize(
    "changes",
    [
        {"contract": "other"},
        {"max_tokens": 3},
        {"requester": STRANGER.peer_id},
        {"issued_at": 0.0, "start_by": 1.0, "expires_at": 2.0},
    ],
)
async def test_a_ticket_of_no_use_spoils_nothing(
    open_hub: OpenHub, autojump_clock: MockClock, mint: Mint, changes: dict[str, Any]
) -> None:
    async with open_hub(RANGES) as (mesh, hub):
        mint.serve_on(
            hub.host,
            lambda *_: mint.ticket(chain_of(mesh), **{"contract": mesh.contract, **changes}),
        )
        answer = await ask(mesh)
        assert (answer.begun.tier, answer.done.reason) == ("", "length")


async def test_a_chain_that_begins_elsewhere_is_not_used(
    open_hub: OpenHub, autojump_clock: MockClock, mint: Mint
) -> None:
    async with open_hub(RANGES) as (mesh, hub):
        chain = (Stage(STRANGER.peer_id, LayerRange(0, 2)), *chain_of(mesh)[1:])
        mint.serve_on(hub.host, lambda *_: mint.ticket(chain, contract=mesh.contract))
        assert (await ask(mesh)).begun.tier == ""


async def test_a_conversation_wants_its_chain_again_and_goes_on(
    open_hub: OpenHub, autojump_clock: MockClock, mint: Mint
) -> None:
    async with open_hub(RANGES) as (mesh, hub):
        mint.serve_on(hub.host, lambda *_: mint.ticket(chain_of(mesh), contract=mesh.contract))
        first = await ask(mesh, session=NAME)
        second = await ask(mesh, session=NAME, prompt=PROMPT + first.text + " and more")
        assert second.begun.cached_tokens >= first.begun.prompt_tokens
        assert [asked.after for asked in mint.asked] == [b"", mint.given[0].ticket.request_id]


async def test_a_conversation_over_another_chain_begins_anew(
    open_hub: OpenHub, autojump_clock: MockClock, mint: Mint
) -> None:
    async with open_hub([*RANGES, (4, 6)]) as (mesh, hub):
        first, second, *tails = (node.identity.peer_id for node in mesh.nodes)

        def draw(*_: object) -> SignedTicket:
            tail = tails[len(mint.given) % 2]
            peers = zip((first, second, tail), RANGES, strict=True)
            chain = [Stage(peer, LayerRange(*layers)) for peer, layers in peers]
            return mint.ticket(chain, contract=mesh.contract)

        mint.serve_on(hub.host, draw)
        before = await ask(mesh, session=NAME)
        after = await ask(mesh, session=NAME)
        assert before.begun.chain != after.begun.chain
        assert (after.begun.cached_tokens, after.ids) == (0, before.ids)


async def test_a_conversation_that_was_unpaid_begins_anew_with_a_ticket(
    open_hub: OpenHub, autojump_clock: MockClock, mint: Mint
) -> None:
    async with open_hub(RANGES) as (mesh, _):
        await ask(mesh, session=NAME)
        paid = await ask(mesh, for_client(mint, mesh), session=NAME)
        assert (paid.begun.cached_tokens, paid.begun.tier) == (0, "standard")
        unpaid = await ask(mesh, session=NAME)
        assert unpaid.begun.cached_tokens > 0
