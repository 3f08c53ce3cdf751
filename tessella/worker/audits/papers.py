"""The papers of an audit, the proof and two orders: read before anything is fetched."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from p2p.peers import Host
from tessella.core.addresses import PeerAddress
from tessella.core.audit_orders import INPUTS, OUTPUTS, open_order
from tessella.core.errors import BadProof, OutOfTurn
from tessella.core.ids import ModelId, PeerId
from tessella.core.layers import LayerRange
from tessella.core.messages import AuditOrder, AuditTask, Proof, SignedOrder
from tessella.core.numeric import NumericClass
from tessella.core.proofs import Claim, SignedProof, read_claim
from tessella.engine.checkpoint import Checkpoint
from tessella.engine.device import Device
from tessella.worker.stage import Compute

# Positions that are recomputed: of a longer session the first ones. Rows of the widest models are
# 128 MiB of so many, and a layer's attention over them is what a decode step can still wait for.
MAX_POSITIONS = 4096
# Rows that are measured at least, if there are as many: the median of a few says little, so that
# of a conversation that went on for one token some that were held are measured again.
LEAST_MEASURED = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Basis:
    """What an auditor works with; all of it is somebody else's, to close."""

    host: Host
    issuers: tuple[PeerId, ...]
    """The musivums whose keys are pinned."""
    model: ModelId
    contract: str
    checkpoint: Checkpoint
    device: Device
    compute: Compute
    clock: Callable[[], float]
    """Seconds since 1970."""
    layers: Callable[[], LayerRange | None]
    """The layers that this node serves at this moment; None while it serves none."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """One side of a request, and who keeps it."""

    order: AuditOrder
    signed: SignedOrder
    keeper: PeerAddress


@dataclass(frozen=True, slots=True)
class Case:
    """An audit whose papers are in order."""

    audit_id: bytes
    claim: Claim
    klass: NumericClass
    inputs: Wanted
    outputs: Wanted

    @property
    def proof(self) -> Proof:
        """What the worker is bound to."""
        return self.claim.proof

    @property
    def is_of_ids(self) -> bool:
        """Whether the audited stage is the entry, which took token ids."""
        return self.claim.place == 0

    @property
    def positions(self) -> int:
        """How many are recomputed."""
        return min(self.proof.outputs.stop, MAX_POSITIONS)

    @property
    def start(self) -> int:
        """The first position that is measured: of those that the proof is for, where they reach."""
        return min(self.proof.start, max(0, self.positions - LEAST_MEASURED))


def read_case(task: AuditTask, basis: Basis) -> Case:
    """The case of a task.

    Raises what `read_claim` and `open_order` raise, BadProof for an audit that this node cannot
    do, OutOfTurn for orders that are not for this audit.
    """
    signed = SignedProof(task.proof, task.proof_signature)
    claim = read_claim(signed, basis.issuers, basis.clock())
    _check_ours(claim, basis)
    try:
        klass = NumericClass.parse(claim.ticket.chain[claim.place].numeric)
    except ValueError as exc:
        raise BadProof(f"an audit of {claim.worker}: {exc}") from None
    auditor = basis.host.address.peer_id
    inputs = open_order(task.inputs, basis.issuers)
    outputs = open_order(task.outputs, basis.issuers)
    _check_order(inputs, task, claim, INPUTS if claim.place == 0 else OUTPUTS, auditor)
    _check_order(outputs, task, claim, OUTPUTS, auditor)
    if outputs.keeper != claim.worker:
        raise OutOfTurn("an audit whose outputs are another's than the worker's")
    return Case(
        task.audit_id,
        claim,
        klass,
        _wanted(inputs, task.inputs, task.inputs_addrs),
        _wanted(outputs, task.outputs, task.outputs_addrs),
    )


def _check_ours(claim: Claim, basis: Basis) -> None:
    ticket, layers, held = claim.ticket, claim.proof.layers, basis.layers()
    if (ticket.model, ticket.contract) != (basis.model, basis.contract):
        raise BadProof(f"an audit of other weights than ours: {ticket.model[:80]}")
    if held is None or not held.holds(layers) or not basis.checkpoint.shape.whole.holds(layers):
        raise BadProof(f"an audit of layers {layers}, this node holds {held}")


def _check_order(
    order: AuditOrder, task: AuditTask, claim: Claim, side: str, auditor: PeerId
) -> None:
    told = (order.audit_id, order.request_id, order.side, order.stop, order.auditor)
    if told != (task.audit_id, claim.request_id, side, claim.proof.outputs.stop, auditor):
        raise OutOfTurn("an audit with an order that is for another one")


def _wanted(order: AuditOrder, signed: SignedOrder, addrs: Iterable[str]) -> Wanted:
    return Wanted(order, signed, PeerAddress(order.keeper, tuple(addrs)))
