"""Proofs are taken at the pace of their number, at each door in its own way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
import trio
from trio.testing import MockClock

from musivum.doors.settling import PROOF_BURST, PROOFS_PER_SECOND, Settling
from tessella.core.addresses import LOOPBACK
from tessella.core.errors import TooManyRequests
from tessella.core.ids import PeerId
from tessella.core.proofs import SignedProof
from tessella.core.settlement import Became, Outcome

BATCH = [SignedProof(b"p", b"s")] * 256
A, B = PeerId("a"), PeerId("b")


@dataclass
class Ledger:
    """Pays whatever comes."""

    brought: list[int] = field(default_factory=list)

    async def settle(self, proofs: Sequence[SignedProof]) -> list[Outcome]:
        self.brought.append(len(proofs))
        return [Outcome(Became.PAID, 1)] * len(proofs)


@pytest.fixture
def settling() -> Settling:
    return Settling(Ledger(), LOOPBACK)


async def test_a_peer_that_brings_too_much_waits_and_nobody_else(
    settling: Settling, autojump_clock: MockClock
) -> None:
    for _ in range(PROOF_BURST // len(BATCH)):
        assert len(await settling.of_peer(A, BATCH)) == 256
    assert trio.current_time() == 0
    assert len(await settling.of_peer(B, BATCH)) == 256
    assert trio.current_time() == 0
    await settling.of_peer(A, BATCH)
    assert trio.current_time() == pytest.approx(256 / PROOFS_PER_SECOND, abs=0.1)


async def test_an_address_that_brings_too_much_is_told_and_may_come_again(
    settling: Settling, autojump_clock: MockClock
) -> None:
    for _ in range(PROOF_BURST // len(BATCH)):
        await settling.of_address("192.0.2.1", BATCH)
    with pytest.raises(TooManyRequests, match="proofs a second"):
        await settling.of_address("192.0.2.1", BATCH[:1])
    await settling.of_address("192.0.2.2", BATCH)
    await settling.of_address("2001:db8::1", BATCH)
    await trio.sleep(1.0)
    await settling.of_address("192.0.2.1", BATCH[: int(PROOFS_PER_SECOND)])
    with pytest.raises(TooManyRequests):
        await settling.of_address("192.0.2.1", BATCH[:1])


async def test_where_no_limit_by_address_holds_none_holds_here(
    settling: Settling, autojump_clock: MockClock
) -> None:
    for _ in range(20):
        assert len(await settling.of_address("127.0.0.1", BATCH)) == 256
