"""Through which nodes an answer of this entry goes, and by whose ticket.

A client's ticket names the chain. Without one musivum is asked for a ticket while the list of nodes
is read; where it gives none, the chain is chosen from that list, and nobody is paid.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from tessella.core.errors import BadTicket, ModelUnavailable, TessellaError
from tessella.core.ids import PeerId
from tessella.core.messages import Stage
from tessella.core.peers import PeerRow
from tessella.core.tickets import check_session
from tessella.worker.availability import find_chain
from tessella.worker.nurseries import open_conversation
from tessella.worker.terms import Served, check_ranges
from tessella.worker.tickets import SignedTicket
from tessella.worker.trust import Neighbourhood

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Found:
    """What a request may go through."""

    rows: Sequence[PeerRow]
    ticket: SignedTicket | None

    def leads_through(self, chain: Sequence[Stage]) -> bool:
        """Whether a chain from before is still the one: its nodes, but for the first, all serve,
        and it is the ticket's."""
        serving = {row.peer_id for row in self.rows if row.serves}
        is_ticketed = self.ticket is None or self.ticket.chain == tuple(chain)
        return is_ticketed and all(stage.peer_id in serving for stage in chain[1:])


@dataclass(frozen=True, slots=True)
class Chains:
    """The chains that begin at one node."""

    ourselves: PeerId
    served: Served
    around: Neighbourhood

    async def check_ours(self, ticket: SignedTicket) -> None:
        """Raises BadTicket for one that begins elsewhere, saying where.

        ModelUnavailable for one that is of before this node moved to other layers.
        """
        first, held = ticket.chain[0], self.served.shard.layers
        if first.peer_id != self.ourselves:
            raise BadTicket(f"the ticket begins at {await self._where(first.peer_id)}, not here")
        if not held.holds(first.layers):
            raise ModelUnavailable(f"this node holds layers {held}, not {first.layers}")
        check_ranges(ticket.chain, self.served.shard.shape.layers)

    async def _where(self, peer: PeerId) -> str:
        try:
            rows = await self.around.directory.rows()
        except TessellaError:
            rows = []
        addrs = [addr for row in rows if row.peer_id == peer for addr in row.addrs]
        return f"{addrs[0]}/p2p/{peer}" if addrs else peer

    async def find(
        self, positions: int, brought: SignedTicket | None = None, after: bytes = b""
    ) -> Found:
        """The nodes of the model, and a ticket for so many positions: the one that was `brought`.

        `after` is the request id whose chain is wanted again. Raises what reading the list raises.
        """
        ticket = brought

        async def ask() -> None:
            nonlocal ticket
            ticket = await self.around.grants.grant(self.served.model, positions, after)

        async with open_conversation() as nursery:
            if brought is None:
                nursery.start_soon(ask)
            rows = await self.around.directory.rows()
        if brought is None and ticket is not None and not self._fits(ticket, positions):
            ticket = None
        return Found(rows, ticket)

    def _fits(self, ticket: SignedTicket, positions: int) -> bool:
        """Whether a ticket that nobody waits for can be used; what cannot be is only not paid."""
        first, chain = ticket.chain[0], ticket.chain
        is_ours = first.peer_id == self.ourselves and self.served.shard.layers.holds(first.layers)
        try:
            check_ranges(chain, self.served.shard.shape.layers)
            check_session(
                ticket.ticket,
                chain,
                model=self.served.model,
                contract=self.served.contract,
                capacity=positions,
                now=self.around.tickets.clock(),
            )
        except TessellaError as exc:
            logger.warning("musivum gave a ticket of no use: %s: %s", exc.code, exc)
            return False
        return is_ours

    def chain(self, found: Found) -> tuple[Stage, ...]:
        """The ticket's chain, or the cheapest of the list. Raises ModelUnavailable.

        Of requests at once each sees the load of those before it, as long as nobody waits from
        here until the chain is in use.
        """
        if found.ticket is not None:
            return found.ticket.chain
        rows = self.around.directory.loaded(found.rows)
        return find_chain(rows, self.served, first=self.ourselves)
