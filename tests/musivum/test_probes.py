"""Dial-backs and probes: no peer has more than its place, and an error of ours is no verdict."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from musivum import probes
from musivum.config import MusivumConfig
from musivum.probes import PROOFS, Probes
from musivum.registration import read_registration
from musivum.roster import Roster
from musivum.testing import HOUSE, a_registration
from p2p.peers import Proof
from p2p.testing import MemoryHost
from tessella.core.addresses import PeerAddress
from tessella.core.errors import LocalError, PeerSilent, TessellaError, TooManyRequests
from tessella.core.ids import PeerId

SLOW, HONEST, ACCUSED = PeerId("slow"), PeerId("honest"), PeerId("accused")
ADDRS = ("/ip4/10.0.0.9/tcp/4001",)


class Answering(MemoryHost):
    """A host to which one peer never answers, and all others prove what they say."""

    def __init__(self, error: TessellaError | None = None) -> None:
        self.error = error
        self.dialled: list[PeerId] = []

    async def prove(self, peer: PeerAddress, *, timeout: float) -> Proof:
        self.dialled.append(peer.peer_id)
        if peer.peer_id == SLOW:
            await trio.sleep(timeout)
            return Proof((), ("did not answer in time",))
        return Proof(peer.addrs, ())

    async def connect(self, peer: PeerAddress, *, timeout: float) -> None:
        if self.error is not None:
            raise self.error


def of(host: MemoryHost) -> tuple[Probes, Roster]:
    roster = Roster(MusivumConfig(min_vram_mb=0))
    return Probes(host, roster), roster


async def prove_slowly(looked: Probes) -> None:
    with pytest.raises(TessellaError):
        await looked.prove(SLOW, ADDRS)


async def test_who_never_answers_keeps_nobody_waiting_however_often_it_asks(
    autojump_clock: MockClock,
) -> None:
    host = Answering()
    looked, _ = of(host)
    async with trio.open_nursery() as nursery:
        for _ in range(2 * PROOFS):
            nursery.start_soon(prove_slowly, looked)
        await trio.testing.wait_all_tasks_blocked()
        began = trio.current_time()
        assert await looked.prove(HONEST, ADDRS) == ADDRS
        assert trio.current_time() == began
        assert host.dialled == [SLOW, HONEST]
        nursery.cancel_scope.cancel()
    assert await looked.prove(HONEST, ADDRS) == ADDRS


async def test_too_many_wait_for_no_place_at_all(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    monkeypatch.setattr(probes, "MAX_PROOFS_WAITING", 1)
    looked, _ = of(Answering())
    async with trio.open_nursery() as nursery:
        for _ in range(PROOFS + 1):
            nursery.start_soon(prove_slowly, looked)
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(TooManyRequests, match="wait to be dialled back"):
            await looked.prove(HONEST, ADDRS)
        nursery.cancel_scope.cancel()
    assert await looked.prove(HONEST, ADDRS) == ADDRS


@pytest.mark.parametrize(
    ("error", "lost"), [(PeerSilent("no"), [ACCUSED]), (LocalError("a bug below"), [])]
)
async def test_only_who_does_not_answer_is_lost(
    error: TessellaError, lost: list[PeerId], autojump_clock: MockClock
) -> None:
    looked, roster = of(Answering(error))
    roster.join(ACCUSED, read_registration(a_registration(), HOUSE), 0.0)
    found: list[PeerId] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(looked.run, lambda _, accused: found.append(accused))
        for now in (0.0, 1.0):
            assert looked.report(HONEST, ACCUSED, now)
            await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert found == lost * 2
