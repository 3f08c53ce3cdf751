"""Which weights a model is: what the operator published, and what the nodes of a model agree on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from musivum.node import Node
from musivum.registration import Wish
from musivum.roster import Roster
from tessella.core.errors import BadManifest, TooManyRequests, UnknownManifest
from tessella.core.ids import ModelId
from tessella.core.manifest import Manifest
from tessella.core.peers import NodeStatus

# Published by one operator; each is at most 192 KiB.
MAX_PUBLISHED = 1024


@dataclass(frozen=True, slots=True)
class Known:
    """A manifest, and whether the operator stands behind it."""

    manifest: Manifest
    is_published: bool


class Manifests:
    """The manifests of one mesh. A published one binds every node that registers after it."""

    def __init__(self, roster: Roster, published: Iterable[Manifest] = ()) -> None:
        self._roster = roster
        self._published = {each.model: each for each in published}

    def check(self, wish: Wish) -> None:
        """Raises BadManifest for weights other than the published ones."""
        published = self._published.get(wish.model)
        if published is not None and published.contract != wish.contract:
            raise BadManifest(
                f"{wish.model} has the contract {published.contract} in this mesh, not "
                f"{wish.contract}: other weights under its name"
            )

    def check_room(self, model: ModelId) -> None:
        """Raises TooManyRequests where MAX_PUBLISHED other models have a manifest."""
        if model not in self._published and len(self._published) >= MAX_PUBLISHED:
            raise TooManyRequests(f"{MAX_PUBLISHED} models have a manifest already")

    def publish(self, manifest: Manifest) -> None:
        """Bind a model to a manifest, in place of one that it may have."""
        self._published[manifest.model] = manifest

    def of(self, model: ModelId) -> Known:
        """The manifest of a model: the published one, or else that of most of its nodes.

        Raises UnknownManifest.
        """
        if model in self._published:
            return Known(self._published[model], is_published=True)
        nodes = [node for node in self._roster.nodes(model) if _counts(node)]
        if not nodes:
            raise UnknownManifest(f"no manifest of {model[:200]!r} is known here")
        contracts = Counter(node.row.contract for node in nodes)
        best = max(sorted(contracts), key=lambda contract: contracts[contract])
        wish = next(node.wish for node in nodes if node.row.contract == best)
        return Known(Manifest(model=model, shape=wish.shape), is_published=False)

    def all(self) -> list[Known]:
        """The manifests of every model that has one, by its name."""
        models = {*self._published, *self._roster.models()}
        found = []
        for model in sorted(models):
            try:
                found.append(self.of(model))
            except UnknownManifest:
                continue
        return found


def _counts(node: Node) -> bool:
    return node.status is not NodeStatus.OFFLINE
