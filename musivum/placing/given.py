"""What was granted since a node last said how busy it is: it does not count that yet."""

from __future__ import annotations

from collections.abc import Iterable

from musivum.nodes.node import Node
from tessella.core.ids import PeerId


class Given:
    """Sessions granted to nodes since their last heartbeat."""

    def __init__(self) -> None:
        # When the node was heard of last, and how many were granted since.
        self._since: dict[PeerId, tuple[float, int]] = {}

    def __len__(self) -> int:
        return len(self._since)

    def note(self, nodes: Iterable[Node]) -> None:
        """A session more for each of these."""
        for node in nodes:
            self._since[node.peer_id] = (node.seen, self.to(node) + 1)

    def to(self, node: Node) -> int:
        """How many were granted to a node that it does not count yet."""
        seen, count = self._since.get(node.peer_id, (node.seen, 0))
        return count if seen == node.seen else 0

    def forget(self, known: Iterable[PeerId]) -> None:
        """Keep only these: the others are gone."""
        kept = set(known)
        self._since = {peer: held for peer, held in self._since.items() if peer in kept}
