"""What is said about work and its pay, put into the bodies that JSON is made of."""

from __future__ import annotations

from base64 import b64encode, urlsafe_b64encode

from musivum.bodies.ledger import (
    EntryBody,
    GrantBody,
    GrantStage,
    HeadBody,
    LineBody,
    OrderBody,
    OutcomeBody,
    TaskBody,
)
from musivum.pages.mesh import span
from tessella.core.addresses import PeerAddress
from tessella.core.ledger import Head, entry_hash, open_entry
from tessella.core.messages import (
    AuditTask,
    Granted,
    SignedOrder,
    Ticket,
    TicketStage,
    decode_sealed,
)
from tessella.core.settlement import Outcome
from tessella.core.tiers import MICRO


def base64(data: bytes) -> str:
    """Bytes in the standard alphabet, padded."""
    return b64encode(data).decode()


def in_credits(micro: int) -> float:
    """Micro-credits as credits."""
    return micro / MICRO


def grant_body(granted: Granted) -> GrantBody:
    """A ticket of our own, readable, and as it was signed."""
    ticket = decode_sealed(granted.ticket, Ticket)
    entry = ticket.chain[0].peer_id
    return GrantBody(
        tier=ticket.tier,
        request_id=ticket.request_id.hex(),
        chain=[_stage(stage) for stage in ticket.chain],
        spares=[_stage(stage) for stage in ticket.spares],
        ticket=urlsafe_b64encode(granted.ticket).rstrip(b"=").decode(),
        signature=granted.signature.hex(),
        entry=entry,
        p2p_addrs=list(PeerAddress(entry, granted.addrs).full()),
        api_url=granted.api_url or None,
        expires_at=ticket.expires_at,
    )


def _stage(stage: TicketStage) -> GrantStage:
    return GrantStage(peer_id=stage.peer_id, layers=span(stage.layers), numeric=stage.numeric)


def outcome_body(outcome: Outcome) -> OutcomeBody:
    """What became of a proof."""
    return OutcomeBody(
        became=outcome.became.value,
        micro=outcome.micro,
        credits=in_credits(outcome.micro),
        code=outcome.code,
        text=outcome.text,
    )


def entry_body(payload: bytes) -> EntryBody:
    """An entry of our own ledger."""
    entry = open_entry(payload)
    return EntryBody(
        sequence=entry.sequence,
        kind=entry.kind,
        at=entry.at,
        issuer=entry.issuer,
        request_id=entry.request_id.hex(),
        worker=entry.worker,
        reason=entry.reason,
        lines=[LineBody(account=line.account, micro=line.amount) for line in entry.lines],
        hash=entry_hash(payload).hex(),
    )


def head_body(head: Head, payload: bytes, signature: bytes) -> HeadBody:
    """A head, readable, and as it was signed."""
    return HeadBody(
        origin=head.origin,
        size=head.size,
        root=head.root.hex(),
        last=head.last.hex(),
        at=head.at,
        payload=base64(payload),
        signature=signature.hex(),
    )


def task_body(task: AuditTask) -> TaskBody:
    """What is to be audited."""
    return TaskBody(
        audit_id=task.audit_id.hex(),
        proof=base64(task.proof),
        proof_signature=task.proof_signature.hex(),
        inputs=_order(task.inputs),
        inputs_addrs=list(task.inputs_addrs),
        outputs=_order(task.outputs),
        outputs_addrs=list(task.outputs_addrs),
    )


def _order(order: SignedOrder) -> OrderBody:
    return OrderBody(order=base64(order.order), signature=order.signature.hex())
