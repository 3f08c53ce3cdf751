"""PostgreSQL: many musivums may be started on one database, and one at a time leads.

The leader holds an advisory lock of the session that does all of its writes, so it cannot write
without the lock. When it dies the server ends its session, and a standby that polls gets the lock:

    the process died       at once: its kernel closes the connection
    it hangs, or its host  RELEASE_SECONDS after the server last heard of it
    the link or the server NOTICE_SECONDS after the last answer, which is sooner, the leader
                           itself knows, and stops before another may begin

A pooler between us and the server has to leave sessions whole.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from sqlalchemy import URL, Connection, NullPool, create_engine, text
from sqlalchemy.exc import DBAPIError, OperationalError, SQLAlchemyError

from musivum.store.database import Database, one_line
from tessella.core.errors import BadConfig, StoreUnavailable

APPLICATION = "musivum"
LOCK_KEY = int.from_bytes(hashlib.sha256(b"musivum leader").digest()[:8], "big", signed=True)
# How often a standby asks for the lock.
POLL_SECONDS = 0.5
# How often an idle leader asks whether it still has its session.
CHECK_SECONDS = 2.0
# A connection that is not acknowledged for so long is broken, as seen by us, ...
SILENCE_SECONDS = 8
# ... and all that a leader needs to find out that it is none.
NOTICE_SECONDS = CHECK_SECONDS + SILENCE_SECONDS
# A server waits longer than that: it must not let the next one lead before the last one knows.
RELEASE_SECONDS = 20
# No transaction of ours is long: all the rows there may be are written in a second or two.
STATEMENT_SECONDS = 10
PATIENCE_SECONDS = 15.0
CONNECT_SECONDS = 10

INSTALL = 'PostgreSQL needs a driver that is not installed: pip install "psycopg[binary]"'
DISK_FULL = "53100"

# What our end of the connection does. Words of libpq.
_OURS: Mapping[str, str | int] = {
    "application_name": APPLICATION,
    "client_encoding": "utf8",
    "connect_timeout": CONNECT_SECONDS,
    "target_session_attrs": "read-write",
    "keepalives": 1,
    "keepalives_idle": SILENCE_SECONDS // 2,
    "keepalives_interval": SILENCE_SECONDS // 4,
    "keepalives_count": 2,
    "tcp_user_timeout": SILENCE_SECONDS * 1000,
}
# What the server's end does, where it is new enough to know the word. No unit: milliseconds.
_THEIRS: Mapping[str, str] = {
    "tcp_keepalives_idle": f"{RELEASE_SECONDS // 2}s",
    "tcp_keepalives_interval": f"{RELEASE_SECONDS // 4}s",
    "tcp_keepalives_count": "2",
    "tcp_user_timeout": f"{RELEASE_SECONDS}s",
    "idle_session_timeout": f"{RELEASE_SECONDS}s",
    "idle_in_transaction_session_timeout": f"{RELEASE_SECONDS}s",
    "statement_timeout": f"{STATEMENT_SECONDS}s",
}


class PostgresDatabase(Database):
    """A session; ours alone once `try_lock` said so."""

    patience = PATIENCE_SECONDS
    check_seconds = CHECK_SECONDS

    def __init__(self, url: URL, connection: Connection) -> None:
        super().__init__(name_of(url), connection)
        self._url = url
        self._driver: Any = connection.connection.driver_connection
        self._driver_error: type[Exception] = connection.dialect.loaded_dbapi.Error

    def begin(self) -> None:
        """The driver does, before the first statement."""
        return None

    def is_passing(self, error: BaseException | None) -> bool:
        """A full disk."""
        return getattr(error, "sqlstate", None) == DISK_FULL

    def tell(self, error: SQLAlchemyError) -> str:
        """What an error says, without the password."""
        return _tell(error, self._url)

    def prepare(self) -> None:
        """Set the session up: how long the server waits for us, and that a commit is durable."""
        with self.transaction() as connection:
            known = set(connection.scalars(text("SELECT name FROM pg_settings")))
            for name, value in _THEIRS.items():
                if name in known:
                    _set(connection, name, value)
            if connection.scalar(text("SHOW synchronous_commit")) == "off":
                _set(connection, "synchronous_commit", "on")

    def try_lock(self) -> bool:
        """Whether we lead from here on."""
        with self.transaction() as connection:
            asked = connection.execute(
                text("SELECT pg_try_advisory_lock(:key)").bindparams(key=LOCK_KEY)
            )
            return bool(asked.scalar_one())

    def interrupt(self) -> None:
        """Shut the connection's socket, on which the call under way waits."""
        # It may be closed already: the call under way found out by itself.
        with (
            contextlib.suppress(OSError, self._driver_error),
            socket.socket(fileno=os.dup(self._driver.fileno())) as shared,
        ):
            shared.shutdown(socket.SHUT_RDWR)


def _set(connection: Connection, name: str, value: str) -> None:
    asked = text("SELECT set_config(:name, :value, false)")
    connection.execute(asked, {"name": name, "value": value})


def name_of(url: URL) -> str:
    """A URL without what is secret in it: no user, no password, no options."""
    place = url.host or ""
    port = f":{url.port}" if url.port else ""
    return f"postgresql://{place}{port}/{url.database or ''}"


def connection_options(url: URL) -> dict[str, str | int]:
    """What libpq is told beside the URL, which wins."""
    return {name: value for name, value in _OURS.items() if name not in url.query}


def open_postgres(url: URL) -> PostgresDatabase:
    """Connect. The database is not ours before `try_lock` says so.

    Raises BadConfig where the driver is missing or an option is unknown, and StoreUnavailable
    where nobody answers or we are not let in.
    """
    # It warns of what else failed when a session broke, and that it broke is an error of ours.
    logging.getLogger("psycopg").setLevel(logging.ERROR)
    try:
        engine = create_engine(
            url,
            poolclass=NullPool,
            pool_reset_on_return=None,
            hide_parameters=True,
            connect_args=connection_options(url),
        )
    except ImportError as exc:
        raise BadConfig(INSTALL) from exc
    with _connecting(url):
        database = PostgresDatabase(url, engine.connect())
    try:
        database.prepare()
    except BaseException:
        database.close()
        raise
    return database


@contextmanager
def _connecting(url: URL) -> Iterator[None]:
    try:
        yield
    except OperationalError as exc:
        raise StoreUnavailable(f"{name_of(url)}: {_tell(exc, url)}") from None
    except DBAPIError as exc:
        raise BadConfig(f"{name_of(url)}: {_tell(exc, url)}") from None


def _tell(error: SQLAlchemyError, url: URL) -> str:
    said = one_line(error)
    for secret in (url.password, url.query.get("password")):
        if secret:
            said = said.replace(str(secret), "***")
    return said
