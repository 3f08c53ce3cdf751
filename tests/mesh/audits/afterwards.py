"""Where sessions go when a culprit was found."""

from __future__ import annotations

import time
from dataclasses import dataclass

from p2p.peers import Host
from tessella.client import Grant
from tests.mesh.audits.watched import Node, Watched
from tests.mesh.restarts.program import BEAT

# For this long after a slash, and a beat, somebody looks where sessions go.
LOOKED_SECONDS = 0.5
# Requests with a ticket, and without one, that are made when a culprit is gone.
AFTERWARDS = 6


@dataclass
class Way:
    """Where sessions go from the slash of a node on."""

    node: Node
    since: float
    first_look: float = 0.0
    """Seconds after the slash, as the others."""
    last_seen: float = 0.0
    """When it was last listed or granted; 0 if it was gone at the first look."""
    grants: int = 0

    def look(self, *, is_here: bool) -> None:
        """It was seen a moment ago, or not."""
        if is_here:
            self.last_seen = time.time() - self.since

    async def follow(self, watched: Watched, host: Host) -> None:
        """Look until a beat is over, and then for a while."""
        self.first_look = time.time() - self.since
        until = self.since + max(BEAT, self.first_look) + LOOKED_SECONDS
        while time.time() < until:
            self.look(is_here=self.node.peer_id in await watched.planned.peers())
            grant = await watched.grant(host)
            self.look(is_here=passes(grant, self.node))
            self.grants += 1


def passes(grant: Grant, node: Node) -> bool:
    """Whether a session of this grant passes a node, or may come to pass it."""
    return any(
        stage.peer_id == node.peer_id for stage in (*grant.ticket.chain, *grant.ticket.spares)
    )


async def ask_afterwards(watched: Watched, host: Host, suspect: Node) -> int:
    """How many sessions pass a culprit that is gone, of clients with a ticket and without one."""
    before, answers = await watched.opened_at(host, suspect), watched.answers
    for _ in range(AFTERWARDS):
        await watched.ask(host, await watched.grant(host))
        await watched.ask_without_ticket(host)
    assert watched.answers == answers + 2 * AFTERWARDS
    return await watched.opened_at(host, suspect) - before
