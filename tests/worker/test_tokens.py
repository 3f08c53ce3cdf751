from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from p2p.pool import IDLE_SECONDS, StreamPool
from p2p.streams import FrameStream
from p2p.testing import MemoryHost, MemoryNetwork
from tessella.core.errors import OutOfTurn, PeerGone, RemoteFailure
from tessella.core.identity import PURPOSE_TOKEN_GRANT, Identity
from tessella.core.ids import ModelId, PeerId, SessionId
from tessella.core.messages import TOKENS, AskStatus, Fail, Open, Token, TokenGrant, TokenOpen, seal
from tessella.worker.directory import Directory
from tessella.worker.tokens import GRANT_SECONDS, MAX_WAITING_TOKENS, Inbox, TokenDesk, TokenStream

ENTRY = Identity(b"e" * 32)
TAIL = Identity(b"t" * 32)
SESSION = SessionId(b"session of tests")


def token(position: int, reason: str = "") -> Token:
    return Token(SESSION, 0, position, 7, "x", reason, 0.0, ())


@dataclass
class Scene:
    net: MemoryNetwork
    entry: MemoryHost
    tail: MemoryHost
    desk: TokenDesk
    directory: Directory
    an_open: Callable[..., Open]

    def opened(self) -> Open:
        """What the tail was told, with a grant of its own."""
        grant, signature = self.desk.grant(SESSION, 0, TAIL.peer_id)
        peers = [self.entry.address, self.tail.address]
        return self.an_open(peers, 1, grant=grant, grant_signature=signature)

    async def stream(self) -> FrameStream:
        return await self.directory.stream_at(self.entry.address, TOKENS)


@pytest.fixture
def scene(an_open: Callable[..., Open]) -> Callable[..., Any]:
    """An entry that waits for tokens, and a tail."""

    @asynccontextmanager
    async def opened() -> AsyncIterator[Scene]:
        net = MemoryNetwork(latency=0.001)
        async with net.host(ENTRY) as entry, net.host(TAIL) as tail:
            desk = TokenDesk(ENTRY)
            entry.serve(TOKENS, desk.serve, streams=9, per_peer=9)
            directory = Directory(tail, StreamPool(tail), ModelId("toy"), _nobody)
            yield Scene(net, entry, tail, desk, directory, an_open)

    return opened


async def _nobody(model: str) -> list[Any]:
    return []


async def failure(stream: FrameStream) -> Fail:
    answer = await stream.receive(5)
    assert isinstance(answer, Fail)
    return answer


async def test_tokens_arrive_in_order_and_the_stream_serves_the_next_session(
    scene: Callable[..., Any], autojump_clock: MockClock
) -> None:
    async with scene() as s:
        used = []
        for _ in range(2):
            with s.desk.expect(SESSION, 0, TAIL.peer_id) as inbox:
                stream = await TokenStream.open(s.directory, s.opened())
                used.append(stream._stream)
                with trio.move_on_after(0.1):
                    await stream.watch()
                for position in range(2, 5):
                    await stream.say(token(position, "length" if position == 4 else ""))
                assert [(await inbox.next()).position for _ in range(3)] == [2, 3, 4]
                stream.end()
        assert used[0] is used[1]


@pytest.mark.parametrize(
    "tokens",
    [
        [token(2), token(2)],
        [token(3), token(2)],
        [replace(token(2), session_id=SessionId(b"x" * 16))],
        [replace(token(2), epoch=1)],
        [token(2, "stop"), token(3)],
        [AskStatus()],
        [token(at) for at in range(MAX_WAITING_TOKENS + 1)],
    ],
    ids=["twice", "backwards", "foreign", "epoch", "after the last", "noise", "too many"],
)
async def test_a_token_that_may_not_come_ends_the_stream(
    scene: Callable[..., Any], autojump_clock: MockClock, tokens: list[Any]
) -> None:
    async with scene() as s, _expected(s):
        opened = s.opened()
        stream = await s.stream()
        await stream.send(TokenOpen(opened.grant, opened.grant_signature))
        for one in tokens:
            await stream.send(one)
        assert (await failure(stream)).code == "out_of_turn"


@asynccontextmanager
async def _expected(s: Scene) -> AsyncIterator[Inbox]:
    with s.desk.expect(SESSION, 0, TAIL.peer_id) as inbox:
        yield inbox


async def test_a_grant_is_good_once(scene: Callable[..., Any], autojump_clock: MockClock) -> None:
    async with scene() as s, _expected(s):
        opened = s.opened()
        first = await TokenStream.open(s.directory, opened)
        await first.say(token(2))
        again = await TokenStream.open(s.directory, opened)
        with pytest.raises(RemoteFailure, match="used, expired or no longer wanted"):
            await again.watch()


@pytest.mark.parametrize("moment", ["before", "after"])
async def test_a_grant_is_good_only_while_the_answer_is_wanted(
    scene: Callable[..., Any], autojump_clock: MockClock, moment: str
) -> None:
    async with scene() as s:
        opened = s.opened()
        if moment == "after":
            async with _expected(s):
                pass
        stream = await TokenStream.open(s.directory, opened)
        with pytest.raises(RemoteFailure, match="no longer wanted"):
            await stream.watch()


async def test_a_grant_expires(
    scene: Callable[..., Any], autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with scene() as s, _expected(s):
        opened = s.opened()
        late = time.time() + GRANT_SECONDS + 1.0
        monkeypatch.setattr(time, "time", lambda: late)
        with pytest.raises(RemoteFailure, match="expired"):
            await (await TokenStream.open(s.directory, opened)).watch()


@pytest.mark.parametrize(
    ("signer", "tail"), [(ENTRY, "another"), (TAIL, TAIL.peer_id), (Identity(b"x" * 32), "another")]
)
async def test_a_grant_of_another_or_by_another_is_refused(
    scene: Callable[..., Any], autojump_clock: MockClock, signer: Identity, tail: str
) -> None:
    async with scene() as s, _expected(s):
        grant = seal(TokenGrant(SESSION, 0, PeerId(tail), time.time() + 60.0))
        stream = await s.stream()
        await stream.send(TokenOpen(grant, signer.sign(PURPOSE_TOKEN_GRANT, grant)))
        assert (await failure(stream)).code == "bad_signature"


async def test_an_answer_that_is_given_up_is_told_to_its_tail_at_once(
    scene: Callable[..., Any], autojump_clock: MockClock
) -> None:
    async with scene() as s:
        async with _expected(s):
            stream = await TokenStream.open(s.directory, s.opened())
            await stream.say(token(2))
            await trio.sleep(0.1)
        with trio.fail_after(0.1), pytest.raises(RemoteFailure, match="no longer wanted"):
            await stream.watch()


async def test_two_epochs_of_one_session_are_two_answers(
    scene: Callable[..., Any], autojump_clock: MockClock
) -> None:
    async with scene() as s, _expected(s) as first:
        with s.desk.expect(SESSION, 1, TAIL.peer_id) as second:
            grant, signature = s.desk.grant(SESSION, 1, TAIL.peer_id)
            stream = await s.stream()
            await stream.send(TokenOpen(grant, signature))
            await stream.send(replace(token(2), epoch=1))
            assert (await second.next()).epoch == 1
            assert first.granted


async def test_a_stream_between_sessions_may_end_or_be_left(
    scene: Callable[..., Any], autojump_clock: MockClock
) -> None:
    async with scene() as s:
        for leave in ("reset", "aclose", "idle"):
            stream = await s.stream()
            if leave != "idle":
                await getattr(stream, leave)()
            else:
                await trio.sleep(2 * IDLE_SECONDS + 1.0)
                with pytest.raises(PeerGone):
                    await stream.receive(1)
        assert s.entry.router._routes[TOKENS].open == {}


async def test_a_stream_that_broke_as_it_was_opened_is_given_up(
    scene: Callable[..., Any], autojump_clock: MockClock
) -> None:
    async with scene() as s:
        stream = await s.stream()
        s.directory.give(stream)

        async def cut_first(message: object, timeout: float = 30.0) -> None:
            s.net.cut(ENTRY.peer_id, TAIL.peer_id)
            await type(stream).send(stream, message, timeout)

        stream.send = cut_first
        with pytest.raises(PeerGone):
            await TokenStream.open(s.directory, s.opened())
        with pytest.raises(PeerGone, match="gave up"):
            await stream.receive()


async def test_an_inbox_waits_for_as_long_as_it_takes(autojump_clock: MockClock) -> None:
    inbox = Inbox(SESSION, 0, TAIL.peer_id)
    async with trio.open_nursery() as nursery:
        found: list[Token] = []

        async def wait() -> None:
            found.append(await inbox.next())

        nursery.start_soon(wait)
        await trio.sleep(10_000.0)
        await inbox.deliver(token(0))
    assert found == [token(0)]
    with pytest.raises(OutOfTurn, match="position 0 after 0"):
        await inbox.deliver(token(0))
