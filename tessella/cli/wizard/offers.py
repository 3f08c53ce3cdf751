"""The models of a mesh, for whoever has memory to give: what each lacks, and what that takes.

Everything here is a function of what was answered.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.table import Table

from tessella.cli.wizard.bodies import HealthBody, ModelBody, is_name
from tessella.core.layers import LayerRange, holes
from tessella.core.peers import NodeStatus, PeerRow
from tessella.tables import table

# Of a model with more holes the first ones say enough.
SHOWN_RANGES = 4


@dataclass(frozen=True, slots=True)
class Need:
    """Layers that nobody serves or loads, and the claim that holds them."""

    layers: LayerRange
    claim_mb: int | None
    """None where nobody says what a layer costs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """One model of the mesh."""

    model: str
    serving: int = 0
    """Nodes that serve it now."""
    nodes: int = 0
    health: str = "unknown"
    missing: tuple[LayerRange, ...] = ()
    """Layers that nobody serves."""
    need: Need | None = None
    """The first of them that nobody loads either: what a node would be given."""
    replica_mb: int | None = None
    """The claim from which a node is given the whole model; None while that is unknown."""
    floor_mb: int = 0
    """No claim may be smaller."""


def offer_of(model: ModelBody, health: HealthBody | None) -> Offer:
    """What musivum says of a model; without `health`, only what its list says."""
    listed = {"serving": model.active_workers, "nodes": model.workers, "health": model.health}
    return Offer(model=model.model_id, **listed, **(_facts(health) if health else {}))  # type: ignore[arg-type]


def offer_of_health(model: str, health: HealthBody) -> Offer:
    """What musivum says of a model that is in no list."""
    return Offer(model=model, **_facts(health))  # type: ignore[arg-type]


def _facts(health: HealthBody) -> dict[str, object]:
    missing = tuple(hole.layers for hole in health.holes)
    return {
        "missing": missing,
        "need": _need(health),
        "replica_mb": health.replica_claim_mb,
        "floor_mb": health.min_vram_mb,
    }


def _need(health: HealthBody) -> Need | None:
    total = health.total_layers or 0
    missing = [hole.layers for hole in health.holes]
    taken = [*holes(missing, total), *(one.layers for one in health.loading)]
    left = holes(taken, total)
    if not left:
        return None
    known = {hole.layers: hole.claim_mb for hole in health.holes}
    return Need(left[0], known.get(left[0]) or _price(health, left[0]))


def _price(health: HealthBody, layers: LayerRange) -> int | None:
    """The claim by the published formula: never less than the range needs."""
    if health.mem_per_layer_mb is None or health.global_tensor_mb is None:
        return None
    held = len(layers) * health.mem_per_layer_mb + health.global_tensor_mb
    return max(health.min_vram_mb, math.ceil(held * 100 / health.usable_vram_pct))


def offers_of_rows(rows: Iterable[PeerRow]) -> list[Offer]:
    """The models that nodes of the swarm serve, by name. Nobody there says what a layer costs."""
    by_model: dict[str, list[PeerRow]] = {}
    for row in rows:
        # A record is a stranger's: one that contradicts itself is none.
        sound = row.layers.stop <= row.total_layers and is_name(row.model)
        if row.status != NodeStatus.OFFLINE.value and sound:
            by_model.setdefault(row.model, []).append(row)
    return [_offer_of_rows(model, by_model[model]) for model in sorted(by_model)]


def _offer_of_rows(model: str, rows: Sequence[PeerRow]) -> Offer:
    total = max(row.total_layers for row in rows)
    missing = tuple(holes((row.layers for row in rows if row.serves), total))
    left = holes((row.layers for row in rows), total)
    return Offer(
        model=model,
        serving=sum(row.serves for row in rows),
        nodes=len(rows),
        health="incomplete" if missing else "healthy",
        missing=missing,
        need=Need(left[0], None) if left else None,
    )


def offers_table(offers: Sequence[Offer]) -> Table:
    """A numbered row a model; the MB are for the first layers that nobody serves or loads."""
    headings = ("", "model", "nodes", "health", "missing layers", "MB needed")
    rows = [
        (
            number,
            offer.model,
            f"{offer.serving} of {offer.nodes}",
            offer.health,
            ranges_text(offer.missing),
            _need_text(offer),
        )
        for number, offer in enumerate(offers, 1)
    ]
    return table("", headings, rows)


def ranges_text(ranges: Sequence[LayerRange]) -> str:
    """Ranges in a few words."""
    shown = [str(one) for one in ranges[:SHOWN_RANGES]]
    more = len(ranges) - len(shown)
    return ", ".join(shown) + (f", {more} more" if more else "") or "none"


def _need_text(offer: Offer) -> str:
    if offer.need is None:
        return "loading" if offer.missing else "-"
    return "?" if offer.need.claim_mb is None else str(offer.need.claim_mb)
