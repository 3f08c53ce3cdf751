"""What a model would cost a node, where the asker did not say everything."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from musivum.bodies.mesh import PriceArguments
from musivum.config import MusivumConfig
from musivum.nodes.manifests import Manifests
from musivum.nodes.node import Node
from musivum.nodes.roster import Roster
from tessella.core.formats import KvFormat, WeightFormat
from tessella.core.ids import ModelId
from tessella.core.manifest import Manifest
from tessella.core.plan import MemoryTerms, terms_of


@dataclass(frozen=True, slots=True)
class Price:
    """Prices, and what they are for."""

    terms: MemoryTerms
    contract: str
    device: str
    weights: WeightFormat
    kv: KvFormat
    context: int
    slots: int


def price(
    asked: PriceArguments, manifests: Manifests, roster: Roster, config: MusivumConfig
) -> Price:
    """The prices of a model as asked; what was left out is as most nodes on that device serve it,
    then as this mesh is configured.

    Raises UnknownManifest.
    """
    model = ModelId(asked.model_id)
    manifest = manifests.of(model).manifest
    nodes = [node for node in roster.nodes(model) if _serves(node, manifest)]
    alike = _usual([node for node in nodes if asked.device in (None, node.row.device)])
    device = asked.device or (alike.row.device if alike else "cpu")
    if asked.dtype is not None:
        weights = WeightFormat.parse(asked.dtype)
    elif alike is not None:
        weights = WeightFormat.of(alike.wish.dtype)
    else:
        weights = WeightFormat.F32 if device == "cpu" else WeightFormat.F16
    wish = alike.wish if alike else None
    wanted = asked.context_size or (wish.context if wish else config.context_size)
    context = min(wanted, manifest.shape.context)
    slots = asked.parallel_slots or (wish.slots if wish else config.parallel_slots)
    served = wish.kv.value if wish else config.kv_cache_type
    kv = _kv(asked.kv_cache_type or served, weights)
    terms = terms_of(
        manifest.shape,
        weights,
        context=context,
        slots=slots,
        kv=kv,
        usable_vram_pct=config.usable_vram_pct,
        min_vram_mb=config.least_claim_mb,
    )
    return Price(terms, manifest.contract, device, weights, kv, context, slots)


def _usual(nodes: Sequence[Node]) -> Node | None:
    """One that serves as most of them do, and not the first: what a node says of its context and
    slots costs it nothing, and would be what everybody's claim is sized with."""
    ways = Counter(_way(node) for node in nodes)
    # Of equals the one that comes first.
    return max(nodes, key=lambda node: ways[_way(node)], default=None)


def _way(node: Node) -> tuple[object, ...]:
    wish = node.wish
    return wish.device, wish.dtype, wish.kv, wish.context, wish.slots


def _serves(node: Node, manifest: Manifest) -> bool:
    """Whether the node is one of this model, and not of another that has its name."""
    return node.row.contract == manifest.contract and node.is_here


def _kv(word: str, weights: WeightFormat) -> KvFormat:
    """The type that is asked for; else the serving type, 16 bits where weights are in blocks."""
    if word:
        return KvFormat.parse(word)
    return KvFormat(weights.value) if weights.value in _SERVED else KvFormat.F16


_SERVED = {"f32", "f16", "bf16"}
