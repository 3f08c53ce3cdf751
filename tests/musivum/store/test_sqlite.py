"""One file, one musivum; what was acknowledged is there whatever ends the process."""

from __future__ import annotations

import re
import shutil
import sqlite3
import stat
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from musivum.store.changes import DropNode, DropReputation, PutManifest, PutNode, PutReputation
from musivum.store.records import Saved, SavedManifest, SavedNode, SavedReputation
from musivum.store.sqlite import SqliteDatabase, open_sqlite
from tessella.core.errors import BadConfig, StoreLost, StoreUnavailable
from tessella.core.ids import ModelId, PeerId

Keeper = Callable[..., "subprocess.Popen[str]"]
ROUNDS = 3


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "made" / "musivum.db"


@pytest.fixture
def database(path: Path) -> Iterator[SqliteDatabase]:
    opened = open_sqlite(path)
    opened.migrate()
    yield opened
    opened.close()


def pragma(database: SqliteDatabase, name: str) -> object:
    with database.transaction() as connection:
        return connection.exec_driver_sql(f"PRAGMA {name}").scalar()


def limit_pages(database: SqliteDatabase, pages: int) -> None:
    """SQLite says of such a file what it says of a full disk."""
    with database.transaction() as connection:
        connection.exec_driver_sql(f"PRAGMA max_page_count = {pages}")


def test_a_commit_waits_for_the_disk(database: SqliteDatabase) -> None:
    assert pragma(database, "journal_mode") == "wal"
    assert pragma(database, "synchronous") == 2
    assert pragma(database, "busy_timeout") == 5000
    assert pragma(database, "foreign_keys") == 1
    assert pragma(database, "wal_autocheckpoint") == 1000


def test_what_is_put_is_read_and_what_is_dropped_is_gone(
    database: SqliteDatabase, a_node: Callable[..., SavedNode]
) -> None:
    reputation = SavedReputation(peer_id=PeerId("a"), joins=1)
    manifest = SavedManifest(model=ModelId("toy"), document=b"\0\xff{}", published_at=1.5)
    database.apply([PutNode(a_node("b")), PutNode(a_node("a")), PutReputation(reputation)])
    database.apply([PutManifest(manifest), PutNode(a_node("b", status="Offline"))])
    saved = Saved(
        nodes=(a_node("a"), a_node("b", status="Offline")),
        reputation=(reputation,),
        manifests=(manifest,),
    )
    assert database.read() == saved
    database.apply([DropNode(PeerId("a")), DropNode(PeerId("never")), DropReputation(PeerId("a"))])
    assert database.read() == Saved(nodes=saved.nodes[1:], manifests=(manifest,))


def test_only_its_owner_may_look(database: SqliteDatabase, path: Path) -> None:
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}
    names = ["musivum.db", "musivum.db-shm", "musivum.db-wal", "musivum.db.lock"]
    assert modes == dict.fromkeys(names, 0o600)


def test_a_second_musivum_is_refused_at_once_by_whatever_name(
    database: SqliteDatabase, path: Path, tmp_path: Path
) -> None:
    other_name = tmp_path / "link.db"
    other_name.symlink_to(path)
    with pytest.raises(BadConfig, match=f"^the database {path} is in use by another musivum$"):
        open_sqlite(other_name)


def test_a_store_that_is_closed_leaves_one_file_for_the_next(path: Path) -> None:
    with closing(open_sqlite(path)) as database:
        database.migrate()
    assert sorted(file.name for file in path.parent.iterdir()) == ["musivum.db", "musivum.db.lock"]
    with closing(open_sqlite(path)) as database:
        assert database.read() == Saved()


def test_a_relative_path_and_a_home_are_fine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for path in (Path("here.db"), Path("~/there.db")):
        open_sqlite(path).close()
    assert (tmp_path / "here.db").exists()
    assert (tmp_path / "home" / "there.db").exists()


def test_a_full_disk_undoes_the_batch_and_passes(
    database: SqliteDatabase, a_node: Callable[..., SavedNode]
) -> None:
    database.apply([PutNode(a_node("a"))])
    limit_pages(database, 1)
    many = [PutNode(a_node(str(number))) for number in range(100)]
    with pytest.raises(StoreUnavailable, match="database or disk is full"):
        database.apply(many)
    assert database.read().nodes == (a_node("a"),)
    limit_pages(database, 1_000_000)
    database.apply(many)
    assert len(database.read().nodes) == 101


def test_another_program_that_writes_is_waited_for_and_then_it_passes(
    database: SqliteDatabase, path: Path, a_node: Callable[..., SavedNode]
) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with database.our_errors():
            database.connection.exec_driver_sql("PRAGMA busy_timeout = 1")
            database.connection.rollback()
        with pytest.raises(StoreUnavailable, match="database is locked"):
            database.apply([PutNode(a_node())])
    database.apply([PutNode(a_node())])


def test_any_other_error_is_the_last_one(
    database: SqliteDatabase, a_node: Callable[..., SavedNode]
) -> None:
    with database.transaction() as connection:
        connection.exec_driver_sql("DROP TABLE nodes")
    with pytest.raises(StoreLost, match="no such table: nodes") as caught:
        database.apply([PutNode(a_node(device="told nobody"))])
    assert "told nobody" not in f"{caught.value} {caught.value.__cause__}"
    with pytest.raises(StoreLost, match="no such table: nodes"):
        database.check()


def test_a_file_that_is_no_database_is_named(path: Path) -> None:
    path.parent.mkdir()
    path.write_text("the diary of a node\n" * 100)
    for _ in range(2):
        with pytest.raises(BadConfig, match=f"^cannot use the database {path}: file is not"):
            open_sqlite(path)


def test_a_place_that_is_no_directory_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    path = tmp_path / "file" / "musivum.db"
    with pytest.raises(BadConfig, match=f"^cannot write the database {path}: "):
        open_sqlite(path)
    with pytest.raises(BadConfig, match=r"^cannot write the database .*: Is a directory$"):
        open_sqlite(tmp_path)


@pytest.mark.mesh
def test_what_was_acknowledged_outlives_a_kill(path: Path, keeper: Keeper) -> None:
    acknowledged = -1
    for _ in range(ROUNDS):
        child = keeper(f"sqlite:///{path}", 1_000_000)
        assert child.stdout is not None
        for line in child.stdout:
            if line.strip().isdecimal() and int(line) >= acknowledged + 50:
                break
        child.kill()
        rest = [int(line) for line in child.stdout if line.endswith("\n")]
        acknowledged = rest[-1] if rest else int(line)
        child.wait(10)
        with closing(open_sqlite(path)) as database:
            kept = {reputation.joins for reputation in database.read().reputation}
        assert kept >= set(range(acknowledged + 1))
        # The last save may have been written and not yet told.
        assert len(kept) <= acknowledged + 2


@pytest.mark.mesh
def test_a_save_returns_after_the_disk_said_so(path: Path, keeper: Keeper, tmp_path: Path) -> None:
    strace = shutil.which("strace")
    if strace is None or subprocess.run([strace, "-qq", "true"], capture_output=True).returncode:
        pytest.skip("strace is not installed, or may not trace here")
    trace = tmp_path / "trace"
    before = (strace, "-f", "-qq", "-o", str(trace), "-e", "trace=fsync,fdatasync,write")
    child = keeper(f"sqlite:///{path}", 3, ends=True, before=before)
    assert child.communicate(timeout=30)[0].split() == ["open", "0", "1", "2"]
    calls = trace.read_text()
    parts = re.split(r'write\(1, "(?:open|\d)(?:\\n)?", ', calls)
    synced = [len(re.findall(r"f(?:data)?sync\(", part)) for part in parts[1:4]]
    assert len(synced) == 3
    assert min(synced) >= 1, synced
