"""What a proof is paid, by whom, and within which limits."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tessella.core.errors import BadFrame
from tessella.core.proofs import Claim, read_claim
from tessella.core.settlement import (
    Became,
    Caps,
    Minted,
    Outcome,
    Payment,
    day_of,
    decode_outcomes,
    encode_outcomes,
    pay,
    pay_unattested,
)
from tests.core.work import MUSIVUM, NOW, Work, identity

CAPS = Caps(worker=1000)


def claim_of(work: Work) -> Claim:
    """The claim of a chain of one, of one position."""
    return read_claim(work.proof(0, 1), {MUSIVUM.peer_id}, NOW)


@pytest.mark.parametrize(
    ("requester", "balance", "minted", "payment"),
    [
        ("anonymous", 0, Minted(), Payment(0, 300)),
        ("anonymous", 10_000, Minted(), Payment(0, 300)),
        ("anonymous", 0, Minted(worker=900), Payment(0, 100)),
        ("anonymous", 0, Minted(worker=1000), Payment(0, 0)),
        ("named", 10_000, Minted(worker=1000, pair=200), Payment(300, 0)),
        ("named", 250, Minted(), Payment(250, 50)),
        ("named", 0, Minted(), Payment(0, 200)),
        ("named", 0, Minted(pair=150), Payment(0, 50)),
        ("named", 0, Minted(worker=980), Payment(0, 20)),
        ("named", -5, Minted(), Payment(0, 200)),
        ("itself", 10_000, Minted(), Payment(0, 0)),
    ],
)
def test_the_requester_pays_first_and_the_mint_within_its_caps(
    requester: str, balance: int, minted: Minted, payment: Payment
) -> None:
    names = {"named": identity(7).peer_id, "itself": identity(1).peer_id}
    work = Work([identity(1)], requester=names.get(requester, requester))
    claim = claim_of(work)
    assert pay(claim, 300, balance, minted, CAPS) == payment


@given(
    st.integers(0, 10**9), st.integers(-(10**6), 10**9), st.integers(0, 2000), st.integers(0, 400)
)
def test_a_payment_is_never_more_than_the_work_is_worth(
    micro: int, balance: int, minted_worker: int, minted_pair: int
) -> None:
    work = Work([identity(1)], requester=identity(7).peer_id)
    claim = claim_of(work)
    payment = pay(claim, micro, balance, Minted(minted_worker, minted_pair), CAPS)
    assert 0 <= payment.from_requester <= max(0, balance)
    assert 0 <= payment.from_mint <= max(0, CAPS.pair - minted_pair)
    assert payment.total <= micro


@pytest.mark.parametrize(
    ("micro", "earned", "minted", "paid"),
    [
        (300, 10_000, Minted(), 150),
        (301, 10_000, Minted(), 150),
        (300, 0, Minted(), 0),  # nobody ever saw it work
        (300, 500, Minted(), 100),  # a fifth of what it earned
        (300, 500, Minted(pair=60), 40),
        (300, 10_000, Minted(pair=100), 100),  # a fifth of the cap
        (300, 10_000, Minted(worker=950), 50),
        (300, 10_000, Minted(worker=1000, pair=200), 0),
    ],
)
def test_of_what_nobody_bears_out_half_is_paid_within_limits(
    micro: int, earned: int, minted: Minted, paid: int
) -> None:
    claim = claim_of(Work([identity(1)], requester=identity(7).peer_id))
    assert pay_unattested(claim, micro, earned, minted, CAPS) == Payment(0, paid)


def test_nobody_is_paid_for_serving_themselves_by_their_own_word() -> None:
    claim = claim_of(Work([identity(1)], requester=identity(1).peer_id))
    assert pay_unattested(claim, 300, 10_000, Minted(), CAPS) == Payment(0, 0)


def test_the_day_of_the_mint_is_utc() -> None:
    assert day_of(86_399.9) == 0
    assert day_of(86_400.0) == 1


def test_outcomes_travel_as_they_are() -> None:
    told = [Outcome(Became.PAID, 5), Outcome(Became.REFUSED, 0, "bad_proof", "é")]
    assert decode_outcomes(encode_outcomes(told)) == told


@pytest.mark.parametrize(
    "data",
    [
        b"{",
        b"{}",
        b"[1]",
        b'[{"became":"owned","micro":0,"code":"","text":""}]',
        b'[{"became":"paid","micro":-1,"code":"","text":""}]',
        b'[{"became":"paid","micro":true,"code":"","text":""}]',
        b'[{"became":"paid","micro":0,"code":1,"text":""}]',
        b'[{"became":"paid"}]',
        b"[" + b"1," * 300 + b"1]",
    ],
)
def test_outcomes_that_are_none_are_refused(data: bytes) -> None:
    with pytest.raises(BadFrame):
        decode_outcomes(data)
