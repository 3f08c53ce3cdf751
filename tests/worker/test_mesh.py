"""A node of both meshes: what musivum does not answer, the swarm does."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest
import trio
from trio.testing import MockClock

from tessella.core.errors import ClaimTooSmall, PeerUnreachable, RemoteFailure, TessellaError
from tessella.core.ids import ModelId, PeerId
from tessella.core.layers import LayerRange
from tessella.core.peers import PeerRow
from tessella.worker.mesh import MUSIVUM_SECONDS, READY_SECONDS, BothMeshes

LAYERS = LayerRange(0, 3)
ROW = PeerRow(
    peer_id=PeerId("p"),
    model=ModelId("m"),
    contract="c",
    layers=LAYERS,
    total_layers=6,
    status="Healthy",
    addrs=(),
    device="cpu",
    dtype="f32",
    queue_depth=0,
    step_ms=0.0,
)


@dataclass
class FakeMesh:
    """Answers, fails with an error, or never answers."""

    row: PeerRow = ROW
    error: TessellaError | None = None
    silent: bool = False
    called: list[str] = field(default_factory=list)
    way: str = "libp2p"

    async def _answer(self, call: str) -> None:
        self.called.append(call)
        if self.silent:
            await trio.sleep_forever()
        if self.error is not None:
            raise self.error

    async def join(self) -> LayerRange:
        await self._answer("join")
        return self.row.layers

    async def ready(self, layers: LayerRange) -> None:
        await self._answer("ready")

    def changed(self) -> None:
        self.called.append("changed")

    async def run(self) -> None:
        self.called.append("run")
        await trio.sleep_forever()

    async def rows(self, model: ModelId) -> list[PeerRow]:
        await self._answer("rows")
        return [self.row]

    def report(self, peer: PeerId, error: TessellaError) -> None:
        self.called.append("report")

    async def leave(self) -> None:
        self.called.append("leave")


AWAY = PeerUnreachable("nobody there")
STANDBY = RemoteFailure("standby", "another one leads", retry=True)
SWARM_ROW = replace(ROW, peer_id=PeerId("swarm"))


async def test_musivum_assigns_the_range() -> None:
    both = BothMeshes(FakeMesh(), FakeMesh(), LayerRange(3, 6))
    assert await both.join() == LAYERS


@pytest.mark.parametrize("away", [AWAY, STANDBY], ids=["gone", "standing by"])
async def test_a_node_that_insists_starts_while_musivum_is_away(away: TessellaError) -> None:
    musivum, swarm = FakeMesh(error=away), FakeMesh()
    both = BothMeshes(musivum, swarm, LayerRange(3, 6))
    assert await both.join() == LayerRange(3, 6)
    await both.ready(LayerRange(3, 6))
    assert swarm.called == ["ready"]
    assert musivum.called == ["join"]


async def test_a_node_that_insists_on_nothing_waits_for_no_other_answer() -> None:
    with pytest.raises(PeerUnreachable):
        await BothMeshes(FakeMesh(error=AWAY), FakeMesh(), None).join()


async def test_a_refusal_of_musivum_is_one() -> None:
    musivum = FakeMesh(error=ClaimTooSmall("too small"))
    with pytest.raises(ClaimTooSmall):
        await BothMeshes(musivum, FakeMesh(), LAYERS).join()


@pytest.mark.parametrize("musivum", [FakeMesh(error=AWAY), FakeMesh(silent=True)])
async def test_the_swarm_lists_while_musivum_is_away_or_silent(
    musivum: FakeMesh, autojump_clock: MockClock
) -> None:
    both = BothMeshes(musivum, FakeMesh(SWARM_ROW), LAYERS)
    started = trio.current_time()
    assert await both.rows(ModelId("m")) == [SWARM_ROW]
    assert trio.current_time() - started <= MUSIVUM_SECONDS


async def test_what_musivum_lists_goes_first() -> None:
    both = BothMeshes(FakeMesh(), FakeMesh(SWARM_ROW), LAYERS)
    assert await both.rows(ModelId("m")) == [ROW]


async def test_a_silent_musivum_does_not_keep_a_loaded_node_from_serving(
    autojump_clock: MockClock,
) -> None:
    musivum, swarm = FakeMesh(), FakeMesh()
    both = BothMeshes(musivum, swarm, LAYERS)
    await both.join()
    musivum.silent = True
    started = trio.current_time()
    await both.ready(LAYERS)
    assert trio.current_time() - started == READY_SECONDS
    assert swarm.called == ["ready"]


async def test_both_are_kept_up_and_told_goodbye(autojump_clock: MockClock) -> None:
    musivum, swarm = FakeMesh(), FakeMesh()
    both = BothMeshes(musivum, swarm, LAYERS)
    with trio.move_on_after(1.0):
        await both.run()
    both.changed()
    both.report(PeerId("x"), AWAY)
    await both.leave()
    assert musivum.called == ["run", "changed", "report", "leave"]
    assert swarm.called == ["run", "changed", "leave"]
