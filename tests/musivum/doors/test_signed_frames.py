"""Calls that are signed wrongly, over libp2p: what each is answered, and that nothing comes of it.

Here nobody can bring a call to another musivum: Noise says who is at the other end, and a call
names whose it is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from trio.testing import MockClock

from musivum.config import MusivumConfig
from musivum.testing import Caller, a_registration, calling
from musivum.testing_http import answering
from p2p.testing import MemoryNetwork
from tessella.core.errors import PeerGone
from tessella.core.identity import PURPOSE_TRACKER, Identity
from tessella.core.layers import LayerRange
from tessella.core.messages import (
    TRACKER,
    Accepted,
    Announce,
    Assigned,
    Call,
    Deregister,
    Fail,
    Message,
    Ready,
    ReportFailure,
    Signed,
    seal,
)
from tessella.core.signed_request import PURPOSE_HTTP

MUSIVUM_SEED, NODE_SEED, OTHER_SEED = b"m" * 32, b"n" * 32, b"o" * 32
CONFIG = MusivumConfig(min_vram_mb=0)
OTHER = Identity(OTHER_SEED)

CALLS: dict[str, Callable[[Caller], Message]] = {
    "Register": lambda node: replace(a_registration(), addrs=node.host.address.addrs),
    "Announce": lambda node: Announce("Healthy", 3, 20.0),
    "Ready": lambda node: Ready(LayerRange(0, 4)),
    "Deregister": lambda node: Deregister(),
    "ReportFailure": lambda node: ReportFailure(OTHER.peer_id, "peer_silent"),
}


def by_a_foreign_key(node: Caller, call: Call) -> Message:
    return Signed(seal(call), OTHER.sign(PURPOSE_TRACKER, seal(call)))


def for_another_purpose(node: Caller, call: Call) -> Message:
    return Signed(seal(call), node.identity.sign(PURPOSE_HTTP, seal(call)))


def changed_afterwards(node: Caller, call: Call) -> Message:
    later = replace(call, created=call.created + 1)
    return replace(node.sign(call), payload=seal(later))


def with_another_calls_signature(node: Caller, call: Call) -> Message:
    other = node.sign(replace(call, message=seal(Announce("Paused", 0, 0.0))))
    return replace(other, payload=seal(call))


def of_another_peer(node: Caller, call: Call) -> Message:
    """As the musivum that it was made for could bring it to a second one."""
    theirs = replace(call, peer_id=OTHER.peer_id)
    return Signed(seal(theirs), OTHER.sign(PURPOSE_TRACKER, seal(theirs)))


def made(seconds_from_now: float) -> Callable[[Caller, Call], Message]:
    return lambda node, call: node.sign(replace(call, created=call.created + seconds_from_now))


# What becomes of the call, the code, and whether the stream goes on.
BAD: dict[str, tuple[Callable[[Caller, Call], Message], str, bool]] = {
    "a foreign key": (by_a_foreign_key, "bad_signature", False),
    "another purpose": (for_another_purpose, "bad_signature", False),
    "changed afterwards": (changed_afterwards, "bad_signature", False),
    "another call's signature": (with_another_calls_signature, "bad_signature", False),
    "no signature": (lambda node, call: Signed(seal(call), b""), "bad_signature", False),
    "another peer's": (of_another_peer, "not_authorized", True),
    "a nonce too short": (
        lambda node, call: node.sign(replace(call, nonce=b"n" * 7)), "bad_frame", False),
    "61 s ago": (made(-61.0), "clock_skew", True),
    "31 s ahead": (made(31.0), "clock_skew", True),
}  # fmt: skip


async def refused(node: Caller, message: Message, goes_on: bool) -> str:
    answer = await node.ask(message)
    assert isinstance(answer, Fail)
    if not goes_on:
        with pytest.raises(PeerGone):
            await node.stream.receive(timeout=5)
        peer_id = next(iter(node.host.connected()))
        node.stream = await node.host.open_stream(peer_id, TRACKER, timeout=5)
    return answer.code


async def joined(node: Caller) -> None:
    answer = await node.register()
    assert isinstance(answer, Assigned)
    assert await node.call(Ready(answer.layers)) == Accepted()


@pytest.mark.parametrize("name", CALLS)
async def test_a_call_that_is_not_signed_right_changes_nothing(
    name: str, autojump_clock: MockClock
) -> None:
    net = MemoryNetwork()
    async with (
        answering(net, MUSIVUM_SEED, CONFIG) as door,
        calling(net, NODE_SEED, door.peer) as node,
    ):
        await joined(node)
        message = CALLS[name](node)
        before = await door.remembered()
        seen = {"unsigned": await refused(node, message, goes_on=False)}
        for why, (bad, _, goes_on) in BAD.items():
            seen[why] = await refused(node, bad(node, node.a_call(message)), goes_on)
            assert await door.remembered() == before, why
        expected = {why: code for why, (_, code, _) in BAD.items()}
        assert seen == {"unsigned": "out_of_turn", **expected}
        assert isinstance(await node.call(message), Accepted | Assigned)
        assert await door.remembered() != before


@pytest.mark.parametrize("name", CALLS)
async def test_a_call_is_taken_once(name: str, autojump_clock: MockClock) -> None:
    net = MemoryNetwork()
    async with (
        answering(net, MUSIVUM_SEED, CONFIG) as door,
        calling(net, NODE_SEED, door.peer) as node,
    ):
        await joined(node)
        call = node.sign(node.a_call(CALLS[name](node)))
        assert isinstance(await node.ask(call), Accepted | Assigned)
        before = await door.remembered()
        assert await refused(node, call, goes_on=True) == "call_replayed"
        assert await door.remembered() == before
        assert isinstance(await node.call(CALLS[name](node)), Accepted | Assigned)


@pytest.mark.parametrize("name", CALLS)
async def test_who_is_not_let_in_hears_so_before_a_signature_is_looked_at(
    name: str, autojump_clock: MockClock
) -> None:
    net = MemoryNetwork()
    config = replace(CONFIG, allow=(OTHER.peer_id,))
    async with (
        answering(net, MUSIVUM_SEED, config) as door,
        calling(net, NODE_SEED, door.peer) as node,
        calling(net, OTHER_SEED, door.peer) as listed,
    ):
        message = CALLS[name](node)
        before = await door.remembered()
        for bad in (node.sign(node.a_call(message)), by_a_foreign_key(node, node.a_call(message))):
            assert await refused(node, bad, goes_on=True) == "worker_not_authorized"
        assert await door.remembered() == before
        await joined(listed)


async def test_a_call_from_before_musivum_began_is_nobodys_to_repeat(
    autojump_clock: MockClock,
) -> None:
    net = MemoryNetwork()
    async with (
        answering(net, MUSIVUM_SEED, CONFIG) as door,
        calling(net, NODE_SEED, door.peer) as node,
    ):
        call = node.a_call(CALLS["Register"](node))
        assert isinstance(await node.ask(made(-1.0)(node, call)), Assigned)
