"""Which weights a model is: what the operator published, and what the nodes of a model agree on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from musivum.nodes.registration import Wish
from musivum.nodes.roster import Roster
from tessella.core.errors import BadManifest, TooManyRequests, UnknownManifest
from tessella.core.ids import ModelId
from tessella.core.manifest import Manifest

# Published by one operator; each is at most 192 KiB.
MAX_PUBLISHED = 1024


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Agreed(Manifest):
    """A manifest that knows its contract: of a thousand layers that takes 30 ms to work out, and
    whoever registers many such models would have each list of models take as long for each."""

    agreed: str

    @property
    def contract(self) -> str:
        """The parameter-contract hash, as it was worked out once."""
        return self.agreed

    def __eq__(self, other: object) -> bool:
        """Equal to any manifest of the same model, shape and files."""
        return isinstance(other, Manifest) and _parts(self) == _parts(other)

    def __hash__(self) -> int:
        """As that of a manifest that does not know its contract."""
        return hash(_parts(self))


def _parts(manifest: Manifest) -> tuple[object, ...]:
    return manifest.model, manifest.shape, manifest.files


def _agreed(manifest: Manifest) -> Manifest:
    return _Agreed(
        model=manifest.model,
        shape=manifest.shape,
        files=manifest.files,
        agreed=manifest.contract,
    )


@dataclass(frozen=True, slots=True)
class Known:
    """A manifest, and whether the operator stands behind it."""

    manifest: Manifest
    is_published: bool


class Manifests:
    """The manifests of one mesh. A published one binds every node that registers after it."""

    def __init__(self, roster: Roster, published: Iterable[Manifest] = ()) -> None:
        self._roster = roster
        self._published = {each.model: _agreed(each) for each in published}

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
        self._published[manifest.model] = _agreed(manifest)

    def of(self, model: ModelId) -> Known:
        """The manifest of a model: the published one, or else that of most of its nodes.

        Raises UnknownManifest.
        """
        if model in self._published:
            return Known(self._published[model], is_published=True)
        nodes = [node for node in self._roster.nodes(model) if node.is_here]
        if not nodes:
            raise UnknownManifest(f"no manifest of {model[:200]!r} is known here")
        contracts = Counter(node.row.contract for node in nodes)
        best = max(sorted(contracts), key=lambda contract: contracts[contract])
        wish = next(node.wish for node in nodes if node.row.contract == best)
        return Known(_Agreed(model=model, shape=wish.shape, agreed=best), is_published=False)

    def foremost(self, most: int) -> list[ModelId]:
        """The models that somebody is listed for, by name; of more than `most` those that are
        published, then those of most nodes: anybody may register any number of names."""
        models = self._roster.models()
        if len(models) > most:
            models = sorted(models, key=self._rank)[:most]
        return sorted(models)

    def _rank(self, model: ModelId) -> tuple[bool, int, ModelId]:
        nodes = sum(1 for _ in self._roster.of_model(model))
        return model not in self._published, -nodes, model

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
