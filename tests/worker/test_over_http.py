"""Whole chains whose hops go over HTTP: the same tokens, the same ends, the same blame."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import httpx
import pytest
import trio
from fastapi import FastAPI
from trio.testing import MockClock

from tessella.core.addresses import PeerAddress
from tessella.core.errors import PeerUnreachable, RemoteFailure, TessellaError
from tessella.core.messages import Delta, Message, Stage
from tessella.web.server import serve_http
from tessella.worker.directory import CONNECT_BESIDE_HTTP
from tessella.worker.http_hops.dialled import READ_SECONDS
from tessella.worker.http_hops.dialling import Rules
from tessella.worker.tickets import Tickets
from tests.worker.http_chain import MUSIVUM, Chain, InProcess, a_chain
from tests.worker.http_net import SILENCE, wall
from tests.worker.mint import Mint

PROMPT = "a prompt that is longer than one chunk of eight positions"
LAYERS = [2, 2, 2]
LIBP2P = [False, False, False]


REFERENCES: dict[int, list[int]] = {}


async def reference(weights: Path, layers: list[int]) -> list[int]:
    """The tokens of the same chain over libp2p, computed once."""
    stages = len(layers)
    if stages not in REFERENCES:
        async with a_chain(weights, layers, InProcess(), over_http=LIBP2P[:stages]) as chain:
            REFERENCES[stages] = (await chain.ask(PROMPT, max_tokens=6)).ids
    return REFERENCES[stages]


def paths(web: InProcess) -> set[tuple[str, str]]:
    """Which host was asked for which route."""
    return {
        (request.headers["host"], "/".join(request.url.path.split("/")[:3]))
        for request in web.net.seen
    }


@pytest.mark.parametrize("over_http", [LIBP2P, [False, True, True]])
async def test_a_ticket_goes_down_the_chain_and_is_looked_at_by_every_stage(
    over_http: list[bool], toy_weights: Path, autojump_clock: MockClock
) -> None:
    async with a_chain(toy_weights, LAYERS, InProcess(), over_http=over_http) as chain:
        stages = [Stage(row.peer_id, row.layers) for row in chain.rows]
        empty = [Tickets([MUSIVUM.peer_id], wall) for _ in range(2)]
        ticket = Mint(MUSIVUM, wall).ticket(stages, contract=chain.rows[0].contract, tier="vip")
        answer = await chain.ask(PROMPT, max_tokens=6, ticket=ticket)
        assert answer.begun is not None
        assert answer.begun.tier == "vip"
        assert [len(link.loaded.hops.around.tickets) for link in chain.links] == [1, 1, 1]
        for link, tickets in zip(chain.links, empty, strict=False):
            forgetful = replace(link.loaded.hops.around, tickets=tickets)
            entry = replace(link.loaded.entry, around=forgetful)
            hops = replace(link.loaded.hops, around=forgetful)
            link.loaded = link.state.loaded = replace(link.loaded, entry=entry, hops=hops)
        with pytest.raises(RemoteFailure) as caught:
            await chain.ask(PROMPT, max_tokens=6, ticket=ticket)
        assert caught.value.code == "ticket_used"


@pytest.mark.parametrize(
    ("over_http", "used"),
    [
        (LIBP2P, set()),
        ([False, True, False], {("n1.test", "/v1/forward")}),
        ([False, False, True], {("n2.test", "/v1/forward")}),
        ([False, True, True], {("n1.test", "/v1/forward"), ("n2.test", "/v1/forward")}),
    ],
)
async def test_a_chain_may_mix_hops_and_gives_the_same_tokens(
    over_http: list[bool],
    used: set[tuple[str, str]],
    toy_weights: Path,
    autojump_clock: MockClock,
) -> None:
    web = InProcess()
    async with a_chain(toy_weights, LAYERS, web, over_http=over_http) as chain:
        answer = await chain.ask(PROMPT, max_tokens=6)
        assert answer.done is not None
        assert answer.ids == await reference(toy_weights, LAYERS)
        # A tail that was dialled, or that could dial the entry, has no need of the URL.
        assert paths(web) == used
        assert chain.blamed == []
        await trio.sleep(3)
        assert [link.sessions for link in chain.links] == [[], [], []]
        assert [len(link.node.hops) for link in chain.links] == [0, 0, 0]


async def test_tokens_come_over_http_where_the_tail_cannot_dial_the_entry(
    toy_weights: Path, autojump_clock: MockClock
) -> None:
    web = InProcess()
    async with a_chain(toy_weights, [3, 3], web, over_http=[False, True]) as chain:
        refuse_dials(chain)
        answer = await chain.ask(PROMPT, max_tokens=6)
        assert answer.ids == await reference(toy_weights, [3, 3])
        assert paths(web) == {("n1.test", "/v1/forward"), ("n0.test", "/v1/token_stream")}


async def test_tokens_come_up_the_chain_where_nothing_leads_to_the_entry(
    toy_weights: Path, autojump_clock: MockClock
) -> None:
    web = InProcess()
    async with a_chain(toy_weights, [3, 3], web, over_http=[False, True]) as chain:
        refuse_dials(chain)
        del web.net.apps["n0.test"]
        answer = await chain.ask(PROMPT, max_tokens=6)
        assert answer.ids == await reference(toy_weights, [3, 3])
        assert ("n1.test", "/v1/forward") in paths(web)


def refuse_dials(chain: Chain) -> None:
    """No two nodes can be connected by libp2p, which shows at once."""

    async def unreachable(peer: PeerAddress, *, timeout: float) -> None:
        raise PeerUnreachable(f"no way to {peer.peer_id}")

    for link in chain.links:
        link.host.connect = unreachable  # type: ignore[method-assign]


async def test_a_second_answer_dials_nobody_in_vain(
    toy_weights: Path, autojump_clock: MockClock
) -> None:
    web = InProcess()
    async with a_chain(toy_weights, [3, 3], web, over_http=[False, True]) as chain:
        refuse_dials(chain)
        first = await chain.ask(PROMPT, max_tokens=3)
        began = trio.current_time()
        second = await chain.ask(PROMPT, max_tokens=3)
        assert second.ids == first.ids
        assert trio.current_time() - began < 1.0


async def test_who_leaves_frees_every_stage_within_a_second(
    toy_weights: Path, autojump_clock: MockClock
) -> None:
    web = InProcess()
    async with a_chain(toy_weights, LAYERS, web, over_http=[False, True, True]) as chain:
        with trio.CancelScope() as scope:

            async def leave(message: Message) -> None:
                if isinstance(message, Delta):
                    assert all(link.sessions for link in chain.links)
                    scope.cancel()

            await chain.ask(PROMPT, leave, max_tokens=50)
        assert scope.cancelled_caught
        await trio.sleep(1.0)
        assert [link.sessions for link in chain.links] == [[], [], []]
        assert chain.blamed == []


async def test_an_entry_that_vanishes_frees_every_stage(
    toy_weights: Path, autojump_clock: MockClock
) -> None:
    web = InProcess()

    async def lose(request: httpx.Request) -> None:
        raise httpx.ConnectError("gone")

    async with a_chain(toy_weights, [3, 3], web, over_http=[False, True]) as chain:
        refuse_dials(chain)
        freed: list[bool] = []

        async def vanish(message: Message) -> None:
            if isinstance(message, Delta) and web.net.before is None:
                assert chain.links[1].sessions
                web.net.before = lose
                with trio.CancelScope(shield=True):
                    await trio.sleep(READ_SECONDS + SILENCE + 2.0)
                freed.append(not chain.links[1].sessions)

        with pytest.raises(TessellaError):
            await chain.ask(PROMPT, vanish, max_tokens=50)
        assert freed == [True]


async def test_a_dial_that_nobody_answers_is_not_waited_for_long(
    toy_weights: Path, autojump_clock: MockClock
) -> None:
    web = InProcess()
    async with a_chain(toy_weights, [3, 3], web, over_http=[False, True]) as chain:
        ids = [row.peer_id for row in chain.rows]
        chain.net.silence(*ids)
        began = trio.current_time()
        answer = await chain.ask(PROMPT, max_tokens=6)
        assert answer.ids == await reference(toy_weights, [3, 3])
        assert trio.current_time() - began < 2 * CONNECT_BESIDE_HTTP + 1.0


async def test_a_stage_that_is_gone_is_blamed_and_the_reason_is_told(
    toy_weights: Path, autojump_clock: MockClock
) -> None:
    web = InProcess()
    async with a_chain(toy_weights, LAYERS, web, over_http=[False, True, True]) as chain:

        async def lose(message: Message) -> None:
            if isinstance(message, Delta):
                web.net.apps.pop("n2.test", None)

        began = trio.current_time()
        with pytest.raises(TessellaError):
            await chain.ask(PROMPT, lose, max_tokens=50)
        assert trio.current_time() - began < 10.0
        tail = chain.rows[2].peer_id
        assert (tail, "peer_unreachable") in chain.blamed


async def test_a_slow_stage_behind_http_is_not_a_silent_one(
    toy_weights: Path, autojump_clock: MockClock
) -> None:
    web = InProcess()
    async with a_chain(toy_weights, [3, 3], web, over_http=[False, True]) as chain:
        chain.links[1].compute.pace = 6.0
        answer = await chain.ask(PROMPT, max_tokens=3)
        assert len(answer.ids) == 3
        assert chain.blamed == []


@dataclass
class Loopback:
    """HTTP over real sockets of this machine."""

    nursery: trio.Nursery

    async def serve(self, name: str, app: FastAPI) -> str:
        (url,) = await self.nursery.start(partial(serve_http, app, ["127.0.0.1:0"]))
        return str(url)

    def rules(self) -> Rules:
        return Rules(allow_private=True, clock=time.time)


@asynccontextmanager
async def loopback() -> AsyncIterator[Loopback]:
    async with trio.open_nursery() as nursery:
        yield Loopback(nursery)
        nursery.cancel_scope.cancel()


@pytest.mark.mesh
async def test_over_real_sockets_the_tokens_are_the_same(toy_weights: Path) -> None:
    expected = await reference(toy_weights, [3, 3])
    async with (
        loopback() as web,
        a_chain(toy_weights, [3, 3], web, over_http=[False, True]) as chain,
    ):
        refuse_dials(chain)
        with trio.fail_after(30):
            for _ in range(2):
                assert (await chain.ask(PROMPT, max_tokens=6)).ids == expected
