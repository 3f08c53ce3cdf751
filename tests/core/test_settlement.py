"""What a proof is paid, by whom, and within which limits."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tessella.core.errors import BadFrame
from tessella.core.proofs import Claim, read_claim
from tessella.core.settlement import (
    MICRO_PER_LAYER_TOKEN,
    Attested,
    Became,
    Caps,
    Minted,
    Outcome,
    Payment,
    attest,
    day_of,
    decode_outcomes,
    encode_outcomes,
    pay,
    worth,
)
from tests.core.work import MUSIVUM, NOW, Work, identity

WORK = Work([identity(1), identity(2), identity(3)])


def claims(work: Work, *counts: int, start: int = 0) -> list[Claim]:
    """The claims of all stages, which computed so many positions each."""
    signed = [work.proof(place, count, start=start) for place, count in enumerate(counts)]
    return [read_claim(each, {MUSIVUM.peer_id}, NOW) for each in signed]


def claim_of(place: int, **how: object) -> Claim:
    """The claim of one stage."""
    return read_claim(WORK.proof(place, **how), {MUSIVUM.peer_id}, NOW)  # type: ignore[arg-type]


def made(claim: Claim, *others: Claim) -> Attested:
    """What the others make of a claim."""
    return attest(claim, {other.place: other for other in others})


def test_a_chain_of_one_is_paid_by_its_own_word() -> None:
    (alone,) = claims(Work([identity(1)]), 50)
    assert made(alone) == Attested(50)


def test_a_stage_without_neighbours_waits() -> None:
    for claim in claims(WORK, 50, 50, 50):
        assert made(claim) == Attested(is_settled=False)


def test_one_neighbour_that_saw_the_same_rows_is_enough() -> None:
    entry, middle, tail = claims(WORK, 50, 50, 50)
    assert made(entry, middle) == Attested(50)
    assert made(middle, entry) == Attested(50)
    assert made(tail, middle) == Attested(50)
    assert made(entry, tail) == Attested(is_settled=False)


def test_the_smaller_count_of_the_two_is_paid() -> None:
    entry, middle, _ = claims(WORK, 51, 50, 50)
    assert made(entry, middle).positions == 50
    assert made(middle, entry).positions == 50


def test_a_neighbour_that_says_too_much_costs_nobody_else_and_whatever_comes_first() -> None:
    work = Work([identity(n) for n in range(1, 4)])
    inflated, middle, tail = (
        read_claim(work.proof(place, count), {MUSIVUM.peer_id}, NOW)
        for place, count in enumerate((90, 50, 50))
    )
    assert made(middle, inflated) == Attested(is_settled=False)
    assert made(middle, inflated, tail) == made(middle, tail) == Attested(50)
    assert made(inflated, middle, tail) == made(inflated, middle) == Attested(32)


def test_positions_that_a_neighbour_says_were_held_before_are_not_paid() -> None:
    (entry, _, _) = claims(WORK, 50, 50, 50)
    (_, middle, _) = claims(WORK, 50, 50, 50, start=40)
    assert made(entry, middle).positions == 10
    assert made(middle, entry).positions == 10


def test_a_stage_at_odds_with_both_neighbours_loses_its_own_pay_alone() -> None:
    entry, tail = claim_of(0), claim_of(2)
    liar = claim_of(1, salt=(b"x", b"y"))
    assert made(liar, entry, tail) == Attested(is_refuted=True)
    # Its neighbours have nobody else to ask: who is at odds with both is not believed.
    assert made(entry, liar) == made(tail, liar) == Attested(is_settled=False)
    assert made(entry, liar, tail) == made(tail, liar, entry) == Attested(50)


def test_two_that_contradict_each_other_alone_are_both_refused() -> None:
    work = Work([identity(1), identity(2)])
    entry = read_claim(work.proof(0), {MUSIVUM.peer_id}, NOW)
    tail = read_claim(work.proof(1, salt=(b"x", b"")), {MUSIVUM.peer_id}, NOW)
    assert made(entry, tail) == made(tail, entry) == Attested(is_refuted=True)


def test_an_end_that_lies_about_its_neighbour_is_refused() -> None:
    entry, middle = claim_of(0), claim_of(1)
    liar = claim_of(2, salt=(b"x", b""))
    assert made(liar, middle, entry) == Attested(is_refuted=True)
    assert made(middle, liar, entry) == Attested(50)


def test_a_stage_that_lies_to_one_neighbour_is_borne_out_by_the_other() -> None:
    entry, tail = claim_of(0), claim_of(2)
    middle = claim_of(1, salt=(b"", b"y"))
    assert made(middle, entry, tail) == Attested(50)
    assert made(tail, middle, entry).is_refuted


@given(st.integers(0, 100), st.integers(0, 100), st.integers(0, 5000))
def test_nobody_is_paid_more_than_the_ticket_and_the_neighbour_say(
    ours: int, theirs: int, start: int
) -> None:
    ours, theirs = max(1, ours), max(1, theirs)
    entry, middle, _ = claims(WORK, ours, theirs, 1)
    attested = made(entry, middle)
    assert attested.positions <= min(ours, theirs, WORK.max_tokens)
    assert worth(entry, attested.positions) == attested.positions * 10 * MICRO_PER_LAYER_TOKEN


CAPS = Caps(worker=1000)


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
    (claim,) = claims(work, 1)
    assert pay(claim, 300, balance, minted, CAPS) == payment


@given(
    st.integers(0, 10**9), st.integers(-(10**6), 10**9), st.integers(0, 2000), st.integers(0, 400)
)
def test_a_payment_is_never_more_than_the_work_is_worth(
    micro: int, balance: int, minted_worker: int, minted_pair: int
) -> None:
    work = Work([identity(1)], requester=identity(7).peer_id)
    (claim,) = claims(work, 1)
    payment = pay(claim, micro, balance, Minted(minted_worker, minted_pair), CAPS)
    assert 0 <= payment.from_requester <= max(0, balance)
    assert 0 <= payment.from_mint <= max(0, CAPS.pair - minted_pair)
    assert payment.total <= micro


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
