"""What an entry of another musivum means here. Pure rules, of which both sides come to the same.

    payment         that proof is paid, here as there
    slash, appeal   the account moves; whom that musivum bars is its own matter, and advice to us
    reversal        a payment is taken back

A proof that two musivums paid before they heard of each other is to be paid once. Each of them
compares the two payments alone: that of the ticket's issuer stands, of two others the earlier one,
and whoever made the other takes its own back. Payments have an order, so the first of any number
of them stands, in whatever order they become known.
"""

from __future__ import annotations

from musivum.ledger import Movement
from musivum.ledger.kept import Key
from tessella.core.ids import PeerId
from tessella.core.ledger import Entry, Line


def key_of(entry: Entry) -> Key:
    """The proof that a payment, or a reversal of one, is about."""
    return entry.request_id, PeerId(entry.worker), PeerId(entry.issuer)


def stands(one: Entry, other: Entry) -> Entry:
    """Which of two payments of one proof is kept."""
    return min(one, other, key=_order)


def _order(payment: Entry) -> tuple[bool, float, PeerId, int]:
    is_anothers = payment.origin != payment.issuer
    return is_anothers, payment.at, payment.origin, payment.sequence


def earned(payment: Entry) -> int:
    """Micro-credits that the worker of a payment got; 0 where it got none."""
    amounts = {line.account: line.amount for line in payment.lines}
    return max(0, amounts.get(payment.worker, 0))


def reversal_of(payment: Entry, kept: Entry) -> Movement:
    """What takes a payment of ours back, in favour of the one that is kept."""
    return Movement(
        kind="reversal",
        lines=[Line(line.account, -line.amount) for line in payment.lines],
        reason=f"entry {kept.sequence} of {kept.origin} pays it",
        issuer=payment.issuer,
        request_id=payment.request_id,
        worker=payment.worker,
    )
