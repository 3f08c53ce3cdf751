"""How the tables came to be: numbered steps, each applied once, in its own transaction.

Append only: a step that was released is never edited, since databases hold what it made. Each is
SQL for both databases, with the words in braces replaced by the database's own.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from sqlalchemy import Connection, insert, select

from musivum.store.schema import MIGRATIONS as APPLIED
from tessella.core.errors import BadConfig

Transaction = Callable[[], AbstractContextManager[Connection]]

# SQLite keeps what it is given in a column, whatever its type, unless the table is STRICT; it
# knows that word since 3.37.
_STRICT = "STRICT" if sqlite3.sqlite_version_info >= (3, 37) else ""
WORDS: Mapping[str, Mapping[str, str]] = {
    "sqlite": {"int": "INTEGER", "real": "REAL", "bytes": "BLOB", "strict": _STRICT},
    "postgresql": {"int": "BIGINT", "real": "DOUBLE PRECISION", "bytes": "BYTEA", "strict": ""},
}


@dataclass(frozen=True, slots=True)
class Migration:
    """One step; its number is its place in the row, from 1."""

    name: str
    sql: tuple[str, ...]


_LIST = """
CREATE TABLE IF NOT EXISTS migrations (
    number {int} PRIMARY KEY CHECK (number > 0),
    name TEXT NOT NULL,
    applied_at {real} NOT NULL
) {strict}
"""

_NODES = """
CREATE TABLE nodes (
    peer_id TEXT NOT NULL PRIMARY KEY,
    model TEXT NOT NULL,
    status TEXT NOT NULL,
    seen_at {real} NOT NULL CHECK (seen_at >= 0),
    rest TEXT NOT NULL
) {strict}
"""

_REPUTATION = """
CREATE TABLE reputation (
    peer_id TEXT NOT NULL PRIMARY KEY,
    joins {int} NOT NULL CHECK (joins >= 0),
    offline {int} NOT NULL CHECK (offline >= 0),
    reports_made {int} NOT NULL CHECK (reports_made >= 0),
    reports_confirmed {int} NOT NULL CHECK (reports_confirmed >= 0),
    accused {int} NOT NULL CHECK (accused >= 0),
    accused_confirmed {int} NOT NULL CHECK (accused_confirmed >= 0)
) {strict}
"""

_MANIFESTS = """
CREATE TABLE manifests (
    model TEXT NOT NULL PRIMARY KEY,
    document {bytes} NOT NULL,
    published_at {real} NOT NULL CHECK (published_at >= 0)
) {strict}
"""

# Append only: a step's place in this row is its number in every database.
MIGRATIONS = (
    Migration("nodes", (_NODES,)),
    Migration("reputation", (_REPUTATION,)),
    Migration("manifests", (_MANIFESTS,)),
)


def migrate(
    transaction: Transaction, name: str, migrations: Sequence[Migration] = MIGRATIONS
) -> None:
    """Apply what is missing. Raises BadConfig for a database that a newer program migrated.

    `transaction()` commits when it is left, and rolls back when it is left by an error; `name` is
    what the database is called in that error.
    """
    with transaction() as connection:
        _run(connection, _LIST)
        applied = set(connection.scalars(select(APPLIED.c.number)))
    newest = max(applied, default=0)
    if newest > len(migrations):
        raise BadConfig(
            f"{name} is of a newer musivum: it is at migration {newest}, and this one knows "
            f"{len(migrations)}"
        )
    for number, migration in enumerate(migrations, start=1):
        if number in applied:
            continue
        with transaction() as connection:
            for sql in migration.sql:
                _run(connection, sql)
            row = {"number": number, "name": migration.name, "applied_at": time.time()}
            connection.execute(insert(APPLIED), row)


def _run(connection: Connection, sql: str) -> None:
    connection.exec_driver_sql(sql.format(**WORDS[connection.dialect.name]))
