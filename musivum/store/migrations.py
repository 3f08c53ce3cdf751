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

_LEDGERS = """
CREATE TABLE ledgers (
    origin TEXT NOT NULL PRIMARY KEY,
    size {int} NOT NULL CHECK (size >= 0),
    last {bytes} NOT NULL CHECK (length(last) = 32),
    peaks {bytes} NOT NULL CHECK ((length(peaks) & 31) = 0),
    head {bytes} NOT NULL,
    head_signature {bytes} NOT NULL CHECK (length(head_signature) IN (0, 64)),
    head_size {int} NOT NULL CHECK (head_size BETWEEN 0 AND size),
    head_at {real} NOT NULL CHECK (head_at >= 0),
    checked_size {int} NOT NULL CHECK (checked_size BETWEEN 0 AND size),
    checked_last {bytes} NOT NULL CHECK (length(checked_last) = 32),
    checked_peaks {bytes} NOT NULL CHECK ((length(checked_peaks) & 31) = 0)
) {strict}
"""

_ENTRIES = """
CREATE TABLE entries (
    origin TEXT NOT NULL,
    sequence {int} NOT NULL CHECK (sequence >= 0),
    hash {bytes} NOT NULL CHECK (length(hash) = 32),
    payload {bytes} NOT NULL CHECK (length(payload) > 0),
    PRIMARY KEY (origin, sequence)
) {strict}
"""

_TREE = """
CREATE TABLE tree (
    origin TEXT NOT NULL,
    level {int} NOT NULL CHECK (level > 0),
    place {int} NOT NULL CHECK (place >= 0),
    hash {bytes} NOT NULL CHECK (length(hash) = 32),
    PRIMARY KEY (origin, level, place)
) {strict}
"""

# No limit below: entries of other musivums are merged as they are, and what an account spent
# there and here at the same time may be more than it had. Our own entries keep to it by themselves.
_BALANCES = """
CREATE TABLE balances (
    account TEXT NOT NULL PRIMARY KEY,
    micro {int} NOT NULL,
    earned {int} NOT NULL CHECK (earned >= 0),
    spent {int} NOT NULL CHECK (spent >= 0),
    checked {int} NOT NULL
) {strict}
"""

_EARNED = """
CREATE TABLE earned (
    account TEXT NOT NULL,
    hour {int} NOT NULL CHECK (hour >= 0),
    micro {int} NOT NULL CHECK (micro >= 0),
    PRIMARY KEY (account, hour)
) {strict}
"""

_MINTED = """
CREATE TABLE minted (
    day {int} NOT NULL CHECK (day >= 0),
    worker TEXT NOT NULL,
    requester TEXT NOT NULL,
    micro {int} NOT NULL CHECK (micro >= 0),
    PRIMARY KEY (day, worker, requester)
) {strict}
"""

# One proof of a worker for a request, and one after another proof of it: the first of a fresh book
# comes after none, which is NULL, and two of these are no conflict.
_PROOFS = """
CREATE TABLE proofs (
    request_id {bytes} NOT NULL CHECK (length(request_id) = 16),
    worker TEXT NOT NULL,
    issuer TEXT NOT NULL,
    digest {bytes} NOT NULL CHECK (length(digest) IN (0, 32)),
    previous {bytes} CHECK (length(previous) = 32),
    sequence {int} NOT NULL CHECK (sequence >= 0),
    place {int} NOT NULL CHECK (place >= 0),
    state TEXT NOT NULL CHECK (state IN ('waiting', 'paid', 'refused')),
    micro {int} NOT NULL CHECK (micro >= 0),
    received_at {real} NOT NULL CHECK (received_at >= 0),
    keep_until {real} CHECK (keep_until >= 0),
    payload {bytes} NOT NULL,
    signature {bytes} NOT NULL,
    origin TEXT NOT NULL,
    entry {int} CHECK (entry >= 0),
    PRIMARY KEY (request_id, worker, issuer)
) {strict}
"""
_ONE_AFTER_EACH = "CREATE UNIQUE INDEX proofs_previous ON proofs (previous, worker)"
_WAITING = "CREATE INDEX proofs_waiting ON proofs (received_at) WHERE state = 'waiting'"
_WAITING_OF = "CREATE INDEX proofs_waiting_of ON proofs (worker) WHERE state = 'waiting'"
_KEPT = "CREATE INDEX proofs_kept ON proofs (keep_until) WHERE keep_until IS NOT NULL"

_STANDINGS = """
CREATE TABLE standings (
    peer_id TEXT NOT NULL PRIMARY KEY,
    hops {int} NOT NULL CHECK (hops >= 0),
    suspect_left {int} NOT NULL CHECK (suspect_left >= 0),
    barred_until {real} NOT NULL CHECK (barred_until >= 0),
    owed {int} NOT NULL CHECK (owed >= 0),
    fined {int} NOT NULL CHECK (fined >= 0),
    rest TEXT NOT NULL
) {strict}
"""

_EPOCHS = """
CREATE TABLE epochs (
    number {int} NOT NULL PRIMARY KEY CHECK (number > 0),
    secret {bytes} NOT NULL CHECK (length(secret) = 32),
    began_at {real} NOT NULL CHECK (began_at >= 0)
) {strict}
"""

_PARTNERS = """
CREATE TABLE partners (
    origin TEXT NOT NULL PRIMARY KEY,
    goal {bytes} NOT NULL,
    latest {bytes} NOT NULL,
    evidence {bytes} NOT NULL,
    reason TEXT NOT NULL,
    slashes {int} NOT NULL CHECK (slashes >= 0),
    reversals {int} NOT NULL CHECK (reversals >= 0)
) {strict}
"""

# What a node says of its weights, and that it is a canary, where it said nothing of that.
_SAID_OF_NODES = """
UPDATE nodes
SET rest = substr(rest, 1, length(rest) - 1) || ',"weights":"","canary":false}}'
"""

# When time decides what waits.
_DUE = "ALTER TABLE proofs ADD COLUMN due_at {real} NOT NULL DEFAULT 0 CHECK (due_at >= 0)"
_DUE_OF_OLD = "UPDATE proofs SET due_at = received_at + 900"
_NOT_BY_AGE = "DROP INDEX proofs_waiting"
_BY_DUE = "CREATE INDEX proofs_due ON proofs (due_at) WHERE state = 'waiting'"

# Append only: a step's place in this row is its number in every database.
MIGRATIONS = (
    Migration("nodes", (_NODES,)),
    Migration("reputation", (_REPUTATION,)),
    Migration("manifests", (_MANIFESTS,)),
    Migration("ledger", (_LEDGERS, _ENTRIES, _TREE)),
    Migration("balances", (_BALANCES, _EARNED, _MINTED)),
    Migration("proofs", (_PROOFS, _ONE_AFTER_EACH, _WAITING, _WAITING_OF, _KEPT)),
    Migration("audits", (_STANDINGS, _EPOCHS)),
    Migration("partners", (_PARTNERS,)),
    Migration("canaries", (_SAID_OF_NODES,)),
    Migration("waiting", (_DUE, _DUE_OF_OLD, _NOT_BY_AGE, _BY_DUE)),
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
