"""Racing addresses and sharing dials, on a virtual clock."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from p2p.dialling import ADDRESS_TIMEOUT, STAGGER, SharedDials, race
from tessella.core.addresses import PeerAddress
from tessella.core.errors import PeerUnreachable
from tessella.core.identity import Identity

PEER_ID = Identity(bytes(32)).peer_id


def peer(*addrs: str) -> PeerAddress:
    return PeerAddress(PEER_ID, addrs)


class Network:
    """Addresses that answer after so many seconds, or refuse after minus so many."""

    def __init__(self, **delays: float) -> None:
        self.delays = delays
        self.dialled: list[tuple[str, float]] = []
        self.open = 0

    async def dial(self, addr: str) -> None:
        self.dialled.append((addr, trio.current_time()))
        self.open += 1
        try:
            delay = self.delays[addr]
            await trio.sleep(abs(delay))
        finally:
            self.open -= 1
        if delay < 0:
            raise PeerUnreachable("refused")


@pytest.mark.parametrize(
    ("delays", "seconds"),
    [
        ({"a": 0.05}, 0.05),
        ({"a": 1000, "b": 0.05}, STAGGER + 0.05),
        ({"a": -0.01, "b": 0.05}, 0.06),
        ({"a": 1.0, "b": 0.7, "c": 1000}, STAGGER + 0.7),
        ({"a": 1000, "b": 1000, "c": 0.1}, 2 * STAGGER + 0.1),
    ],
)
async def test_the_first_address_that_answers_wins(
    autojump_clock: MockClock, delays: dict[str, float], seconds: float
) -> None:
    network = Network(**delays)
    await race(peer(*delays), network.dial)
    assert trio.current_time() == pytest.approx(seconds, abs=0.001)
    assert network.open == 0


async def test_every_failure_is_named(autojump_clock: MockClock) -> None:
    network = Network(a=-0.01, b=1000)
    with pytest.raises(PeerUnreachable) as found:
        await race(peer("a", "b"), network.dial)
    text = str(found.value)
    assert "a refused" in text
    assert f"b did not answer within {ADDRESS_TIMEOUT:g} s" in text
    assert PEER_ID in text


async def test_a_peer_without_addresses_is_unreachable() -> None:
    with pytest.raises(PeerUnreachable, match="no address"):
        await race(peer(), Network().dial)


async def test_equal_wishes_dial_once_and_a_failure_reaches_all(autojump_clock: MockClock) -> None:
    network = Network(a=1, b=-1)
    failures = 0
    async with trio.open_nursery() as nursery:
        dials = SharedDials(nursery)

        async def fail() -> None:
            nonlocal failures
            try:
                await dials.reach(peer("b"), network.dial)
            except PeerUnreachable:
                failures += 1

        for _ in range(4):
            nursery.start_soon(dials.reach, peer("a"), network.dial)
            nursery.start_soon(fail)
    assert sorted(addr for addr, _ in network.dialled) == ["a", "b"]
    assert failures == 4
    async with trio.open_nursery() as nursery:
        await SharedDials(nursery).reach(peer("a"), network.dial)


async def test_who_asked_first_may_leave(autojump_clock: MockClock) -> None:
    network = Network(a=1)
    async with trio.open_nursery() as nursery:
        dials = SharedDials(nursery)
        with trio.move_on_after(0.5):
            await dials.reach(peer("a"), network.dial)
        await dials.reach(peer("a"), network.dial)
        assert trio.current_time() == pytest.approx(1)
    assert len(network.dialled) == 1
