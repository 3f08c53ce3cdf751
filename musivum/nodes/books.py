"""The state of one mesh, and how it is known again after a restart."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from musivum.clocks import Clocks
from musivum.config import MusivumConfig
from musivum.nodes.manifests import Manifests
from musivum.nodes.node import Node
from musivum.nodes.reputation import Reputations
from musivum.nodes.roster import Roster
from musivum.nodes.saved import restored_node
from musivum.store import Change, DropReputation, Saved, Transacts
from tessella.core.errors import StoreUnavailable, TessellaError
from tessella.core.ids import PeerId
from tessella.core.manifest import decode_manifest
from tessella.core.peers import NodeStatus

logger = logging.getLogger(__name__)


class Keeper(Transacts, Protocol):
    """What outlives a restart: `musivum.store.Store`, or one in memory."""

    async def load(self) -> Saved:
        """All that is kept."""

    async def save(self, *changes: Change) -> None:
        """Write changes, all or none; returns when they are kept. Raises StoreUnavailable."""

    def note(self, *changes: Change) -> None:
        """Write changes soon. Raises StoreUnavailable where too many wait."""


@dataclass(frozen=True, slots=True)
class Books:
    """The state of one mesh. Whoever changes it tells the store."""

    roster: Roster
    manifests: Manifests
    reputations: Reputations
    store: Keeper
    clocks: Clocks


async def open_books(config: MusivumConfig, store: Keeper, clocks: Clocks) -> Books:
    """The state as the store kept it. Raises StoreUnavailable, StoreLost.

    A row of a node that this version cannot read is left out, and logged: the node registers anew.
    A manifest that cannot be read ends the program, since without it other weights would be let in.
    """
    saved = await store.load()
    roster = Roster(config)
    roster.restore(_nodes(saved, config), clocks.now())
    published = [decode_manifest(each.document) for each in saved.manifests]
    reputations = Reputations(saved.reputation, partial(_forget, store))
    return Books(roster, Manifests(roster, published), reputations, store, clocks)


def _nodes(saved: Saved, config: MusivumConfig) -> list[Node]:
    nodes = []
    for each in saved.nodes:
        try:
            node = restored_node(
                each,
                usable_vram_pct=config.usable_vram_pct,
                min_vram_mb=config.least_claim_mb,
            )
        except (TessellaError, ValueError) as exc:
            logger.warning("left out: the row of node %s: %s", each.peer_id, exc)
            continue
        nodes.append(node)
    # If there are too many, those that were gone already are not missed.
    return sorted(nodes, key=_is_offline)[: config.max_nodes]


def _is_offline(node: Node) -> bool:
    return node.status is NodeStatus.OFFLINE


def _forget(store: Keeper, peer_id: PeerId) -> None:
    try:
        store.note(DropReputation(peer_id))
    except StoreUnavailable as exc:
        logger.info("the counters of %s stay in the store: %s", peer_id, exc)
