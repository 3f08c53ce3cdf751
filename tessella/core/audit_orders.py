"""An order: musivum's signed word that one auditor may see what one keeper kept of a request.

It is for one side of one request, for one proven key, once, and for minutes.
"""

from __future__ import annotations

from collections.abc import Iterable

from tessella.core.commitments import DIGEST_BYTES
from tessella.core.errors import BadFrame, BadSignature
from tessella.core.identity import Identity, check_signature, public_key_of
from tessella.core.ids import PeerId
from tessella.core.messages import AuditOrder, SignedOrder, decode_sealed, seal
from tessella.core.tickets import REQUEST_ID_BYTES

PURPOSE_AUDIT_ORDER = b"audit order"

# Sides of a stage that may be asked for: the ids that the entry took, the rows that left.
INPUTS, OUTPUTS = "inputs", "outputs"

AUDIT_ID_BYTES = 16
# Ids longer than this name nothing: a keeper remembers those that were used.
_MAX_AUDIT_ID_BYTES = DIGEST_BYTES
# From the draw to the last row: an audit takes a minute, and the auditor's next beat comes first.
ORDER_SECONDS = 600.0


def seal_order(order: AuditOrder, identity: Identity) -> SignedOrder:
    """An order as the musivum signs it."""
    payload = seal(order)
    return SignedOrder(payload, identity.sign(PURPOSE_AUDIT_ORDER, payload))


def open_order(signed: SignedOrder, issuers: Iterable[PeerId]) -> AuditOrder:
    """An order that one of these musivums signed; whether it is in time is not looked at.

    Raises BadSignature for one that none of them signed, BadFrame for what is no order.
    """
    # An order does not say who signed it, so that each of the few pinned keys is tried.
    if not any(_is_by(issuer, signed) for issuer in issuers):
        raise BadSignature("an audit order that no musivum of this mesh signed")
    order = decode_sealed(signed.order, AuditOrder)
    if len(order.request_id) != REQUEST_ID_BYTES or not (
        1 <= len(order.audit_id) <= _MAX_AUDIT_ID_BYTES
    ):
        raise BadFrame("an audit order without an audit or a request")
    if order.side not in (INPUTS, OUTPUTS) or order.stop < 1:
        raise BadFrame(f"an audit order for {order.stop} positions of {order.side[:20]!r}")
    public_key_of(order.keeper)
    public_key_of(order.auditor)
    return order


def _is_by(issuer: PeerId, signed: SignedOrder) -> bool:
    try:
        check_signature(issuer, PURPOSE_AUDIT_ORDER, signed.order, signed.signature)
    except BadSignature:
        return False
    return True
