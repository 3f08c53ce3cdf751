"""A store that ends with its program: for tests, and a bootstrap peer, which keeps nothing."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TypeVar

import trio
from sqlalchemy import Connection, StaticPool, create_engine

from musivum.store.changes import (
    Change,
    DropNode,
    DropReputation,
    PutManifest,
    PutNode,
    PutReputation,
)
from musivum.store.database import Database
from musivum.store.records import Saved, SavedManifest, SavedNode, SavedReputation
from tessella.core.errors import TessellaError
from tessella.core.ids import ModelId, PeerId

T = TypeVar("T")


class MemoryDatabase(Database):
    """SQLite without a file: what is done in a transaction is SQL here as well."""

    def __init__(self) -> None:
        engine = create_engine(
            "sqlite://",
            poolclass=StaticPool,
            # None: we begin transactions ourselves, as in a file.
            connect_args={"isolation_level": None, "check_same_thread": False},
        )
        super().__init__("memory", engine.connect())

    def begin(self) -> None:
        """The driver does not."""
        self.connection.exec_driver_sql("BEGIN")

    def is_passing(self, error: BaseException | None) -> bool:
        """There is no disk that could be full."""
        return False


class MemoryStore:
    """The methods of `Store`, over dictionaries. Whoever opens it again finds what was written.

    Transactions are of a database in memory, made for the first of them; no thread is used.
    """

    def __init__(self) -> None:
        self._nodes: dict[PeerId, SavedNode] = {}
        self._reputation: dict[PeerId, SavedReputation] = {}
        self._manifests: dict[ModelId, SavedManifest] = {}
        self.error: TessellaError | None = None
        """What `save` and `transact` raise, if a test wants them to."""
        self._database: Database | None = None

    async def load(self) -> Saved:
        """All that is kept."""
        return Saved(
            nodes=tuple(self._nodes.values()),
            reputation=tuple(self._reputation.values()),
            manifests=tuple(self._manifests.values()),
        )

    async def save(self, *changes: Change) -> None:
        """Write changes, all or none."""
        if self.error is not None:
            raise self.error
        self.note(*changes)

    def note(self, *changes: Change) -> None:
        """Write changes."""
        for change in changes:
            match change:
                case PutNode(node):
                    self._nodes[node.peer_id] = node
                case DropNode(peer_id):
                    self._nodes.pop(peer_id, None)
                case PutReputation(reputation):
                    self._reputation[reputation.peer_id] = reputation
                case DropReputation(peer_id):
                    self._reputation.pop(peer_id, None)
                case PutManifest(manifest):
                    self._manifests[manifest.model] = manifest

    async def transact(self, work: Callable[[Connection], T]) -> T:
        """Run `work` in one transaction, which it undoes if it raises."""
        await trio.lowlevel.checkpoint()
        if self.error is not None:
            raise self.error
        if self._database is None:
            self._database = MemoryDatabase()
            self._database.migrate()
            weakref.finalize(self, self._database.close)
        with self._database.transaction() as connection:
            return work(connection)
