"""The file of the book: SQLite, its tables, and what its errors mean.

A commit returns when the write-ahead log is on the disk (synchronous=FULL). Others may read the
file meanwhile; a second node with the same key is kept out by a lock on a file beside it, which
ends with the process, however that ends.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from tessella.core.errors import BadConfig, StoreLost, StoreUnavailable
from tessella.core.ids import PeerId

DIRECTORY_MODE = 0o700
FILE_MODE = 0o600
# How long another program's write may keep ours waiting, in milliseconds.
BUSY_MS = 5000
VERSION = 1
SUFFIX = ".proofs.db"

_PRAGMAS = (
    f"busy_timeout = {BUSY_MS}",
    "synchronous = FULL",
    "fullfsync = ON",  # Apple's fsync returns before the disk has it
    "trusted_schema = OFF",
)
# `due` and what is compared with it are of the clock of one run, and 0 at its start. A proof that
# is settled needs its bytes no more.
_TABLES = (
    """
    CREATE TABLE book (
        id INTEGER PRIMARY KEY CHECK (id = 1),
        worker TEXT NOT NULL,
        next_sequence INTEGER NOT NULL CHECK (next_sequence > 0),
        previous BLOB NOT NULL CHECK (length(previous) IN (0, 32)),
        sessions INTEGER NOT NULL DEFAULT 0 CHECK (sessions >= 0),
        layer_positions INTEGER NOT NULL DEFAULT 0 CHECK (layer_positions >= 0),
        unsettled INTEGER NOT NULL DEFAULT 0 CHECK (unsettled >= 0),
        paid INTEGER NOT NULL DEFAULT 0 CHECK (paid >= 0),
        refused INTEGER NOT NULL DEFAULT 0 CHECK (refused >= 0),
        micro INTEGER NOT NULL DEFAULT 0 CHECK (micro >= 0),
        probes INTEGER NOT NULL DEFAULT 0,
        CHECK (sessions = unsettled + paid + refused)
    ) STRICT
    """,
    """
    CREATE TABLE proofs (
        sequence INTEGER PRIMARY KEY,
        request_id BLOB NOT NULL UNIQUE CHECK (length(request_id) = 16),
        payload BLOB NOT NULL,
        signature BLOB NOT NULL,
        layer_positions INTEGER NOT NULL CHECK (layer_positions > 0),
        made_at REAL NOT NULL,
        state TEXT NOT NULL CHECK (state IN ('new', 'waiting', 'paid', 'refused')),
        due REAL NOT NULL,
        asks INTEGER NOT NULL DEFAULT 0 CHECK (asks >= 0),
        micro INTEGER NOT NULL DEFAULT 0 CHECK (micro >= 0),
        code TEXT NOT NULL DEFAULT '',
        text TEXT NOT NULL DEFAULT '',
        settled_at REAL,
        CHECK ((settled_at IS NULL) = (state IN ('new', 'waiting'))),
        CHECK (state IN ('paid', 'refused') OR (length(payload) > 0 AND length(signature) = 64)),
        CHECK (micro = 0 OR state = 'paid')
    ) STRICT
    """,
    "CREATE INDEX unsettled ON proofs (due) WHERE settled_at IS NULL",
    "CREATE INDEX settled ON proofs (settled_at, sequence) WHERE settled_at IS NOT NULL",
    f"PRAGMA user_version = {VERSION}",
)
# A disk without room, and another program that writes: both may be over a moment later. The index
# beside the log is grown by writing to it, so where it cannot be, there is no room either.
_PASSING = {sqlite3.SQLITE_FULL, sqlite3.SQLITE_BUSY}
_PASSING_EXTENDED = {sqlite3.SQLITE_IOERR_SHMSIZE}
# What an operator can mend: a path that is no file of ours.
_MISTAKES = {
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_NOTADB,
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_READONLY,
}
# The plain code is the lowest byte of an extended one.
_PLAIN = 0xFF


def book_path(key: Path) -> Path:
    """Where the book of the node with this key file is: beside it."""
    return key.with_name(key.stem + SUFFIX)


def open_to_write(path: Path, worker: PeerId, now: float) -> tuple[sqlite3.Connection, int]:
    """The book, made if missing with its directory, and its lock: ours alone until both are closed.

    `now`, in seconds since 1970, is where the sequence of a fresh one begins, in milliseconds: a
    book that was lost never has its numbers used again. Raises BadConfig that names the file where
    it is in use, another node's, or no book; StoreUnavailable where the disk is full.
    """
    lock = _prepare(path)
    try:
        with naming(path, mistakes=True):
            db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            try:
                _set_up(db, path, worker, now)
            except BaseException:
                db.close()
                raise
    except BaseException:
        os.close(lock)
        raise
    return db, lock


def open_to_read(path: Path) -> sqlite3.Connection:
    """The book beside whoever writes it. Raises FileNotFoundError, BadConfig, StoreLost."""
    if not path.exists():
        raise FileNotFoundError(path)
    with naming(path, mistakes=True):
        uri = f"file:{quote(str(path.resolve()))}?mode=ro"
        db = sqlite3.connect(uri, uri=True, isolation_level=None)
        db.execute(f"PRAGMA busy_timeout = {BUSY_MS}")
        _check_version(db, path)
    return db


def _prepare(path: Path) -> int:
    """Make what is missing, with no rights for others, and take the lock: a file descriptor."""
    lock = None
    try:
        path.parent.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
        beside = path.with_name(f"{path.name}.lock")
        lock = os.open(beside, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE))
        _sync_directory(path.parent)
    except OSError as exc:
        if lock is not None:
            os.close(lock)
        if isinstance(exc, BlockingIOError):
            raise BadConfig(f"the proofs in {path} are in use by another node") from None
        raise BadConfig(f"cannot write the proofs {path}: {exc.strerror}") from exc
    return lock


def _sync_directory(directory: Path) -> None:
    """A file that is not in its directory after a power cut is not there."""
    handle = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _set_up(db: sqlite3.Connection, path: Path, worker: PeerId, now: float) -> None:
    for pragma in _PRAGMAS:
        db.execute(f"PRAGMA {pragma}")
    (mode,) = db.execute("PRAGMA journal_mode = WAL").fetchone()
    if mode != "wal":
        raise BadConfig(f"{path}: SQLite has no write-ahead log there (mode {mode})")
    # After a failed fsync the log may show what the disk does not hold: it is written anew, into
    # the file, before anything builds on it.
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    with transaction(db):
        if db.execute("PRAGMA user_version").fetchone() == (0,):
            for statement in _TABLES:
                db.execute(statement)
            first = (1, worker, int(now * 1000), b"")
            db.execute(
                "INSERT INTO book (id, worker, next_sequence, previous) VALUES (?, ?, ?, ?)", first
            )
        _check_version(db, path)
        (owner,) = db.execute("SELECT worker FROM book").fetchone()
        if owner != worker:
            raise BadConfig(f"the proofs in {path} are of {owner}, and this node is {worker}")
        # What was put off for a while by another run is due at once.
        db.execute("UPDATE proofs SET due = 0 WHERE settled_at IS NULL")


def _check_version(db: sqlite3.Connection, path: Path) -> None:
    (version,) = db.execute("PRAGMA user_version").fetchone()
    if version != VERSION:
        raise BadConfig(f"the proofs in {path} are of version {version}, this program's {VERSION}")


@contextmanager
def transaction(db: sqlite3.Connection) -> Iterator[None]:
    """All of it or nothing; on the disk when it is left."""
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


@contextmanager
def naming(path: Path, *, mistakes: bool = False) -> Iterator[None]:
    """SQLite's errors as ours, naming the file.

    StoreUnavailable for what may be over a moment later, and nothing was written; StoreLost for
    all else, after which nobody knows what was. With `mistakes`, BadConfig for a file that was
    never a book.
    """
    try:
        yield
    except sqlite3.Error as exc:
        code = getattr(exc, "sqlite_errorcode", 0)
        text = f"cannot use the proofs {path}: {exc}"
        if code & _PLAIN in _PASSING or code in _PASSING_EXTENDED:
            raise StoreUnavailable(text) from exc
        if mistakes and code & _PLAIN in _MISTAKES:
            raise BadConfig(text) from exc
        raise StoreLost(text) from exc
