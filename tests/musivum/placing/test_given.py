"""What was granted counts until the node says itself how busy it is."""

from __future__ import annotations

from dataclasses import replace

from musivum.placing.given import Given
from tests.musivum.placing.test_grants import Hub, hub, make

__all__ = ["hub", "make"]


async def test_what_was_granted_counts_until_the_next_heartbeat(hub: Hub) -> None:
    hub.serves(3, 4, 10)
    node = hub.books.roster.node(hub.books.roster.nodes()[0].peer_id)
    given = Given()
    given.note([node])
    given.note([node])
    assert given.to(node) == 2
    later = replace(node, seen=node.seen + 1)
    assert given.to(later) == 0
    given.note([later])
    assert (given.to(later), given.to(node), len(given)) == (1, 0, 1)
    given.forget([])
    assert len(given) == 0
