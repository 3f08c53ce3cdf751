"""Chains in which nobody stands beside somebody that it is at odds with.

Of two whose proofs contradict each other nobody may know which one lies. So neither is barred, and
they are kept apart: who lies to everybody runs out of neighbours, and who met a liar loses one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from itertools import pairwise

from tessella.core.draw import Lot, draw_chain
from tessella.core.errors import ModelUnavailable
from tessella.core.ids import PeerId
from tessella.core.messages import Stage
from tessella.core.peers import PeerRow

AtOdds = Callable[[PeerId, PeerId], bool]
"""Whether two should not stand side by side."""

# Draws until no two that are at odds do.
MAX_DRAWS = 16


def draw_in_peace(
    rows: Sequence[PeerRow], total_layers: int, first: PeerId | None, rng: Lot, at_odds: AtOdds
) -> tuple[Stage, ...]:
    """A drawn chain without such neighbours, or where there is none any drawn chain.

    One of two at odds is left out of the next draw, and where that does not do the other. Raises
    ModelUnavailable.
    """
    left_out, chains = deque([frozenset[PeerId]()]), list[tuple[Stage, ...]]()
    for _ in range(MAX_DRAWS):
        if not left_out:
            break
        out = left_out.popleft()
        try:
            some = [row for row in rows if row.peer_id not in out]
            chains.append(draw_chain(some, total_layers, first, rng))
        except ModelUnavailable:
            if not out:
                raise
            continue
        pair = find_odds(chains[-1], at_odds)
        if pair is None:
            return chains[-1]
        # By lot, so that neither who lies nor who was lied to is the one that stays.
        pair = pair if rng() < 0.5 else pair[::-1]
        left_out += [out | {each} for each in pair if each != first]
    return chains[0]


def find_odds(chain: Sequence[Stage], at_odds: AtOdds) -> tuple[PeerId, PeerId] | None:
    """Two neighbours that should not be, the one behind first; None in a chain without such."""
    for before, behind in pairwise(chain):
        if at_odds(before.peer_id, behind.peer_id):
            return behind.peer_id, before.peer_id
    return None


def may_stand_in(peer_id: PeerId, chain: Sequence[Stage], at_odds: AtOdds) -> bool:
    """Whether a node is in a chain, or might take anybody's place in it."""
    peers = [stage.peer_id for stage in chain]
    return peer_id in peers or not any(at_odds(peer_id, other) for other in peers)
