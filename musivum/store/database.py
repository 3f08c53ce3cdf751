"""One connection, used by one thread at a time, and whose fault it is when it fails."""

from __future__ import annotations

import contextlib
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from musivum.store import migrations, rows
from musivum.store.changes import Change
from musivum.store.records import Saved
from tessella.core.errors import StoreLost, StoreUnavailable


class Database(ABC):
    """What the store needs of a database. No two methods at once, `interrupt` excepted.

    Errors: StoreUnavailable when nothing was written and a later try may work; StoreLost for all
    else, after which the only thing left is `close`. A connection that broke is never replaced:
    what was locked through it no longer is.
    """

    patience = math.inf
    """Seconds after which a call that did not return is interrupted."""
    check_seconds = math.inf
    """How often `check` is called while nothing is written."""

    def __init__(self, name: str, connection: Connection) -> None:
        self.name = name
        """What it is called in errors and logs: its place, without a user or a password."""
        self.connection = connection
        self.lost = ""
        """Why it may be used no more; empty while it may."""

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """All or nothing: committed, durably, when it is left, or rolled back by an error."""
        if self.lost:
            raise StoreLost(self.lost)
        with self.our_errors(), self.connection.begin():
            self.begin()
            yield self.connection

    @contextmanager
    def our_errors(self) -> Iterator[None]:
        """The errors of the database become ours."""
        try:
            yield
        except SQLAlchemyError as exc:
            text = f"{self.name}: {self.tell(exc)}"
            if isinstance(exc, DBAPIError) and self.is_passing(exc.orig):
                raise StoreUnavailable(text) from exc
            self.lost = text
            raise StoreLost(text) from exc

    def tell(self, error: SQLAlchemyError) -> str:
        """What an error says, in one line, without what was being written."""
        return one_line(error)

    @abstractmethod
    def begin(self) -> None:
        """Begin a transaction, where the driver does not by itself."""

    @abstractmethod
    def is_passing(self, error: BaseException | None) -> bool:
        """Whether nothing is wrong with the database but that it cannot write now."""

    def try_lock(self) -> bool:
        """Whether this database is ours alone from here on, until it is closed or we die."""
        return True

    def migrate(self) -> None:
        """Bring the tables up to what this program knows. Raises BadConfig if they are beyond."""
        migrations.migrate(self.transaction, self.name)

    def read(self) -> Saved:
        """All that is kept."""
        with self.transaction() as connection:
            return rows.read(connection)

    def apply(self, changes: Iterable[Change]) -> None:
        """Write changes in one transaction; returns when they are on the disk."""
        with self.transaction() as connection:
            rows.apply(connection, changes)

    def transact(self, work: Callable[[Connection], None]) -> None:
        """Let a caller read and write in one transaction; returns when it is on the disk."""
        with self.transaction() as connection:
            work(connection)

    def check(self) -> None:
        """Raises StoreLost if the database is no longer ours."""
        with self.transaction() as connection:
            connection.exec_driver_sql("SELECT 1")

    def interrupt(self) -> None:
        """From another thread: make the call under way fail soon, where that is possible."""
        return None

    def close(self) -> None:
        """Let go of it, whatever state it is in."""
        with contextlib.suppress(SQLAlchemyError):
            self.connection.close()
        self.connection.engine.dispose()


def one_line(error: SQLAlchemyError) -> str:
    """What a driver's error says, without SQL and parameters, in one line."""
    said = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    return " ".join(str(said).split()) or type(said).__name__
