"""Which of two payments stands: both sides have to come to the same alone."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import pytest
from hypothesis import given
from hypothesis import strategies as st

from musivum.federation.merge import earned, key_of, reversal_of, stands
from tessella.core.ids import PeerId
from tessella.core.ledger import MINT, ZERO_HASH, Entry, Line
from tests.core.work import identity

X, Y, Z = sorted(identity(n).peer_id for n in (101, 102, 103))
WORKER, CLIENT = identity(1).peer_id, identity(2).peer_id


def payment(origin: PeerId, at: float, issuer: PeerId = Z, sequence: int = 0) -> Entry:
    """A payment of one proof."""
    return Entry(
        origin=origin,
        sequence=sequence,
        previous=ZERO_HASH,
        kind="payment",
        at=at,
        issuer=issuer,
        request_id=bytes(16),
        worker=WORKER,
        lines=(Line(WORKER, 5), Line(CLIENT, -2), Line(MINT, -3)),
    )


@pytest.mark.parametrize(
    ("name", "kept", "lost"),
    [
        ("the issuer's own, though later", payment(Z, 9.0), payment(X, 1.0)),
        ("the earlier of two others", payment(Y, 1.0), payment(X, 2.0)),
        ("of one moment, the smaller name", payment(X, 1.0), payment(Y, 1.0)),
        ("of one musivum, its first", payment(X, 1.0, sequence=3), payment(X, 1.0, sequence=4)),
    ],
)
def test_of_two_payments_one_stands(name: str, kept: Entry, lost: Entry) -> None:
    assert stands(kept, lost) is kept
    assert stands(lost, kept) is kept


payments = st.lists(
    st.builds(
        payment,
        st.sampled_from([X, Y, Z]),
        st.sampled_from([0.0, 1.0, 2.0]),
        sequence=st.integers(0, 3),
    ),
    min_size=1,
    max_size=6,
)


@given(payments, st.randoms())
def test_the_order_in_which_they_become_known_does_not_matter(
    known: Sequence[Entry], chance: st.DrawFn
) -> None:
    first = reduce(stands, known)
    chance.shuffle(mixed := list(known))  # type: ignore[attr-defined]
    assert reduce(stands, mixed) == first


def test_a_reversal_takes_back_what_its_payment_gave() -> None:
    lost, kept = payment(X, 2.0), payment(Z, 3.0, sequence=7)
    found = reversal_of(lost, kept)
    assert found.kind == "reversal"
    assert [(line.account, line.amount) for line in found.lines] == [
        (WORKER, -5),
        (CLIENT, 2),
        (MINT, 3),
    ]
    assert (found.request_id, found.worker, found.issuer) == key_of(lost)
    assert found.reason == f"entry 7 of {Z} pays it"


def test_what_a_worker_earned_is_its_own_line() -> None:
    assert earned(payment(X, 1.0)) == 5
