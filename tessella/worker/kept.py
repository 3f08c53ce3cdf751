"""Conversations whose KV is kept between two requests: what the entry remembers of each.

The KV itself is parked at every stage of the chain, each by its own clock. What is remembered here
may be stale: whoever goes on with it finds out, and begins anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tessella.core.errors import TicketUsed
from tessella.core.ids import PeerId, SessionId
from tessella.core.messages import Stage

# Each remembers its ids, four bytes a position; their KV is bounded by its own budget.
MAX_KEPT = 256


@dataclass(frozen=True, slots=True)
class Kept:
    """One conversation, parked."""

    session_id: SessionId
    epoch: int
    chain: tuple[Stage, ...]
    ids: Sequence[int]
    """The token ids whose KV every stage of the chain held."""
    request_id: bytes = b""
    """Of the ticket that it was computed for; empty where there was none."""

    def shared(self, prompt: Sequence[int]) -> int:
        """How many positions a prompt can go on from: at least its last token is to be computed."""
        most = min(len(self.ids), len(prompt) - 1)
        return next((at for at in range(most) if self.ids[at] != prompt[at]), most)

    def stands(self, serving: set[PeerId]) -> bool:
        """Whether the nodes of its chain, but for the entry, all serve."""
        return all(stage.peer_id in serving for stage in self.chain[1:])


class Conversations:
    """What is kept, by the name that the client gave it. The oldest go first."""

    def __init__(self) -> None:
        self._kept: dict[str, Kept] = {}

    def keep(self, name: str, kept: Kept) -> None:
        """Remember; what was kept under that name is forgotten."""
        self._kept.pop(name, None)
        self._kept[name] = kept
        while len(self._kept) > MAX_KEPT:
            del self._kept[next(iter(self._kept))]

    def request_id(self, name: str) -> bytes:
        """The request id of what is kept; empty where nothing is, or it had no ticket."""
        kept = self._kept.get(name)
        return kept.request_id if kept is not None else b""

    def check_unused(self, name: str, request_id: bytes) -> None:
        """Raises TicketUsed for the ticket of the answer that is kept: it was for that one."""
        if request_id and request_id == self.request_id(name):
            raise TicketUsed("the ticket was used for the answer before")

    def take(self, name: str) -> Kept | None:
        """What is kept, once: two requests that go on from one place would answer each other."""
        return self._kept.pop(name, None)
