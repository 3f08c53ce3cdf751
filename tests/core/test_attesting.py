"""Who is believed of a chain whose stages say what they sent and received."""

from __future__ import annotations

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tessella.core.attesting import (
    AUDITED_POSITIONS,
    NEIGHBOUR_SECONDS,
    WAIT_SECONDS,
    Attested,
    Heard,
    Ruling,
    Stages,
    Word,
)
from tessella.core.proofs import Claim, read_claim
from tessella.core.settlement import MICRO_PER_LAYER_TOKEN, worth
from tests.core.work import MUSIVUM, NOW, Work, identity

WORK = Work([identity(1), identity(2), identity(3)])
RIGHT, WRONG = Ruling.RIGHT, Ruling.WRONG
SILENT, REFUTED = Attested(Word.SILENT), Attested(Word.REFUTED, is_contradicted=True)


def paid(positions: int) -> Attested:
    """It is borne out for so many."""
    return Attested(Word.BORNE_OUT, positions)


def won(positions: int = 50) -> Attested:
    """It is borne out against a neighbour."""
    return Attested(Word.BORNE_OUT, positions, is_contradicted=True)


def disputed(*asks: int) -> Attested:
    """Audits of these places have to tell."""
    return Attested(Word.DISPUTED, asks=asks, is_contradicted=True)


def unattested(positions: int) -> Attested:
    """By its own word."""
    return Attested(Word.UNATTESTED, positions)


def claims(work: Work, *counts: int, start: int = 0) -> list[Claim]:
    """The claims of all stages, which computed so many positions each."""
    signed = [work.proof(place, count, start=start) for place, count in enumerate(counts)]
    return [read_claim(each, {MUSIVUM.peer_id}, NOW) for each in signed]


def claim_of(place: int, work: Work = WORK, **how: object) -> Claim:
    """The claim of one stage."""
    return read_claim(work.proof(place, **how), {MUSIVUM.peer_id}, NOW)  # type: ignore[arg-type]


def made(
    claim: Claim,
    *others: Claim,
    waited: float = 0.0,
    rulings: dict[int, Ruling] | None = None,
) -> Attested:
    """What becomes of a claim beside others of its chain."""
    found = rulings or {}
    chain = {each.place: Heard(each, found.get(each.place)) for each in (claim, *others)}
    return Stages(chain).attest(claim.place, waited)


def test_a_chain_of_one_is_paid_by_its_own_word() -> None:
    (alone,) = claims(Work([identity(1)]), 50)
    assert made(alone) == paid(50)


def test_a_stage_without_neighbours_waits_a_day_and_then_has_its_own_word() -> None:
    for claim in claims(WORK, 50, 50, 50):
        assert made(claim) == made(claim, waited=WAIT_SECONDS - 1) == SILENT
        assert made(claim, waited=WAIT_SECONDS) == unattested(50)


def test_all_neighbours_are_heard_and_after_a_while_one_is_enough() -> None:
    entry, middle, tail = claims(WORK, 50, 50, 50)
    assert made(entry, middle) == made(middle, entry, tail) == made(tail, middle, entry) == paid(50)
    for claim, other in ((middle, entry), (middle, tail), (tail, middle)):
        assert made(claim, other) == made(claim, other, waited=NEIGHBOUR_SECONDS - 1) == SILENT
        assert made(claim, other, waited=NEIGHBOUR_SECONDS) == paid(50)
    assert made(entry, tail) == made(entry, tail, waited=NEIGHBOUR_SECONDS) == SILENT


def test_the_smaller_count_of_the_two_is_paid() -> None:
    entry, middle, tail = claims(WORK, 51, 50, 50)
    assert made(entry, middle) == made(middle, entry, tail) == paid(50)


def test_a_neighbour_that_says_too_much_costs_nobody_else_and_whatever_comes_first() -> None:
    inflated, middle, tail = (
        claim_of(place, count=count) for place, count in enumerate((90, 50, 50))
    )
    assert made(middle, inflated, tail) == paid(50)
    assert made(inflated, middle, tail) == made(inflated, middle) == paid(32)


def test_positions_that_a_neighbour_says_were_held_before_are_not_paid() -> None:
    (entry, _, _) = claims(WORK, 50, 50, 50)
    (_, middle, _) = claims(WORK, 50, 50, 50, start=40)
    assert made(entry, middle) == paid(10)
    assert made(middle, entry, waited=NEIGHBOUR_SECONDS) == paid(10)


def test_neighbours_that_stopped_far_apart_agree_on_a_part() -> None:
    entry, middle = claim_of(0, count=20), claim_of(1, count=10)
    assert made(entry, middle) == paid(8)


def test_what_both_held_before_is_paid_to_nobody() -> None:
    entry, middle = claim_of(0, count=20, start=19), claim_of(1, count=10)
    assert made(entry, middle) == paid(0)


# Who lies, and how: which rows it says that came, and that left.
LIES = {
    "the entry, of what it sent": (0, (b"", b"x")),
    "the middle, of what came": (1, (b"x", b"")),
    "the middle, of what it sent": (1, (b"", b"x")),
    "the middle, of both": (1, (b"x", b"x")),
    "the tail, of what came": (2, (b"x", b"")),
}


def told(liar: int, salt: tuple[bytes, bytes]) -> list[Claim]:
    """A chain of three of which one lies."""
    return [claim_of(place, salt=salt if place == liar else (b"", b"")) for place in range(3)]


@pytest.mark.parametrize(("liar", "salt"), LIES.values(), ids=LIES)
def test_nobody_beside_a_lie_is_paid_before_an_audit_told(
    liar: int, salt: tuple[bytes, bytes]
) -> None:
    chain = told(liar, salt)
    found = [made(claim, *chain) for claim in chain]
    assert found[liar].word is Word.DISPUTED
    asks = {place for each in found for place in each.asks}
    assert asks <= {0, 1}, "the stage before an edge is who has to show its rows"
    for place in range(3):
        if found[place].word is Word.BORNE_OUT:
            assert found[place].positions == 50
            assert abs(place - liar) > 1 or salt[liar < place] == b"", "nobody contradicts it"


@pytest.mark.parametrize(("liar", "salt"), LIES.values(), ids=LIES)
def test_audits_tell_who_lied_and_everybody_else_is_paid(
    liar: int, salt: tuple[bytes, bytes]
) -> None:
    chain = told(liar, salt)
    rulings: dict[int, Ruling] = {}
    for _ in range(3):
        asked = {place for claim in chain for place in made(claim, *chain, rulings=rulings).asks}
        # What an audit finds: of a liar, other rows; of what came to a liar, that they are right.
        fresh = {place: WRONG if place == liar else RIGHT for place in asked - rulings.keys()}
        rulings |= fresh
    found = [made(claim, *chain, rulings=rulings) for claim in chain]
    assert found[liar] == REFUTED
    assert all(each in (paid(50), won()) for each in found[:liar] + found[liar + 1 :])


def test_whatever_comes_first_the_same_is_paid() -> None:
    chain = told(1, (b"x", b""))
    for order in permutations(chain):
        came: list[Claim] = []
        for claim in order:
            came.append(claim)
            for each in came:
                found = made(each, *came)
                # Who agrees with all of its neighbours has no part in the quarrel of others.
                assert found.word is not Word.BORNE_OUT or each.place == 2


def test_a_middle_that_claims_other_inputs_is_not_borne_out_by_who_computed_on_them() -> None:
    entry, liar, tail = told(1, (b"x", b""))
    assert made(liar, entry, tail) == made(entry, liar, tail) == disputed(0)
    assert made(tail, liar, entry) == SILENT, "what came to it is in doubt"
    assert made(tail, liar, entry, rulings={0: RIGHT}) == paid(50), "it did its work"
    assert made(liar, entry, tail, rulings={0: RIGHT}) == REFUTED
    assert made(entry, liar, tail, rulings={0: RIGHT}) == won()


def test_an_entry_that_lies_costs_the_middle_nothing() -> None:
    liar, middle, tail = told(0, (b"", b"x"))
    assert made(liar, middle, tail, rulings={0: WRONG}) == REFUTED
    assert made(middle, liar, tail, rulings={0: WRONG}) == won()


def test_who_lost_one_dispute_is_not_believed_in_the_other() -> None:
    entry, liar, tail = told(1, (b"x", b"x"))
    assert made(tail, liar, entry) == disputed(1)
    assert made(tail, liar, entry, rulings={0: RIGHT}) == won()


def test_of_two_that_count_differently_neither_is_believed_and_what_hangs_on_them_waits() -> None:
    """Either a stage and its friend say more than came, or the one before less than went."""
    entry = claim_of(0, count=10)
    middle, tail = claim_of(1, count=90), claim_of(2, count=90)
    chain = [entry, middle, tail]
    assert made(entry, *chain) == paid(8)
    assert made(middle, *chain) == made(tail, *chain) == SILENT
    for claim in (middle, tail):
        assert made(claim, *chain, waited=WAIT_SECONDS - 1) == SILENT
        assert made(claim, *chain, waited=WAIT_SECONDS) == unattested(90), "half of that"
    heard = {claim.place: Heard(claim) for claim in chain}
    assert Stages(heard).miscounts() == [(0, 1)]


def test_a_middle_that_says_too_little_costs_who_stands_before_it_no_more_than_a_wait() -> None:
    entry, liar, tail = claim_of(0, count=90), claim_of(1, count=2), claim_of(2, count=90)
    assert made(entry, liar, tail) == made(tail, entry, liar) == SILENT
    assert made(liar, entry, tail) == paid(2), "it says no more itself"
    for claim, others in ((entry, (liar, tail)), (tail, (entry, liar))):
        assert made(claim, *others, waited=WAIT_SECONDS) == unattested(90)


def test_a_liars_count_bounds_nobody_once_an_audit_told() -> None:
    work = Work([identity(number) for number in range(1, 5)])
    entry, two, three = (claim_of(place, work, count=90) for place in (0, 2, 3))
    liar = claim_of(1, work, count=2, salt=(b"", b"x"))
    chain = [entry, liar, two, three]
    assert made(liar, *chain) == made(two, *chain) == disputed(1)
    assert made(entry, *chain) == made(three, *chain) == SILENT
    rulings = {1: WRONG}
    assert made(liar, *chain, rulings=rulings) == REFUTED
    assert made(two, *chain, rulings=rulings) == won(90)
    assert made(three, *chain, rulings=rulings) == paid(90)
    # Whoever should bear it out is not believed any more: its own rows are looked at.
    assert made(entry, *chain, rulings=rulings) == Attested(Word.DISPUTED, asks=(0,))
    assert made(entry, *chain, rulings={0: RIGHT, **rulings}) == paid(90)
    assert made(entry, *chain, rulings={0: WRONG, **rulings}) == SILENT


def test_a_friend_that_lost_a_dispute_vouches_for_nothing() -> None:
    entry, friend = claim_of(0, count=10), claim_of(1, count=90, salt=(b"x", b"x"))
    greedy = claim_of(2, count=90)
    assert made(greedy, friend, entry, rulings={0: RIGHT}) == won(10)
    work = Work([identity(1), identity(2)])
    friend, greedy = claim_of(0, work, count=90), claim_of(1, work, count=90, salt=(b"x", b""))
    alone = made(greedy, friend, rulings={0: WRONG})
    assert alone == Attested(Word.SILENT, is_contradicted=True)
    late = made(greedy, friend, rulings={0: WRONG}, waited=WAIT_SECONDS)
    assert late == Attested(Word.UNATTESTED, 90, is_contradicted=True)


def test_by_an_audit_alone_no_more_is_paid_than_audits_look_at() -> None:
    work = Work([identity(1), identity(2)], max_tokens=10_000)
    entry, tail = claim_of(0, work, count=5000), claim_of(1, work, count=5000, salt=(b"x", b""))
    assert made(entry, tail, rulings={0: RIGHT}) == won(AUDITED_POSITIONS)


def test_two_that_contradict_each_other_alone_wait_for_the_audit_of_the_first() -> None:
    work = Work([identity(1), identity(2)])
    entry = claim_of(0, work)
    tail = claim_of(1, work, salt=(b"x", b""))
    assert made(entry, tail) == made(tail, entry) == disputed(0)
    assert made(entry, tail, rulings={0: RIGHT}) == won()
    assert made(tail, entry, rulings={0: RIGHT}) == REFUTED
    assert made(entry, tail, rulings={0: WRONG}) == REFUTED


def test_a_dispute_that_no_audit_could_decide_is_ended_after_a_day() -> None:
    entry, liar, tail = told(1, (b"x", b""))
    assert made(liar, entry, tail, waited=WAIT_SECONDS - 1).word is Word.DISPUTED
    for one, other in ((liar, entry), (entry, liar)):
        found = made(one, other, tail, waited=WAIT_SECONDS)
        assert found == Attested(Word.UNATTESTED, 50, is_contradicted=True)
    assert made(tail, liar, entry, waited=WAIT_SECONDS - 1) == SILENT
    assert made(tail, liar, entry, waited=WAIT_SECONDS) == paid(50), "it had no part in it"


def test_a_lie_about_the_last_rows_alone_is_a_dispute() -> None:
    entry, tail = claim_of(0), claim_of(2)
    middle = claim_of(1, count=50)
    assert made(middle, entry, tail) == paid(50)
    proof = middle.proof
    late = bytes(16) + proof.inputs.last[16:]
    lies = claim_of(1, inputs=type(proof.inputs)(50, proof.inputs.digest, proof.inputs.marks, late))
    assert made(lies, entry, tail).word is Word.DISPUTED


@given(st.integers(0, 100), st.integers(0, 100))
def test_nobody_is_paid_more_than_the_ticket_and_the_neighbour_say(ours: int, theirs: int) -> None:
    ours, theirs = max(1, ours), max(1, theirs)
    entry, middle, _ = claims(WORK, ours, theirs, 1)
    attested = made(entry, middle)
    assert attested.positions <= min(ours, theirs, WORK.max_tokens)
    assert attested.word is Word.BORNE_OUT
    assert worth(entry, attested.positions) == attested.positions * 10 * MICRO_PER_LAYER_TOKEN


@given(st.integers(1, 100), st.integers(1, 100))
def test_honest_neighbours_that_stopped_anywhere_are_never_at_odds(ours: int, theirs: int) -> None:
    entry, middle, _ = claims(WORK, ours, theirs, 1)
    assert made(entry, middle).word is not Word.DISPUTED
