"""SQLite: one file, one connection that writes and checkpoints, one musivum at a time.

A commit returns when the write-ahead log is on the disk (synchronous=FULL). Others may read the
file meanwhile, and a backup be taken; a second musivum is kept out by a lock on a file beside it,
which ends with the process, however that ends.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import URL, Connection, NullPool, create_engine
from sqlalchemy.exc import DBAPIError

from musivum.store.database import Database, one_line
from tessella.core.errors import BadConfig, StoreLost, StoreUnavailable

DIRECTORY_MODE = 0o700
FILE_MODE = 0o600
# How long another program's write may keep ours waiting, in milliseconds.
BUSY_MS = 5000
# The write-ahead log is written back into the file once it has so many pages of 4 KiB.
CHECKPOINT_PAGES = 1000

# In this order: the mode is a property of the file, the others of the connection.
_PRAGMAS = (
    f"busy_timeout = {BUSY_MS}",
    "synchronous = FULL",
    "fullfsync = ON",  # Apple's fsync returns before the disk has it
    "foreign_keys = ON",
    f"wal_autocheckpoint = {CHECKPOINT_PAGES}",
)
# A disk without room, and another program that writes: both may be over a moment later. The index
# beside the log is grown by writing to it, so where it cannot be, there is no room either.
_PASSING = {sqlite3.SQLITE_FULL, sqlite3.SQLITE_BUSY}
_PASSING_EXTENDED = {sqlite3.SQLITE_IOERR_SHMSIZE}
# The plain code is the lowest byte of an extended one.
_PLAIN = 0xFF
# What an operator can mend: a path that is no file of ours.
_MISTAKES = {
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_NOTADB,
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_READONLY,
}


class SqliteDatabase(Database):
    """A file whose lock we hold."""

    def __init__(self, path: Path, connection: Connection, lock: int) -> None:
        super().__init__(str(path), connection)
        self._lock = lock

    def begin(self) -> None:
        """As a writer, so that a wait for another one is at the start, and bounded."""
        self.connection.exec_driver_sql("BEGIN IMMEDIATE")

    def is_passing(self, error: BaseException | None) -> bool:
        """A full disk, or another program that writes."""
        return _is_passing(_code(error))

    def prepare(self) -> None:
        """Set the connection up. Raises BadConfig where there can be no write-ahead log."""
        for pragma in _PRAGMAS:
            self.connection.exec_driver_sql(f"PRAGMA {pragma}")
        mode = self.connection.exec_driver_sql("PRAGMA journal_mode = WAL").scalar()
        if mode != "wal":
            raise BadConfig(f"{self.name}: SQLite has no write-ahead log there (mode {mode})")
        # After a failed fsync the log may show what the disk does not hold: it is written anew,
        # into the file, before anything builds on it.
        self.connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
        self.connection.rollback()

    def close(self) -> None:
        """The last connection to close writes the log back; then the file is anyone's."""
        try:
            super().close()
        finally:
            os.close(self._lock)


def open_sqlite(path: Path) -> SqliteDatabase:
    """Open the file, made if missing with its directory, for us alone until it is closed.

    Raises BadConfig that names the file: it is in use by another musivum, cannot be written, or
    is not a database; StoreUnavailable where the disk is full or another program writes.
    """
    path = path.expanduser().resolve()
    lock = _prepare_file(path)
    try:
        engine = create_engine(
            URL.create("sqlite", database=str(path)),
            poolclass=NullPool,
            pool_reset_on_return=None,
            hide_parameters=True,
            # None: we begin transactions ourselves. The driver would not for CREATE TABLE.
            connect_args={"isolation_level": None, "check_same_thread": False},
        )
        with _mistakes(path):
            database = SqliteDatabase(path, engine.connect(), lock)
    except BaseException:
        os.close(lock)
        raise
    try:
        with _mistakes(path):
            database.prepare()
    except BaseException:
        database.close()
        raise
    return database


def _prepare_file(path: Path) -> int:
    """Make what is missing, with no rights for others, and take the lock: a file descriptor."""
    beside = path.with_name(f"{path.name}.lock")
    lock = None
    try:
        path.parent.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
        lock = os.open(beside, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE))
    except OSError as exc:
        if lock is not None:
            os.close(lock)
        if isinstance(exc, BlockingIOError):
            raise BadConfig(f"the database {path} is in use by another musivum") from None
        raise BadConfig(f"cannot write the database {path}: {exc.strerror}") from exc
    return lock


@contextmanager
def _mistakes(path: Path) -> Iterator[None]:
    """What is wrong with a file that was never open is an operator's to mend, if anyone's."""
    try:
        yield
    except DBAPIError as exc:
        text, code = f"cannot use the database {path}: {one_line(exc)}", _code(exc.orig)
        if _is_passing(code):
            raise StoreUnavailable(text) from exc
        if code & _PLAIN in _MISTAKES:
            raise BadConfig(text) from exc
        raise StoreLost(text) from exc


def _code(error: BaseException | None) -> int:
    """SQLite's extended code."""
    return int(getattr(error, "sqlite_errorcode", 0))


def _is_passing(code: int) -> bool:
    return code & _PLAIN in _PASSING or code in _PASSING_EXTENDED
