"""A store that ends with its program: for tests, and a bootstrap peer, which keeps nothing."""

from __future__ import annotations

from musivum.store.changes import (
    Change,
    DropNode,
    DropReputation,
    PutManifest,
    PutNode,
    PutReputation,
)
from musivum.store.records import Saved, SavedManifest, SavedNode, SavedReputation
from tessella.core.errors import TessellaError
from tessella.core.ids import ModelId, PeerId


class MemoryStore:
    """The methods of `Store`, over dictionaries. Whoever opens it again finds what was written."""

    def __init__(self) -> None:
        self._nodes: dict[PeerId, SavedNode] = {}
        self._reputation: dict[PeerId, SavedReputation] = {}
        self._manifests: dict[ModelId, SavedManifest] = {}
        self.error: TessellaError | None = None
        """What `save` raises, if a test wants it to."""

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
