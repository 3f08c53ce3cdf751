"""Who may tell a node what to hold, and when."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from p2p.testing import MemoryHost, MemoryNetwork
from tessella.core.call_rules import NONCE_SECONDS
from tessella.core.errors import CallReplayed, PeerGone, Refused, TooManyRequests
from tessella.core.identity import PURPOSE_TOKEN_GRANT, Identity
from tessella.core.ids import PeerId
from tessella.core.layers import LayerRange
from tessella.core.messages import (
    ASSIGN,
    Accepted,
    AskStatus,
    Assign,
    Call,
    Fail,
    Message,
    Ready,
    Signed,
    seal,
)
from tessella.worker.orders import (
    MAX_NONCES,
    ORDER_STREAMS,
    ORDER_STREAMS_PER_PEER,
    ORDER_TIMEOUT,
    Nonces,
    Orders,
)
from tessella.worker.testing import Hub

EPOCH = 1_800_000_000.0
MUSIVUM, OTHER = Identity(b"m" * 32), Identity(b"o" * 32)
LAYERS = LayerRange(2, 4)


def clock() -> float:
    return EPOCH + trio.current_time()


@dataclass
class Scene:
    node: MemoryHost
    hub: Hub
    stranger: Hub
    wanted: list[LayerRange] = field(default_factory=list)
    insists: bool = False

    def want(self, layers: LayerRange) -> None:
        if self.insists:
            raise Refused("it insists")
        self.wanted.append(layers)

    def call(self, **changes: Any) -> Call:
        return replace(self.hub.a_call(Assign(LAYERS)), **changes)


@asynccontextmanager
async def scene() -> AsyncIterator[Scene]:
    """A node with one musivum of its own, that musivum, and a second one that is not its own."""
    net = MemoryNetwork(latency=0.001)
    async with net.host(b"n" * 32) as node, net.host(MUSIVUM) as ours, net.host(OTHER) as other:
        found = Scene(node, Hub(ours, MUSIVUM, clock), Hub(other, OTHER, clock))
        orders = Orders([MUSIVUM.peer_id], found.want, clock)
        node.serve(ASSIGN, orders.serve, streams=ORDER_STREAMS, per_peer=ORDER_STREAMS_PER_PEER)
        yield found


async def test_an_order_of_the_own_musivum_is_taken(autojump_clock: MockClock) -> None:
    async with scene() as s:
        assert await s.hub.push(s.node.address, LAYERS) == Accepted()
        assert await s.hub.push(s.node.address, LayerRange(0, 9)) == Accepted()
        assert s.wanted == [LAYERS, LayerRange(0, 9)]


async def test_what_the_node_refuses_is_told(autojump_clock: MockClock) -> None:
    async with scene() as s:
        s.insists = True
        failed = await s.hub.push(s.node.address, LAYERS)
        assert failed == Fail("refused", "it insists", False)


def _signed_by(identity: Identity, call: Call) -> Signed:
    return Signed(seal(call), identity.sign(b"tracker", seal(call)))


def _for_another_purpose(s: Scene) -> Signed:
    payload = seal(s.call())
    return Signed(payload, MUSIVUM.sign(PURPOSE_TOKEN_GRANT, payload))


def _altered(s: Scene) -> Signed:
    return replace(
        s.hub.sign(s.call()), payload=seal(s.call(message=seal(Assign(LayerRange(0, 1)))))
    )


BAD: dict[str, tuple[Callable[[Scene], Message], str]] = {
    "of another's key": (lambda s: _signed_by(OTHER, s.call()), "bad_signature"),
    "for another purpose": (_for_another_purpose, "bad_signature"),
    "altered": (_altered, "bad_signature"),
    "in another's name": (lambda s: s.hub.sign(s.call(peer_id=OTHER.peer_id)), "not_authorized"),
    "too late": (lambda s: s.hub.sign(s.call(created=clock() - 61.0)), "clock_skew"),
    "from the future": (lambda s: s.hub.sign(s.call(created=clock() + 31.0)), "clock_skew"),
    "at no time": (lambda s: s.hub.sign(s.call(created=float("nan"))), "bad_frame"),
    "with a short nonce": (lambda s: s.hub.sign(s.call(nonce=b"1234567")), "bad_frame"),
    "with a long nonce": (lambda s: s.hub.sign(s.call(nonce=bytes(65))), "bad_frame"),
    "of something else": (lambda s: s.hub.sign(s.call(message=seal(Ready(LAYERS)))), "out_of_turn"),
    "that is no call": (lambda s: s.hub.sign(Assign(LAYERS)), "bad_frame"),  # type: ignore[arg-type]
    "without a signature": (lambda _: Assign(LAYERS), "out_of_turn"),
    "no order": (lambda _: AskStatus(), "out_of_turn"),
}


@pytest.mark.parametrize(("made", "code"), BAD.values(), ids=BAD)
async def test_an_order_is_refused(
    autojump_clock: MockClock, made: Callable[[Scene], Message], code: str
) -> None:
    async with scene() as s:
        await trio.sleep(100.0)
        failed = await s.hub.order(s.node.address, made(s))
        assert isinstance(failed, Fail)
        assert (failed.code, s.wanted) == (code, [])
        assert await s.hub.push(s.node.address, LAYERS) == Accepted(), "and costs the next nothing"


@pytest.mark.parametrize("ahead", [-59.0, 29.0])
async def test_clocks_may_differ_by_as_much(autojump_clock: MockClock, ahead: float) -> None:
    async with scene() as s:
        signed = s.hub.sign(s.call(created=clock() + ahead))
        assert await s.hub.order(s.node.address, signed) == Accepted()


@pytest.mark.parametrize("identity", [OTHER, MUSIVUM], ids=["its own order", "a stolen order"])
async def test_another_peer_may_order_nothing(
    autojump_clock: MockClock, identity: Identity
) -> None:
    async with scene() as s:
        call = replace(s.call(), peer_id=identity.peer_id)
        failed = await s.stranger.order(s.node.address, _signed_by(identity, call))
        assert isinstance(failed, Fail)
        assert (failed.code, s.wanted) == ("not_authorized", [])


@pytest.mark.parametrize("later", [0.0, 59.0, 61.0, NONCE_SECONDS + 1.0])
async def test_an_order_is_taken_once(autojump_clock: MockClock, later: float) -> None:
    async with scene() as s:
        signed = s.hub.sign(s.call())
        assert await s.hub.order(s.node.address, signed) == Accepted()
        await trio.sleep(later)
        failed = await s.hub.order(s.node.address, signed)
        assert isinstance(failed, Fail)
        assert failed.code == ("call_replayed" if later < 60.0 else "clock_skew")
        assert s.wanted == [LAYERS]


async def test_an_order_that_was_refused_for_its_time_uses_no_nonce(
    autojump_clock: MockClock,
) -> None:
    async with scene() as s:
        await trio.sleep(100.0)
        call = s.call()
        early = s.hub.sign(replace(call, created=clock() + 40.0))
        assert isinstance(await s.hub.order(s.node.address, early), Fail)
        assert await s.hub.order(s.node.address, s.hub.sign(call)) == Accepted()


async def test_silence_in_place_of_an_order_is_not_waited_for(autojump_clock: MockClock) -> None:
    async with scene() as s:
        await s.hub.host.connect(s.node.address, timeout=5)
        stream = await s.hub.host.open_stream(s.node.address.peer_id, ASSIGN, timeout=5)
        failed = await stream.receive(ORDER_TIMEOUT + 1.0)
        assert isinstance(failed, Fail)
        assert failed.code == "peer_silent"
        with pytest.raises(PeerGone):
            await stream.receive(1.0)


async def test_a_peer_has_two_streams_for_orders_and_no_third(autojump_clock: MockClock) -> None:
    async with scene() as s:
        host, node = s.hub.host, s.node.address
        await host.connect(node, timeout=5)
        streams = [await host.open_stream(node.peer_id, ASSIGN, timeout=5) for _ in range(3)]
        failed = await streams[2].receive(1.0)
        assert isinstance(failed, Fail)
        assert failed.code == "too_many_sessions"
        for stream in streams:
            await stream.reset()


def test_nonces_are_remembered_long_enough_and_never_without_end() -> None:
    nonces, peer = Nonces(), PeerId("p")
    for number in range(MAX_NONCES):
        nonces.use(peer, number.to_bytes(8), 0.0)
    with pytest.raises(TooManyRequests):
        nonces.use(peer, b"one more", 1.0)
    with pytest.raises(CallReplayed):
        nonces.use(peer, bytes(8), NONCE_SECONDS - 0.1)
    nonces.use(peer, bytes(8), NONCE_SECONDS)
