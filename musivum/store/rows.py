"""The queries, on a connection that is in a transaction. They know no database by name but one way
to say "put": `INSERT … ON CONFLICT DO UPDATE`, which both of them took up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
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


def apply(connection: Connection, changes: Iterable[Change]) -> None:
    """Write the changes, of which no two have the same key."""
    put: dict[Table, list[dict[str, Any]]] = {NODES: [], REPUTATION: [], MANIFESTS: []}
    dropped: dict[Table, list[dict[str, Any]]] = {NODES: [], REPUTATION: []}
    for change in changes:
        match change:
            case PutNode(node):
                put[NODES].append(node_row(node))
            case PutReputation(reputation):
                put[REPUTATION].append(reputation_row(reputation))
            case PutManifest(manifest):
                put[MANIFESTS].append(manifest_row(manifest))
            case DropNode(peer_id):
                dropped[NODES].append({"gone": peer_id})
            case DropReputation(peer_id):
                dropped[REPUTATION].append({"gone": peer_id})
    for table, rows in put.items():
        _put(connection, table, rows)
    for table, rows in dropped.items():
        _drop(connection, table, rows)


def _put(connection: Connection, table: Table, rows: Sequence[dict[str, Any]]) -> None:
    if not rows:
        return
    here = connection.dialect.name
    insert = sqlite.insert(table) if here == "sqlite" else postgresql.insert(table)
    rest = {column.name: insert.excluded[column.name] for column in table.c[1:]}
    connection.execute(
        insert.on_conflict_do_update(index_elements=[table.c[0]], set_=rest), list(rows)
    )


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
