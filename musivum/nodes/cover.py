"""What the nodes of one group hold, layer by layer, kept as they come and go.

`core.plan.reservations` says the same of a list; with thousands of nodes, of which some hundred
register a minute, nobody can go through the list for each.
"""

from __future__ import annotations

from itertools import chain

from tessella.core.ids import PeerId
from tessella.core.layers import LayerRange
from tessella.core.plan import Holding, Reservations


class Cover:
    """The holdings of the nodes that fit together, by node and by layer."""

    def __init__(self, layers: int) -> None:
        self._holders = [0] * layers
        self._throughput = [0] * layers
        self._held_by_nobody = layers
        self.version = 0
        """Rises with the listing of its nodes; whoever puts says when."""
        self._holdings: dict[PeerId, tuple[Holding, ...]] = {}

    def __len__(self) -> int:
        return len(self._holdings)

    @property
    def has_gaps(self) -> bool:
        """Whether there are layers that nobody holds or has promised."""
        return self._held_by_nobody > 0

    def peers(self) -> list[PeerId]:
        """The nodes, in the order they came."""
        return list(self._holdings)

    def holdings(self) -> list[Holding]:
        """What all of them hold, or have promised to."""
        return list(chain.from_iterable(self._holdings.values()))

    def put(self, peer_id: PeerId, holdings: tuple[Holding, ...]) -> None:
        """From here on a node holds this; nothing removes it."""
        before = self._holdings.get(peer_id, ())
        if before == holdings:
            return
        self._count(before, -1)
        self._count(holdings, 1)
        if holdings:
            self._holdings[peer_id] = holdings
        else:
            del self._holdings[peer_id]

    def reservations(self) -> Reservations:
        """What placement reads."""
        return Reservations(tuple(self._gaps()), tuple(self._throughput))

    def _count(self, holdings: tuple[Holding, ...], sign: int) -> None:
        for one in holdings:
            if not one.status.holds:
                continue
            steps = sign * one.throughput
            for layer in range(one.layers.start, min(one.layers.stop, len(self._holders))):
                before = self._holders[layer]
                self._holders[layer] = before + sign
                self._held_by_nobody += (before + sign == 0) - (before == 0)
                self._throughput[layer] += steps

    def _gaps(self) -> list[LayerRange]:
        gaps: list[LayerRange] = []
        start: int | None = None
        for layer, holders in enumerate([*self._holders, 1]):
            if holders and start is not None:
                gaps.append(LayerRange(start, layer))
                start = None
            elif not holders and start is None:
                start = layer
        return gaps
