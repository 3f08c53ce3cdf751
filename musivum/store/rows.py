"""The queries, on a connection that is in a transaction. They know no database by name but one way
to say "put": `INSERT … ON CONFLICT DO UPDATE`, which both of them took up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

from sqlalchemy import Connection, Table, bindparam, delete, select
from sqlalchemy.dialects import postgresql, sqlite

from musivum.store.changes import (
    Change,
    DropNode,
    DropReputation,
    PutManifest,
    PutNode,
    PutReputation,
)
from musivum.store.codec import (
    Row,
    manifest_row,
    node_row,
    read_manifest,
    read_node,
    read_reputation,
    reputation_row,
)
from musivum.store.records import Saved
from musivum.store.schema import MANIFESTS, NODES, REPUTATION

T = TypeVar("T")

# Parameters of one query: SQLite takes 32,766, PostgreSQL 65,535, and some values are of two.
PART = 4096


def apply(connection: Connection, changes: Iterable[Change]) -> None:
    """Write the changes, of which no two have the same key."""
    kept: dict[Table, list[dict[str, Any]]] = {NODES: [], REPUTATION: [], MANIFESTS: []}
    dropped: dict[Table, list[dict[str, Any]]] = {NODES: [], REPUTATION: []}
    for change in changes:
        match change:
            case PutNode(node):
                kept[NODES].append(node_row(node))
            case PutReputation(reputation):
                kept[REPUTATION].append(reputation_row(reputation))
            case PutManifest(manifest):
                kept[MANIFESTS].append(manifest_row(manifest))
            case DropNode(peer_id):
                dropped[NODES].append({"gone": peer_id})
            case DropReputation(peer_id):
                dropped[REPUTATION].append({"gone": peer_id})
    for table, rows in kept.items():
        put(connection, table, rows)
    for table, rows in dropped.items():
        _drop(connection, table, rows)


def put(connection: Connection, table: Table, rows: Sequence[dict[str, Any]]) -> None:
    """Let rows take the place of those with their keys, of which each is the first column."""
    if not rows:
        return
    insert = _insert(connection, table)
    rest = {column.name: insert.excluded[column.name] for column in table.c[1:]}
    connection.execute(
        insert.on_conflict_do_update(index_elements=[table.c[0]], set_=rest), list(rows)
    )


def parts(values: Iterable[T]) -> Iterator[list[T]]:
    """Values in lists that are short enough to be asked for at once."""
    listed = list(values)
    for start in range(0, len(listed), PART):
        yield listed[start : start + PART]


def add(connection: Connection, table: Table, rows: Sequence[dict[str, Any]]) -> None:
    """Add numbers to the rows of these keys, which begin at 0: to all columns but the keys.

    No two rows have one key.
    """
    if not rows:
        return
    insert = _insert(connection, table)
    amounts = [column for column in table.c if not column.primary_key]
    sums = {column.name: column + insert.excluded[column.name] for column in amounts}
    keys = list(table.primary_key.columns)
    connection.execute(insert.on_conflict_do_update(index_elements=keys, set_=sums), list(rows))


def _insert(connection: Connection, table: Table) -> sqlite.Insert | postgresql.Insert:
    here = connection.dialect.name
    return sqlite.insert(table) if here == "sqlite" else postgresql.insert(table)


def _drop(connection: Connection, table: Table, rows: Sequence[dict[str, Any]]) -> None:
    if rows:
        connection.execute(delete(table).where(table.c[0] == bindparam("gone")), list(rows))


def read(connection: Connection) -> Saved:
    """All that is kept. Raises StoreLost for a row that is none of ours."""
    return Saved(
        nodes=_all(connection, NODES, read_node),
        reputation=_all(connection, REPUTATION, read_reputation),
        manifests=_all(connection, MANIFESTS, read_manifest),
    )


def _all(connection: Connection, table: Table, read_row: Callable[[Row], T]) -> tuple[T, ...]:
    # Sorted here: each database, and each locale of one, orders text its own way.
    found = [row._asdict() for row in connection.execute(select(table))]
    key = table.c[0].name
    return tuple(read_row(row) for row in sorted(found, key=lambda row: str(row[key])))
