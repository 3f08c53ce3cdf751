"""Records as rows of their tables, and back.

What of a node no query asks for is one JSON object in the column `rest`, each field by its name.
A field that is missing, unknown or of another type is not guessed at: the row is refused, and
StoreLost names it. A field that comes or goes needs a migration that rewrites the column.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from musivum.store.records import SavedManifest, SavedNode, SavedReputation
from tessella.core.errors import BadFrame, StoreLost
from tessella.core.fields import from_plain, to_plain
from tessella.core.ids import ModelId, PeerId
from tessella.core.layers import LayerRange

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rest:
    contract: str
    layers: LayerRange
    addrs: tuple[str, ...]
    api_url: str
    device: str
    dtype: str
    claim_mb: int
    context: int
    slots: int
    kv: str
    shape: str
    joined_at: float
    is_ready: bool
    queue_depth: int
    step_ms: float
    target: LayerRange | None
    weights: str
    canary: bool


_REST_NAMES = tuple(field.name for field in fields(_Rest))


def node_row(node: SavedNode) -> dict[str, Any]:
    """A node as a row of `nodes`."""
    values = {name: getattr(node, name) for name in _REST_NAMES}
    rest = _Rest(**{**values, "shape": node.shape.decode()})
    plain = dict(zip(_REST_NAMES, to_plain(rest), strict=True))
    return {
        "peer_id": node.peer_id,
        "model": node.model,
        "status": node.status,
        "seen_at": node.seen_at,
        # In ASCII: what peers call themselves may hold what a database keeps in no text.
        "rest": json.dumps(plain, separators=(",", ":"), allow_nan=False),
    }


def read_node(row: Row) -> SavedNode:
    """The inverse. Raises StoreLost that names the row."""
    try:
        plain = json.loads(row["rest"])
        if not isinstance(plain, dict) or plain.keys() != set(_REST_NAMES):
            raise ValueError(f"not the fields of a node: {_difference(plain)}")
        rest = from_plain(_Rest, [plain[name] for name in _REST_NAMES])
        values = {name: getattr(rest, name) for name in _REST_NAMES}
        return SavedNode(
            peer_id=PeerId(row["peer_id"]),
            model=ModelId(row["model"]),
            status=row["status"],
            seen_at=row["seen_at"],
            **{**values, "shape": rest.shape.encode()},
        )
    except (ValueError, RecursionError, BadFrame) as exc:
        raise _unreadable("nodes", row["peer_id"], exc) from exc


def _difference(plain: object) -> str:
    if not isinstance(plain, dict):
        return f"{type(plain).__name__} instead of an object"
    return ", ".join(sorted(plain.keys() ^ set(_REST_NAMES)))[:200]


def reputation_row(reputation: SavedReputation) -> dict[str, Any]:
    """A peer's counters as a row of `reputation`."""
    return asdict(reputation)


def read_reputation(row: Row) -> SavedReputation:
    """The inverse. Raises StoreLost that names the row."""
    try:
        return SavedReputation(**row)
    except ValueError as exc:
        raise _unreadable("reputation", row["peer_id"], exc) from exc


def manifest_row(manifest: SavedManifest) -> dict[str, Any]:
    """A manifest as a row of `manifests`."""
    return asdict(manifest)


def read_manifest(row: Row) -> SavedManifest:
    """The inverse. Raises StoreLost that names the row."""
    try:
        return SavedManifest(**row)
    except ValueError as exc:
        raise _unreadable("manifests", row["model"], exc) from exc


def _unreadable(table: str, key: str, error: Exception) -> StoreLost:
    return StoreLost(f"cannot read row {key!r} of {table}: {error}")
