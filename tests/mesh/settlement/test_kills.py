"""Programs are killed at every point of settlement, and each proof is paid, once."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest
import trio

from p2p.peers import Host
from tessella.core.tickets import SETTLE_SECONDS
from tests.mesh.settlement.accounts import Row, compare, read_book
from tests.mesh.settlement.forked import Forked, until
from tests.mesh.settlement.points import AHEAD, MUSIVUM_POINTS, POSITIONS, WORKER_POINTS, Trap
from tests.mesh.settlement.settlers import Settlers, client_of, open_settlers

pytestmark = [pytest.mark.mesh, pytest.mark.slow, pytest.mark.timeout(400)]

# That are under way when somebody dies.
AT_ONCE = 3
DIE_SECONDS = 30.0
VERIFY_SECONDS = 60.0
# After a neighbour that never speaks has had its day, and before a ticket can be settled no more.
A_DAY_LATER = SETTLE_SECONDS + 1800.0
CASES = [
    (point, place)
    for points in (WORKER_POINTS, MUSIVUM_POINTS)
    for point in points
    for place in range(len(POSITIONS))
]


@pytest.fixture(scope="module")
def settlers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settlers]:
    """A mesh whose programs die and live again in every case."""
    with open_settlers(tmp_path_factory.mktemp("settlers")) as running:
        yield running


async def test_what_was_served_is_paid_once_wherever_a_program_is_killed(
    settlers: Settlers, record_property: Callable[[str, object], None]
) -> None:
    kills, cases, began = 0, 0, trio.current_time()
    async with client_of(settlers) as host:
        for point, place in CASES:
            status = await die_at(settlers, host, point, place)
            assert status == -signal.SIGKILL, f"{point} at the {POSITIONS[place]}: {status}"
            kills, cases = kills + 1, cases + 1
            await settlers.ask_until_answered(host)
            await settlers.settled()
    waited = sum(row.state == "waiting" for row in _rows(settlers))
    await a_day_later(settlers)
    found = compare(settlers.books, settlers.ledger, settlers.address.peer_id)
    chain = await trio.to_thread.run_sync(verified, settlers)
    wall = trio.current_time() - began
    line = (
        f"settle points={len({point for point, _ in CASES})} cases={cases} kills={kills} "
        f"{found.words} verify={chain} waited={waited} answers={settlers.answers} "
        f"wall_s={wall:.1f}"
    )
    print(f"\n{line}")  # noqa: T201 - what a run is for
    record_property("settle", line)
    assert kills == cases == 36
    assert (found.lost, found.double, found.unserved) == (0, 0, 0)
    assert found.wrong == []
    assert found.is_whole
    assert found.served >= 3 * cases


async def die_at(settlers: Settlers, host: Host, point: str, place: int) -> int:
    """The status with which a program ended that was at a point; it lives again."""
    program: Forked = settlers.musivum if point in MUSIVUM_POINTS else settlers.workers[place]
    trap = Trap(program.home)
    trap.set(point, settlers.peers[place] if program is settlers.musivum else "")
    async with trio.open_nursery() as nursery:
        for _ in range(AT_ONCE):
            nursery.start_soon(settlers.try_to_ask, host)
        with trio.fail_after(DIE_SECONDS):
            status = await program.ended()
        assert trap.is_sprung, f"{status}: {program.errors}"
        await program.restart()
    return status


async def a_day_later(settlers: Settlers) -> None:
    """Those whose neighbour was killed before it had a proof are paid by their own word."""
    settlers.musivum.end()
    (settlers.musivum.home / AHEAD).write_text(f"{A_DAY_LATER}")
    await settlers.musivum.restart()
    assert await until(lambda: not any(map(_is_open, _rows(settlers))), DIE_SECONDS)
    for program in (*settlers.workers, settlers.musivum):
        program.end()


def _rows(settlers: Settlers) -> list[Row]:
    return [row for book in settlers.books for row in read_book(book)]


def _is_open(row: Row) -> bool:
    return row.state in ("new", "waiting")


def verified(settlers: Settlers) -> str:
    """What musivum's own command says of the ledger that it left."""
    argv = [sys.executable, "-m", "musivum.cli", "ledger", "verify", "--offline", "--json"]
    argv += ["--data", str(settlers.musivum.home)]
    ran = subprocess.run(argv, capture_output=True, text=True, timeout=VERIFY_SECONDS)
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout)["ok"] is True
    return "ok"
