"""The file of the book: who may open it, and what its rows may be."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tessella.core.errors import BadConfig
from tessella.core.identity import Identity
from tessella.worker.proofs.book import open_book
from tessella.worker.proofs.schema import book_path, open_to_read, open_to_write
from tessella.worker.proofs.witness import Bill

OTHER = Identity(b"o" * 32)


def opened(path: Path, worker: Identity) -> None:
    db, lock = open_to_write(path, worker.peer_id, 1.0)
    db.close()
    os.close(lock)


def test_a_node_has_its_book_beside_its_key() -> None:
    assert book_path(Path("/keys/worker-2.key")) == Path("/keys/worker-2.proofs.db")


def test_one_program_writes_at_a_time(path: Path, worker: Identity) -> None:
    db, lock = open_to_write(path, worker.peer_id, 1.0)
    with pytest.raises(BadConfig, match="in use by another node"):
        open_to_write(path, worker.peer_id, 1.0)
    db.close()
    os.close(lock)
    opened(path, worker)


def test_the_book_of_another_key_is_not_gone_on_with(path: Path, worker: Identity) -> None:
    opened(path, worker)
    with pytest.raises(BadConfig, match=f"are of {worker.peer_id}, and this node is"):
        open_to_write(path, OTHER.peer_id, 1.0)


def test_what_is_no_book_is_named(path: Path, worker: Identity) -> None:
    path.parent.mkdir()
    path.write_bytes(b"no database, " * 100)
    with pytest.raises(BadConfig, match=path.name):
        open_to_write(path, worker.peer_id, 1.0)


def test_a_book_of_another_version_is_left_alone(path: Path, worker: Identity) -> None:
    opened(path, worker)
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA user_version = 7")
    for call in (lambda: opened(path, worker), lambda: open_to_read(path)):
        with pytest.raises(BadConfig, match="of version 7"):
            call()


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path, worker: Identity) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BadConfig, match="cannot write the proofs"):
        open_to_write(tmp_path / "file" / "node.proofs.db", worker.peer_id, 1.0)


BROKEN = [
    "UPDATE book SET unsettled = -1",
    "UPDATE book SET sessions = 7",
    "UPDATE book SET micro = -1",
    "UPDATE book SET micro = 1.5",
    "INSERT INTO book (id, worker, next_sequence, previous) VALUES (2, 'w', 1, x'')",
    "UPDATE proofs SET state = 'lost'",
    "UPDATE proofs SET state = 'paid'",
    "UPDATE proofs SET micro = 5",
    "UPDATE proofs SET payload = x''",
    "UPDATE proofs SET settled_at = 1.0",
    "INSERT INTO proofs SELECT sequence + 1, request_id, payload, signature, layer_positions, "
    "made_at, state, due, asks, micro, code, text, settled_at FROM proofs",
]


@pytest.mark.parametrize("statement", BROKEN)
async def test_what_would_break_a_rule_is_not_written(
    path: Path, worker: Identity, a_bill: Callable[..., Bill], statement: str
) -> None:
    async with open_book(path, worker) as book:
        await book.serve(a_bill(1))
    with closing(sqlite3.connect(path)) as db, pytest.raises(sqlite3.IntegrityError):
        db.execute(statement)


SERVE = """
import sys, trio
from pathlib import Path
sys.path.insert(0, {tests!r})
import conftest
from tessella.worker.proofs.book import open_book

async def main():
    async with open_book(Path({path!r}), conftest.WORKER) as book:
        bill = conftest.a_bill_for(1)
        Path({path!r} + ".begin").touch()
        await book.serve(bill)
        Path({path!r} + ".upload").touch()

trio.run(main)
"""


@pytest.mark.skipif(shutil.which("strace") is None, reason="there is no strace here")
@pytest.mark.slow
def test_the_disk_has_a_proof_before_the_first_byte_of_it_leaves(path: Path) -> None:
    program = SERVE.format(tests=str(Path(__file__).parent), path=str(path))
    trace = path.with_name("trace")
    path.parent.mkdir()
    calls = "trace=fsync,fdatasync,openat"
    command = ["strace", "-f", "-e", calls, "-o", str(trace), sys.executable, "-c", program]
    ran = subprocess.run(command, capture_output=True, timeout=60)
    assert ran.returncode == 0, ran.stderr.decode()
    lines = trace.read_text().splitlines()
    (begin,) = [at for at, line in enumerate(lines) if ".begin" in line]
    (upload,) = [at for at, line in enumerate(lines) if ".upload" in line]
    synced = sum("sync(" in line and "= 0" in line for line in lines[begin:upload])
    print(f"fsync fdatasync_before_first_upload_byte={synced} mode=FULL")  # noqa: T201 - a figure to be read
    assert synced >= 1
