"""Databases of any age become today's, with what is in them; those of tomorrow are left alone."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import inspect

from musivum.ledger.kept import State
from musivum.ledger.sweeping import read_due
from musivum.store.codec import node_row
from musivum.store.migrations import MIGRATIONS, Migration, migrate
from musivum.store.records import Saved, SavedNode
from musivum.store.schema import METADATA
from musivum.store.sqlite import SqliteDatabase, open_sqlite
from tessella.core.errors import BadConfig, StoreLost

# A database as the first migration left it.
FIRST = """
CREATE TABLE migrations (
    number INTEGER PRIMARY KEY CHECK (number > 0),
    name TEXT NOT NULL,
    applied_at REAL NOT NULL
) STRICT;
CREATE TABLE nodes (
    peer_id TEXT NOT NULL PRIMARY KEY,
    model TEXT NOT NULL,
    status TEXT NOT NULL,
    seen_at REAL NOT NULL CHECK (seen_at >= 0),
    rest TEXT NOT NULL
) STRICT;
INSERT INTO migrations VALUES (1, 'nodes', 1700000000.0);
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "musivum.db"


@pytest.fixture
def database(path: Path) -> Iterator[SqliteDatabase]:
    opened = open_sqlite(path)
    yield opened
    opened.close()


def applied(path: Path) -> list[tuple[int, str]]:
    with closing(sqlite3.connect(path)) as raw:
        return raw.execute("SELECT number, name FROM migrations ORDER BY number").fetchall()


def test_an_old_database_is_brought_up_with_its_data(
    path: Path, a_node: Callable[..., SavedNode]
) -> None:
    node = a_node(weights="")
    row = node_row(node)
    # Of that age, a node said less.
    less = row["rest"].replace(',"weights":"","canary":false', "")
    with closing(sqlite3.connect(path)) as raw:
        raw.executescript(FIRST)
        sql = "INSERT INTO nodes VALUES (:peer_id, :model, :status, :seen_at, :rest)"
        raw.execute(sql, {**row, "rest": less})
        raw.commit()
    with closing(open_sqlite(path)) as database:
        database.migrate()
        assert database.read() == Saved(nodes=(node,))
    assert applied(path)[:3] == [(1, "nodes"), (2, "reputation"), (3, "manifests")]
    assert len(applied(path)) == len(MIGRATIONS)


def test_a_step_may_rewrite_what_is_there(
    database: SqliteDatabase, path: Path, a_node: Callable[..., SavedNode]
) -> None:
    database.migrate()
    with database.transaction() as connection:
        row = node_row(a_node())
        columns = ", ".join(f":{name}" for name in row)
        connection.exec_driver_sql(f"INSERT INTO nodes VALUES ({columns})", row)
    step = Migration("status", ("UPDATE nodes SET status = 'Offline'",))
    migrate(database.transaction, "here", [*MIGRATIONS, step])
    migrate(database.transaction, "here", [*MIGRATIONS, step])
    assert database.read().nodes[0].status == "Offline"
    assert applied(path)[-1] == (len(MIGRATIONS) + 1, "status")


def test_a_step_that_fails_leaves_nothing_behind(database: SqliteDatabase, path: Path) -> None:
    database.migrate()
    broken = Migration(
        "broken", ("CREATE TABLE half (a INTEGER)", "INSERT INTO nowhere VALUES (1)")
    )
    with pytest.raises(StoreLost, match="no such table: nowhere"):
        migrate(database.transaction, "here", [*MIGRATIONS, broken])
    assert len(applied(path)) == len(MIGRATIONS)
    with closing(sqlite3.connect(path)) as raw:
        assert raw.execute("SELECT name FROM sqlite_master WHERE name = 'half'").fetchall() == []


def test_the_database_of_a_newer_program_is_refused_and_left_as_it_is(
    database: SqliteDatabase, path: Path
) -> None:
    database.migrate()
    with database.transaction() as connection:
        connection.exec_driver_sql("INSERT INTO migrations VALUES (40, 'tomorrow', 0.0)")
        connection.exec_driver_sql("DELETE FROM migrations WHERE number = 3")
    with pytest.raises(BadConfig) as caught:
        database.migrate()
    assert str(caught.value) == (
        f"{path} is of a newer musivum: it is at migration 40, and this one knows {len(MIGRATIONS)}"
    )
    known = [number for number in range(1, len(MIGRATIONS) + 1) if number != 3]
    assert [number for number, _ in applied(path)] == [*known, 40]


def test_queries_know_the_tables_that_migrations_make(database: SqliteDatabase) -> None:
    database.migrate()
    with database.transaction() as connection:
        found = inspect(connection)
        made = {
            table: [column["name"] for column in found.get_columns(table)]
            for table in found.get_table_names()
        }
    assert made == {table.name: list(table.c.keys()) for table in METADATA.tables.values()}


def proof_row(**changes: str) -> str:
    """The SQL of a row of `proofs`, with one value that is none."""
    row = {
        "request_id": "zeroblob(16)",
        "worker": "'w'",
        "issuer": "'i'",
        "digest": "zeroblob(32)",
        "previous": "NULL",
        "sequence": "0",
        "place": "0",
        "state": "'paid'",
        "micro": "0",
        "received_at": "0.0",
        "keep_until": "NULL",
        "payload": "x'00'",
        "signature": "x'00'",
        "origin": "'i'",
        "entry": "0",
        **changes,
    }
    return f"INSERT INTO proofs ({', '.join(row)}) VALUES ({', '.join(row.values())})"


BAD_ROWS = [
    "INSERT INTO reputation VALUES ('a', -1, 0, 0, 0, 0, 0)",
    "INSERT INTO reputation VALUES ('a', 'many', 0, 0, 0, 0, 0)",
    "INSERT INTO reputation VALUES (NULL, 0, 0, 0, 0, 0, 0)",
    "INSERT INTO nodes VALUES ('a', 'toy', 'Healthy', -1.0, '{}')",
    "INSERT INTO manifests VALUES ('toy', 'text', 0.0)",
    "INSERT INTO manifests VALUES ('toy', x'00', -1.0)",
    "INSERT INTO entries VALUES ('o', -1, zeroblob(32), x'00')",
    "INSERT INTO entries VALUES ('o', 0, x'00', x'00')",
    "INSERT INTO entries VALUES ('o', 0, zeroblob(32), x'')",
    "INSERT INTO tree VALUES ('o', 0, 0, zeroblob(32))",
    "INSERT INTO balances VALUES ('a', 0, -1, 0, 0)",
    "INSERT INTO balances VALUES ('a', 'many', 0, 0, 0)",
    "INSERT INTO minted VALUES (1, 'w', '', -1)",
    "INSERT INTO earned VALUES ('a', 1, -1)",
    proof_row(state="'owned'"),
    proof_row(request_id="zeroblob(15)"),
    proof_row(digest="zeroblob(31)"),
    proof_row(previous="zeroblob(31)"),
    proof_row(micro="-1"),
    proof_row(payload="NULL"),
    proof_row(due_at="-1.0"),
]


@pytest.mark.parametrize("sql", BAD_ROWS)
def test_the_tables_hold_the_rules_themselves(database: SqliteDatabase, sql: str) -> None:
    database.migrate()
    with pytest.raises(StoreLost), database.transaction() as connection:
        connection.exec_driver_sql(sql)


def test_what_waited_before_there_was_a_time_for_it_is_looked_at_in_time(
    database: SqliteDatabase,
) -> None:
    before = [migration.name for migration in MIGRATIONS].index("waiting")
    migrate(database.transaction, "here", MIGRATIONS[:before])
    with database.transaction() as connection:
        connection.exec_driver_sql(proof_row(state="'waiting'", received_at="1800000000.0"))
    database.migrate()
    with database.transaction() as connection:
        (kept,) = read_due(connection, 1_800_000_900.0)
        assert (kept.state, kept.due_at) == (State.WAITING, 1_800_000_900.0)
        assert read_due(connection, 1_800_000_899.0) == []
        plan = connection.exec_driver_sql(
            "EXPLAIN QUERY PLAN SELECT * FROM proofs WHERE state = 'waiting' AND due_at <= 1.0 "
            "ORDER BY due_at LIMIT 256"
        ).all()
    assert [row.detail for row in plan] == ["SEARCH proofs USING INDEX proofs_due (due_at<?)"]


TWICE = [
    (proof_row(), proof_row(digest="randomblob(32)")),
    (
        proof_row(previous="zeroblob(32)"),
        proof_row(previous="zeroblob(32)", request_id="randomblob(16)"),
    ),
]


@pytest.mark.parametrize(("first", "second"), TWICE, ids=["of a request", "after a proof"])
def test_a_worker_has_one_proof(database: SqliteDatabase, first: str, second: str) -> None:
    database.migrate()
    with database.transaction() as connection:
        connection.exec_driver_sql(first)
    with pytest.raises(StoreLost, match="UNIQUE"), database.transaction() as connection:
        connection.exec_driver_sql(second)


def test_first_proofs_of_fresh_books_are_after_none(database: SqliteDatabase) -> None:
    database.migrate()
    with database.transaction() as connection:
        connection.exec_driver_sql(proof_row())
        connection.exec_driver_sql(proof_row(request_id="randomblob(16)"))
        connection.exec_driver_sql(proof_row(worker="'another'", previous="zeroblob(32)"))
        connection.exec_driver_sql(proof_row(worker="'third'", previous="zeroblob(32)"))
        assert connection.exec_driver_sql("SELECT count(*) FROM proofs").scalar() == 4


def test_every_row_of_migrations_is_one_step_with_a_name() -> None:
    names = [migration.name for migration in MIGRATIONS]
    first = ["nodes", "reputation", "manifests", "ledger", "balances", "proofs"]
    assert names[: len(first)] == first, "append only"
    assert len(set(names)) == len(names)
    assert json.dumps(names).isascii()
