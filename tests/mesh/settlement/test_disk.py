"""Disks that fail or are full under a worker's book and musivum's ledger, in real programs."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import trio

from p2p.peers import Host
from tessella.core.errors import RemoteFailure, StoreUnavailable
from tests.mesh.restarts.program import LOOK_SECONDS
from tests.mesh.settlement.accounts import compare, read_book
from tests.mesh.settlement.forked import Forked
from tests.mesh.settlement.killing import UPLOAD
from tests.mesh.settlement.settlers import Settlers, client_of, open_settlers
from tests.mesh.settlement.tracing import SYNCS, traced

pytestmark = [pytest.mark.mesh, pytest.mark.slow, pytest.mark.timeout(300)]

END_SECONDS = 60.0
RECOVER_SECONDS = 30.0
# Room for the book, the ledger, their logs and indexes, and little else.
DISK = "size=2m"
BLOCK = 4096


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path | None]:
    """A small disk; None where none may be mounted."""
    place = tmp_path_factory.mktemp("disk")
    argv = ["mount", "-t", "tmpfs", "-o", DISK, "tmpfs", str(place)]
    mounted = subprocess.run(argv, capture_output=True).returncode == 0
    yield place if mounted else None
    if mounted:
        subprocess.run(["umount", "-l", str(place)], check=True)


@pytest.fixture(scope="module")
def settlers(tmp_path_factory: pytest.TempPathFactory, disk: Path | None) -> Iterator[Settlers]:
    """A musivum and one worker with all layers, whose disk it is."""
    with open_settlers(tmp_path_factory.mktemp("settlers"), ("0:6",), disk) as running:
        yield running


def pid_of(program: Forked) -> int:
    assert program.process is not None
    return program.process.pid


async def test_the_disk_has_a_proof_before_the_first_byte_of_it_leaves(
    settlers: Settlers, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    (worker,) = settlers.workers
    async with client_of(settlers) as host:
        await settlers.ask_until_answered(host)
        await settlers.settled()
        trace = tmp_path / "trace"
        async with traced(pid_of(worker), trace, f"trace={SYNCS},write,pwrite64"):
            await settlers.ask(host)
            await settlers.settled()
    lines = trace.read_text().splitlines()
    log = f"{settlers.books[0]}-wal>"
    (upload, *_) = [at for at, line in enumerate(lines) if UPLOAD.decode() in line]
    written = [at for at, line in enumerate(lines[:upload]) if "pwrite64(" in line and log in line]
    synced = [
        line
        for line in lines[written[0] : upload]
        if "sync(" in line and log in line and line.endswith("= 0")
    ]
    line = f"fsync fdatasync_before_first_upload_byte={len(synced)} mode=FULL"
    print(f"\n{line}")  # noqa: T201 - what a run is for
    record_property("fsync", line)
    assert len(synced) >= 1


async def test_a_full_disk_refuses_paid_work_until_there_is_room(
    settlers: Settlers, disk: Path | None, record_property: Callable[[str, object], None]
) -> None:
    if disk is None:
        pytest.skip("mount: no tmpfs may be mounted here")
    async with client_of(settlers) as host:
        await settlers.ask_until_answered(host)
        await settlers.settled()
        answers, served = settlers.answers, len(read_book(settlers.books[0]))
        filler = disk / "filler"
        fill(filler)
        refused = [await refusal(settlers, host) for _ in range(6)]
        while_full = compare(settlers.books, settlers.ledger, settlers.address.peer_id)
        unpaid = (settlers.answers - answers) - (while_full.served - served)
        filler.unlink()
        began = trio.current_time()
        with trio.fail_after(RECOVER_SECONDS):
            await settlers.ask_until_answered(host)
        recovered = trio.current_time() - began
        await settlers.settled()
    found = compare(settlers.books, settlers.ledger, settlers.address.peer_id)
    line = (
        f"full asked={len(refused)} refused={len(list(filter(None, refused)))} "
        f"status={StoreUnavailable.status} "
        f"acks_without_commit={while_full.told} served_unpaid={unpaid} recover_s={recovered:.1f} "
        f"integrity={'ok' if found.is_whole else 'broken'}"
    )
    print(f"\n{line}")  # noqa: T201 - what a run is for
    record_property("full", line)
    assert {each.code for each in refused if each} == {StoreUnavailable.code}
    # By the worker, and not because musivum gave no ticket.
    assert any(str(settlers.books[0]) in str(each) for each in refused)
    # The room that was left is for a few at most.
    assert all(refused[-3:])
    assert (while_full.told, unpaid) == (0, 0)
    assert (found.lost, found.double, found.unserved, found.wrong) == (0, 0, 0, [])
    assert found.is_whole


def fill(file: Path) -> None:
    """Take all room there is."""
    try:
        with file.open("wb", buffering=0) as out:
            while True:
                out.write(bytes(BLOCK))
    except OSError:
        return


async def refusal(settlers: Settlers, host: Host) -> RemoteFailure | None:
    """With what a request was refused, by musivum or the worker; None if it was answered."""
    try:
        await settlers.ask(host)
    except RemoteFailure as exc:
        return exc
    return None


@pytest.mark.parametrize("who", ["worker", "musivum"])
async def test_a_disk_that_fails_to_sync_ends_the_program_and_nothing_is_answered(
    who: str,
    settlers: Settlers,
    tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> None:
    (worker,) = settlers.workers
    program = worker if who == "worker" else settlers.musivum
    async with client_of(settlers) as host:
        await settlers.ask_until_answered(host)
        await settlers.settled()
        answers, served = settlers.answers, len(read_book(settlers.books[0]))
        inject = f"inject={SYNCS}:error=EIO"
        async with traced(pid_of(program), tmp_path / "trace", f"trace={SYNCS}", inject):
            with trio.fail_after(END_SECONDS):
                while program.is_running:
                    await settlers.try_to_ask(host)
                    await trio.sleep(LOOK_SECONDS)
        status, said = program.status, program.errors
        then = compare(settlers.books, settlers.ledger, settlers.address.peer_id)
        # To clients whose answers no proof is of, and to the worker for what was not paid.
        acks = max(0, settlers.answers - answers - (then.served - served)) + then.told
        await program.restart()
        await settlers.ask_until_answered(host)
        await settlers.settled()
    found = compare(settlers.books, settlers.ledger, settlers.address.peer_id)
    line = f"fsync_eio who={who} process_exit={status} acks={acks}"
    print(f"\n{line}: {said.strip().splitlines()[-1][:200]}")  # noqa: T201 - what a run is for
    record_property("fsync_eio", line)
    assert status == 1
    assert acks == 0
    assert "store_lost" in said
    assert (found.lost, found.double, found.unserved, found.wrong) == (0, 0, 0, [])
    assert found.is_whole
