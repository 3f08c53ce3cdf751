"""What may be done to the records: a value takes the place of the one with its key, or goes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from musivum.store.records import SavedManifest, SavedNode, SavedReputation
from tessella.core.ids import PeerId


@dataclass(frozen=True, slots=True)
class PutNode:
    """The node is this from here on."""

    node: SavedNode


@dataclass(frozen=True, slots=True)
class DropNode:
    """The node is gone. One that is not there is no error."""

    peer_id: PeerId


@dataclass(frozen=True, slots=True)
class PutReputation:
    """The peer's counters are these from here on."""

    reputation: SavedReputation


@dataclass(frozen=True, slots=True)
class DropReputation:
    """The peer is forgotten. One that is not there is no error."""

    peer_id: PeerId


@dataclass(frozen=True, slots=True)
class PutManifest:
    """The model's manifest is this from here on."""

    manifest: SavedManifest


Change: TypeAlias = PutNode | DropNode | PutReputation | DropReputation | PutManifest
# The kind of record and which one: of two changes with one key, the later is all that counts.
Key: TypeAlias = tuple[str, str]


def key_of(change: Change) -> Key:
    """What the change is about."""
    match change:
        case PutNode(node):
            return "node", node.peer_id
        case DropNode(peer_id):
            return "node", peer_id
        case PutReputation(reputation):
            return "reputation", reputation.peer_id
        case DropReputation(peer_id):
            return "reputation", peer_id
        case PutManifest(manifest):
            return "manifest", manifest.model
