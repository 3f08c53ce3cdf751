"""Who may audit what: nodes that hold the same layers of the same weights, chosen by lot.

Whoever asks first would be whoever wants a certain audit most, such as a friend of the audited. So
a keyed hash of audit and node says who may have it: about one of those that ask, then twice as many
with every turn that nobody takes it. Kept out while there is anybody else: whose chain it was, who
judged this worker the last time, and who did not show yet that it can compute these layers itself:
an identity costs nothing, and a verdict may cost a node all that it earned.
"""

from __future__ import annotations

import hmac
import secrets
from dataclasses import dataclass

from musivum.audits.needs import Need
from musivum.audits.orders import keepers_of
from musivum.audits.queue import OpenAudit
from musivum.audits.standings import Standings
from musivum.nodes.node import Node
from musivum.nodes.roster import Roster
from tessella.core.ids import PeerId
from tessella.core.numeric import NumericClass
from tessella.core.proofs import Claim

# With each turn that nobody took an audit, twice as many may have it.
TURN_SECONDS = 20.0
# Who asked within this is counted on: nodes ask with their heartbeats.
ACTIVE_SECONDS = 600.0
# Before anybody less fitting is asked, those who fit have this long to be heard of.
SETTLING_SECONDS = 30.0
# And before a newcomer is: whoever judged this worker the last time is still the better one.
NOVICE_SECONDS = 4 * SETTLING_SECONDS
# Of so many nodes who might audit something is looked up once in this time.
FRESH_SECONDS = 5.0
# Audits that a node passed itself, of late, before its word is as good as others'.
LEAST_PASSED = 3.0
_DRAW_BYTES = 8
_DRAW_SPAN = 1 << (8 * _DRAW_BYTES)
# Beyond so many turns everybody may have it.
_MAX_TURNS = 64.0


def class_of(claim: Claim) -> NumericClass | None:
    """How a worker said that it computes; None if it did not say, or by no word of ours."""
    try:
        return NumericClass.parse(claim.ticket.chain[claim.place].numeric)
    except ValueError:
        return None


def holds(node: Node, need: Need) -> bool:
    """Whether a node has the weights that it takes."""
    row = node.row
    return (
        node.is_here
        and node.is_ready
        and (row.model, row.contract) == (need.model, need.contract)
        and row.layers.holds(need.layers)
        and node.wish.weights == need.weights
    )


@dataclass(frozen=True, slots=True)
class _Active:
    peers: frozenset[PeerId]
    novices: frozenset[PeerId]
    """Those of them that passed too few audits; none where all are such."""
    until: float


class Choosing:
    """Remembers who asks. `now` is seconds of a clock that never goes back."""

    def __init__(self, roster: Roster, standings: Standings) -> None:
        self._roster = roster
        self._standings = standings
        self._asked: dict[PeerId, float] = {}
        self._active: dict[Need, _Active] = {}
        self._key = secrets.token_bytes(32)

    def heard(self, caller: PeerId, now: float) -> Node | None:
        """Somebody asks for an audit: its node, if it has one here and may judge others."""
        node = self._roster.find(caller)
        if node is None or not self._standings.is_heard(caller):
            return None
        if caller not in self._asked:
            self._active.clear()
        self._asked[caller] = now
        return node

    def expire(self, now: float) -> None:
        """Forget who did not ask for long."""
        old = [peer for peer, at in self._asked.items() if now - at > ACTIVE_SECONDS]
        for peer_id in old:
            del self._asked[peer_id]
        stale = [need for need, known in self._active.items() if known.until <= now]
        for need in stale:
            del self._active[need]

    def active(self, need: Need, now: float) -> frozenset[PeerId]:
        """Who asked of late, holds what it takes, and may judge others: as of some seconds ago."""
        return self._known(need, now).peers

    def _known(self, need: Need, now: float) -> _Active:
        known = self._active.get(need)
        if known is None or known.until <= now:
            nodes = ((peer_id, self._roster.find(peer_id)) for peer_id in self._asked)
            found = frozenset(
                peer_id
                for peer_id, node in nodes
                if node is not None and holds(node, need) and self._standings.is_heard(peer_id)
            )
            novices = frozenset(filter(self._is_novice, found))
            if novices == found:
                novices = frozenset()  # somebody has to be the first
            known = self._active[need] = _Active(found, novices, now + FRESH_SECONDS)
        return known

    def _is_novice(self, peer_id: PeerId) -> bool:
        return self._standings.counts(peer_id).passed < LEAST_PASSED

    def may_have(self, caller: PeerId, audit: OpenAudit, now: float) -> bool:
        """Whether an audit goes to a caller that asks for it and holds what it takes."""
        if caller in _never(audit):
            return False
        known = self._known(audit.need, now)
        active, unfit = known.peers, known.novices | self._unfit(audit)
        free = now - audit.free_since
        fitting = len(active) - len(active & unfit)
        if caller in unfit:
            patience = NOVICE_SECONDS if caller in known.novices else SETTLING_SECONDS
            return not fitting and free >= patience
        return self._wins(caller, audit, fitting, free)

    def has_other(self, audit: OpenAudit, now: float) -> bool:
        """Whether anybody is left who could look at a hop."""
        return bool(self.active(audit.need, now) - _never(audit))

    def _unfit(self, audit: OpenAudit) -> set[PeerId]:
        """Whoever does not look at a hop while there is anybody else."""
        last = PeerId(self._standings.of(audit.worker).last_auditor)
        return {audit.worker, last, *audit.asked, *_chain_of(audit)}

    def _wins(self, caller: PeerId, audit: OpenAudit, among: int, free: float) -> bool:
        turns = min(free / TURN_SECONDS, _MAX_TURNS)
        name = audit.claim.digest + caller.encode()
        drawn = hmac.digest(self._key, name, "sha256")[:_DRAW_BYTES]
        place = int.from_bytes(drawn, "big") / _DRAW_SPAN
        return bool(place * among <= 2.0**turns)


def _never(audit: OpenAudit) -> set[PeerId]:
    """Who does not get an audit whoever else is there: nobody judges twice, or itself."""
    return {audit.worker, *audit.asked}


def _chain_of(audit: OpenAudit) -> list[PeerId]:
    """Who served, also in place of another that was lost."""
    chain = [stage.peer_id for stage in audit.claim.ticket.chain]
    return [*chain, keepers_of(audit.claim).inputs]
