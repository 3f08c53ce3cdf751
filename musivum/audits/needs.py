"""What it takes to audit a hop, and the open audits by it: a question is as long as its answer.

A mesh has few needs and may have thousands of audits; most of those who ask hold what one of the
needs takes, or none.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import chain, count
from operator import itemgetter
from typing import Generic, TypeVar

from tessella.core.ids import ModelId
from tessella.core.layers import LayerRange
from tessella.core.numeric import NumericClass
from tessella.core.proofs import Claim

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Need:
    """What an auditor has to hold."""

    model: ModelId
    contract: str
    layers: LayerRange
    weights: str


def need_of(claim: Claim, klass: NumericClass) -> Need:
    """What it takes to audit a hop of that class."""
    ticket = claim.ticket
    return Need(ticket.model, ticket.contract, claim.proof.layers, klass.weights)


@dataclass(slots=True)
class ByNeed(Generic[T]):
    """Audits by what they take."""

    _places: dict[Need, dict[T, int]] = field(default_factory=dict)
    _count: count[int] = field(default_factory=count)

    def add(self, need: Need, audit: T) -> None:
        """One more, after all others."""
        self._places.setdefault(need, {})[audit] = next(self._count)

    def remove(self, need: Need, audit: T) -> None:
        """One that was added."""
        known = self._places[need]
        del known[audit]
        if not known:
            del self._places[need]

    def that(self, holds: Callable[[Need], bool]) -> list[T]:
        """Those of needs of which that is true, in the order in which they were added."""
        found = [known.items() for need, known in self._places.items() if holds(need)]
        return [audit for audit, _ in sorted(chain.from_iterable(found), key=itemgetter(1))]
