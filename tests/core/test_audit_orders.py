"""Orders of audits: signed for their purpose by a musivum that is pinned, or nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tessella.core.audit_orders import PURPOSE_AUDIT_ORDER, open_order, seal_order
from tessella.core.errors import BadFrame, BadSignature, TessellaError
from tessella.core.identity import PURPOSE_TRACKER, Identity
from tessella.core.ids import PeerId
from tessella.core.messages import AskAudit, AuditOrder, SignedOrder, seal

MUSIVUM, OTHER = Identity(b"m" * 32), Identity(b"o" * 32)
ORDER = AuditOrder(
    audit_id=b"a" * 16,
    request_id=b"r" * 16,
    keeper=Identity(b"k" * 32).peer_id,
    auditor=Identity(b"u" * 32).peer_id,
    side="outputs",
    stop=12,
    expires_at=1_000.5,
)


@pytest.mark.parametrize("issuers", [[MUSIVUM.peer_id], [OTHER.peer_id, MUSIVUM.peer_id]])
@pytest.mark.parametrize("side", ["inputs", "outputs"])
def test_an_order_by_one_of_the_pinned_musivums_is_read(issuers: list[PeerId], side: str) -> None:
    order = replace(ORDER, side=side)
    assert open_order(seal_order(order, MUSIVUM), issuers) == order


def test_the_purpose_is_its_own() -> None:
    assert PURPOSE_AUDIT_ORDER == b"audit order"
    payload = seal(ORDER)
    with pytest.raises(BadSignature, match="no musivum"):
        open_order(SignedOrder(payload, MUSIVUM.sign(PURPOSE_TRACKER, payload)), [MUSIVUM.peer_id])


def sealed(**changes: object) -> SignedOrder:
    return seal_order(replace(ORDER, **changes), MUSIVUM)  # type: ignore[arg-type]


BAD: list[tuple[str, SignedOrder, type[TessellaError]]] = [
    ("by another", seal_order(ORDER, OTHER), BadSignature),
    ("changed", replace(sealed(), order=seal(replace(ORDER, stop=13))), BadSignature),
    ("without a signature", replace(sealed(), signature=b""), BadSignature),
    ("no request", sealed(request_id=b""), BadFrame),
    ("no audit", sealed(audit_id=b""), BadFrame),
    ("an audit of any length", sealed(audit_id=b"a" * 33), BadFrame),
    ("nothing", sealed(stop=0), BadFrame),
    ("another side", sealed(side="both"), BadFrame),
    ("no keeper", sealed(keeper="x"), BadSignature),
    ("no auditor", sealed(auditor=""), BadSignature),
    (
        "no order",
        SignedOrder(seal(AskAudit()), MUSIVUM.sign(PURPOSE_AUDIT_ORDER, seal(AskAudit()))),
        BadFrame,
    ),
]


@pytest.mark.parametrize(("signed", "error"), [b[1:] for b in BAD], ids=[b[0] for b in BAD])
def test_all_else_is_refused(signed: SignedOrder, error: type[TessellaError]) -> None:
    with pytest.raises(error):
        open_order(signed, [MUSIVUM.peer_id])


def test_where_no_musivum_is_pinned_nothing_is_an_order() -> None:
    with pytest.raises(BadSignature):
        open_order(sealed(), [])
