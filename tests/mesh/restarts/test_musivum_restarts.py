"""A musivum on SQLite that is killed while nodes come, serve and die, and started at once."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
import trio

from tessella.core.ids import PeerId
from tests.mesh.restarts.fleet import Fleet, open_fleet
from tests.mesh.restarts.musivum_program import RIGHT_SECONDS, Listed
from tests.mesh.restarts.program import BEAT

pytestmark = [pytest.mark.mesh, pytest.mark.slow, pytest.mark.timeout(400)]

# Every other one is right after an admission, the rest are at random moments.
KILLS = 20
# In every so-manieth life the list has to be right about the dead too, which takes two beats.
THOROUGH = 4
# A failure is found again with the seed that it was printed with.
SEED = 20_251


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """One musivum, three workers."""
    with open_fleet(tmp_path_factory.mktemp("fleet")) as running:
        yield running


async def test_no_admission_is_lost_by_twenty_kills_and_no_worker_notices(fleet: Fleet) -> None:
    (musivum,) = fleet.musivums
    chance, crowd = random.Random(SEED), fleet.crowd(SEED)
    starts, soon, thorough = [], [], []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(crowd.run)
        for life in range(1, KILLS + 1):
            await trio.sleep(chance.uniform(0.2, 0.6))
            crowd.kill(4)
            if life % 2:
                await crowd.one_more()
            musivum.end()
            if life == KILLS // 2:
                await fleet.ask()
            admitted, dead = set(crowd.acknowledged), set(crowd.dead)
            starts.append(await musivum.restart())
            answers = trio.current_time()
            # At the first look: who lives and was lost registers again with its next heartbeat.
            assert admitted <= (await musivum.peers()).keys()

            def wrong(listed: Listed) -> list[str]:
                return [*fleet.wrong(listed), *crowd.unheard(listed)]

            def of_the_dead(listed: Listed, dead: set[PeerId] = dead) -> list[str]:
                return [*wrong(listed), *(crowd.undead(listed) & dead)]

            soon.append(await musivum.right(wrong))
            if life % THOROUGH == 0:
                await musivum.right(of_the_dead)
                thorough.append(trio.current_time() - answers)
        await fleet.ask()
        listed = await musivum.peers()
        nursery.cancel_scope.cancel()
    print(  # noqa: T201 - what a run is for
        f"\nmusivum on SQLite, killed {KILLS} times (seed {SEED}), beat {BEAT:g} s: "
        f"{len(crowd.acknowledged)} admissions acknowledged, {len(crowd.lost(listed))} lost, "
        f"{len(crowd.refused)} refused; it answers {max(starts):.2f} s after its start at most; "
        f"from then on /peers is right {max(soon):.2f} s later at most about who lives, "
        f"{max(thorough):.2f} s about who died; workers restarted: {fleet.restarts()}; "
        f"{fleet.answers} answers, all the same"
    )
    assert max(thorough) < RIGHT_SECONDS
    assert crowd.lost(listed) == set()
    assert crowd.refused == []
    assert fleet.restarts() == 0


async def test_who_runs_is_listed_again_by_a_musivum_that_lost_its_database(fleet: Fleet) -> None:
    (musivum,) = fleet.musivums
    crowd = fleet.crowd(SEED + 1)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(crowd.run)
        await crowd.full()
        musivum.end()
        musivum.forget_all()
        alive = len(crowd.alive)
        start = await musivum.restart()
        took = await musivum.right(lambda now: [*fleet.wrong(now), *crowd.unheard(now)])
        await fleet.ask()
        nursery.cancel_scope.cancel()
    print(  # noqa: T201 - what a run is for
        f"\nmusivum on SQLite, killed and its database deleted, beat {BEAT:g} s: it answers "
        f"{start:.2f} s after its start; three workers and {alive} other nodes are listed again "
        f"with what they held {took:.2f} s later; workers restarted: {fleet.restarts()}"
    )
    assert alive > 0
    assert fleet.restarts() == 0
