from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from p2p.pool import StreamPool
from p2p.streams import FrameStream
from p2p.testing import MemoryHost, MemoryNetwork
from tessella.core.addresses import PeerAddress
from tessella.core.errors import PeerGone, RemoteFailure
from tessella.core.identity import Identity
from tessella.core.ids import ModelId, SessionId
from tessella.core.messages import TOKENS, Open, Token
from tessella.core.sampling import Sampling
from tessella.core.session import Lease
from tessella.core.shapes import DType
from tessella.worker.directory import Directory
from tessella.worker.terms import Terms
from tessella.worker.tokens import Inbox, TokenDesk
from tessella.worker.upstream import Upstream
from tessella.worker.way_back import PATIENCE_SECONDS, WayBack

SESSION = SessionId(b"session of tests")
ENTRY, TAIL = Identity(b"e" * 32), Identity(b"t" * 32)


def token(position: int, reason: str = "") -> Token:
    return Token(SESSION, 0, position, 7, "x", reason, 0.0, ())


@dataclass
class Scene:
    net: MemoryNetwork
    entry: MemoryHost
    tail: MemoryHost
    before: FrameStream
    inbox: Inbox
    way: WayBack
    nursery: trio.Nursery

    async def up(self) -> Token:
        """The next token that comes up the chain."""
        found = await self.before.receive(1)
        assert isinstance(found, Token)
        return found


@pytest.fixture
def scene(an_open: Callable[..., Open], neighbourhood: Callable[..., Any]) -> Callable[..., Any]:
    """An entry that waits, and the way back to it from its tail. `reachable`: by dialling."""

    @asynccontextmanager
    async def opened(reachable: bool = True) -> AsyncIterator[Scene]:
        net = MemoryNetwork(latency=0.001)
        async with net.host(ENTRY) as entry, net.host(TAIL) as tail:
            desk = TokenDesk(ENTRY)
            entry.serve(TOKENS, desk.serve, streams=9, per_peer=9)
            grant, signature = desk.grant(SESSION, 0, TAIL.peer_id)
            addrs = entry.address.addrs if reachable else ("/ip4/10.9.9.9/tcp/1",)
            peers = [PeerAddress(ENTRY.peer_id, addrs), tail.address]
            opened = an_open(peers, 1, grant=grant, grant_signature=signature)
            lease = Lease(SESSION, 0, 64)
            terms = Terms(opened, lease, DType.F32, [1, 2], Sampling(max_tokens=4))
            directory = Directory(tail, StreamPool(tail), ModelId("toy"), _nobody)
            before, ours = net.stream_pair()
            upstream = Upstream(ours, terms, 64, neighbourhood(directory, []))
            way = WayBack(terms, directory, upstream)
            with desk.expect(SESSION, 0, TAIL.peer_id) as inbox:
                async with trio.open_nursery() as nursery:
                    yield Scene(net, entry, tail, before, inbox, way, nursery)
                    nursery.cancel_scope.cancel()

    return opened


async def _nobody(model: str) -> list[Any]:
    return []


async def test_tokens_go_straight_to_the_entry(
    scene: Callable[..., Any], autojump_clock: MockClock
) -> None:
    async with scene() as s:
        s.nursery.start_soon(s.way.run)
        await s.way.say(token(2))
        assert await s.inbox.next() == token(2)


async def test_an_entry_that_cannot_be_dialled_is_told_up_the_chain(
    scene: Callable[..., Any], autojump_clock: MockClock
) -> None:
    async with scene(reachable=False) as s:
        s.nursery.start_soon(s.way.run)
        await s.way.say(token(2))
        assert await s.up() == token(2)
        await s.way.close(True)


async def test_the_first_token_does_not_wait_for_a_dial_without_end(
    scene: Callable[..., Any], autojump_clock: MockClock
) -> None:
    async with scene() as s:
        s.net.silence(ENTRY.peer_id, TAIL.peer_id)
        s.nursery.start_soon(s.way.run)
        started = trio.current_time()
        await s.way.say(token(2))
        assert trio.current_time() - started == pytest.approx(PATIENCE_SECONDS, abs=0.01)
        assert await s.up() == token(2)
        # It was decided: what the dial would have come to does not matter any more.
        s.net.heal(ENTRY.peer_id, TAIL.peer_id)
        await trio.sleep(10.0)
        await s.way.say(token(3))
        assert await s.up() == token(3)


@pytest.mark.parametrize("cut", [True, False], ids=["gone", "given up"])
async def test_an_entry_that_leaves_ends_the_session(
    scene: Callable[..., Any], autojump_clock: MockClock, cut: bool
) -> None:
    async with scene() as s:

        async def leave() -> None:
            await s.way.say(token(2))
            await trio.sleep(0.1)
            if cut:
                s.net.cut(ENTRY.peer_id, TAIL.peer_id)
            else:
                s.inbox.closed.set()

        s.nursery.start_soon(leave)
        with trio.fail_after(0.2), pytest.raises((PeerGone, RemoteFailure)):
            await s.way.run()


@pytest.mark.parametrize("complete", [True, False])
async def test_the_stream_is_kept_only_after_a_complete_answer(
    scene: Callable[..., Any], autojump_clock: MockClock, complete: bool
) -> None:
    async with scene() as s:
        with trio.move_on_after(0.1):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(s.way.run)
                await s.way.say(token(2, "stop"))
                await trio.sleep_forever()
        await s.way.close(complete)
        await trio.sleep(0.1)
        assert bool(s.entry.router._routes[TOKENS].open) == complete
