"""What an auditor is handed: the proof, and two orders to those who keep the rows of it."""

from __future__ import annotations

from dataclasses import dataclass

from musivum.audits.queue import Given, OpenAudit
from musivum.clocks import Clocks
from musivum.nodes.roster import Roster
from tessella.core.audit_orders import INPUTS, ORDER_SECONDS, OUTPUTS, seal_order
from tessella.core.identity import Identity
from tessella.core.ids import PeerId
from tessella.core.messages import AuditOrder, AuditTask
from tessella.core.proofs import Claim


@dataclass(frozen=True, slots=True)
class Keepers:
    """Who keeps what a stage took, and what it gave."""

    inputs: PeerId
    side: str
    """Which side of the keeper's the inputs are: token ids at the entry, else rows that left."""
    outputs: PeerId


def keepers_of(claim: Claim) -> Keepers:
    """Who vouched for what this stage took keeps that; an entry keeps the ids itself."""
    if claim.place == 0:
        return Keepers(claim.worker, INPUTS, claim.worker)
    return Keepers(claim.proof.sender, OUTPUTS, claim.worker)


def task_of(
    audit: OpenAudit, given: Given, identity: Identity, roster: Roster, clocks: Clocks
) -> AuditTask:
    """The task of an audit that was given to somebody. A keeper that left has no addresses."""
    claim, keepers = audit.claim, keepers_of(audit.claim)
    expires_at = clocks.wall() + ORDER_SECONDS

    def order(keeper: PeerId, side: str, stop: int) -> AuditOrder:
        return AuditOrder(
            audit_id=given.audit_id,
            request_id=claim.request_id,
            keeper=keeper,
            auditor=given.auditor,
            side=side,
            stop=stop,
            expires_at=expires_at,
        )

    inputs = order(keepers.inputs, keepers.side, claim.proof.inputs.stop)
    outputs = order(keepers.outputs, OUTPUTS, claim.proof.outputs.stop)
    return AuditTask(
        audit_id=given.audit_id,
        proof=audit.signed.payload,
        proof_signature=audit.signed.signature,
        inputs=seal_order(inputs, identity),
        inputs_addrs=_addrs(roster, keepers.inputs),
        outputs=seal_order(outputs, identity),
        outputs_addrs=_addrs(roster, keepers.outputs),
    )


def _addrs(roster: Roster, peer_id: PeerId) -> tuple[str, ...]:
    node = roster.find(peer_id)
    return node.row.addrs if node is not None else ()
