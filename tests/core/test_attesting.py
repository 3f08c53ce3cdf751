"""Who is believed of a chain whose stages say what they sent and received."""

from __future__ import annotations

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tessella.core.attesting import NEIGHBOUR_SECONDS, WAIT_SECONDS, Attested, Stages, Word
from tessella.core.errors import BadSignature
from tessella.core.messages import TicketStage
from tessella.core.proofs import Claim, read_claim
from tessella.core.settlement import MICRO_PER_LAYER_TOKEN, worth
from tests.core.work import MUSIVUM, NOW, Work, identity

SPARE = identity(9)
WORK = Work([identity(1), identity(2), identity(3)])
SILENT, REFUTED = Attested(Word.SILENT), Attested(Word.REFUTED)


def paid(positions: int) -> Attested:
    """It is borne out for so many."""
    return Attested(Word.BORNE_OUT, positions)


def unattested(positions: int) -> Attested:
    """By its own word."""
    return Attested(Word.UNATTESTED, positions)


def claim_of(place: int, work: Work = WORK, **how: object) -> Claim:
    """The claim of one stage."""
    return read_claim(work.proof(place, **how), {MUSIVUM.peer_id}, NOW)  # type: ignore[arg-type]


def claims(work: Work, *counts: int, start: int = 0) -> list[Claim]:
    """The claims of all stages, which computed so many positions each."""
    return [claim_of(place, work, count=n, start=start) for place, n in enumerate(counts)]


def made(claim: Claim, *others: Claim, waited: float = 0.0) -> Attested:
    """What becomes of a claim beside others of its chain."""
    return Stages({each.place: each for each in (claim, *others)}).attest(claim.place, waited)


def test_a_chain_of_one_is_paid_by_its_own_word() -> None:
    (alone,) = claims(Work([identity(1)]), 50)
    assert made(alone) == paid(50)


def test_an_entry_of_which_nobody_tells_waits_a_day_and_then_has_its_own_word() -> None:
    entry, *_ = claims(WORK, 50, 50, 50)
    assert made(entry) == made(entry, waited=WAIT_SECONDS - 1) == SILENT
    assert made(entry, waited=WAIT_SECONDS) == unattested(50)


def test_all_who_might_tell_of_less_are_heard_and_after_a_while_a_voucher_is_enough() -> None:
    entry, middle, tail = claims(WORK, 50, 50, 50)
    assert made(entry, middle) == made(middle, entry, tail) == made(tail, middle, entry) == paid(50)
    for claim, others in (
        (middle, ()),
        (middle, (entry,)),
        (middle, (tail,)),
        (tail, (middle,)),
        (tail, (entry,)),
    ):
        assert made(claim, *others) == made(claim, *others, waited=NEIGHBOUR_SECONDS - 1) == SILENT
        assert made(claim, *others, waited=NEIGHBOUR_SECONDS) == paid(50)


def test_two_that_are_one_owners_do_not_make_up_an_epoch() -> None:
    """Nobody before the sender of these rows knows of it."""
    _, _, tail = claims(WORK, 50, 50, 50)
    made_up = claim_of(2, count=90, epoch=9)
    entry, middle, _ = claims(WORK, 50, 50, 50)
    for claim, others, words in (
        (tail, (), SILENT),
        (made_up, (entry, middle), SILENT),
    ):
        assert made(claim, *others, waited=WAIT_SECONDS - 1) == words
        assert made(claim, *others, waited=WAIT_SECONDS).word is Word.UNATTESTED
    assert made(middle, entry, made_up) == paid(50)


def test_what_is_left_of_another_epoch_bounds_nobody() -> None:
    anew = [claim_of(at, count=90, epoch=1) for at in range(3)]
    left = claim_of(1, count=3)
    assert made(anew[0], left, anew[2]) == made(anew[2], anew[0], left) == paid(90)
    assert made(left, anew[0], anew[2]) == paid(3)
    liar = claim_of(0, count=1, epoch=7)
    middle, tail = claims(WORK, 90, 90, 90)[1:]
    assert made(middle, liar, tail) == made(tail, liar, middle) == paid(90)
    assert made(liar, middle, tail, waited=WAIT_SECONDS) == unattested(1)


def test_what_the_tail_took_passed_the_stages_before_it_too() -> None:
    entry, _, tail = claims(WORK, 50, 50, 48)
    assert made(entry, tail) == SILENT
    assert made(entry, tail, waited=NEIGHBOUR_SECONDS) == paid(48)


def test_an_entry_is_paid_as_far_as_others_tell() -> None:
    entry, middle, tail = claims(WORK, 51, 50, 50)
    assert made(entry, middle, tail) == made(middle, entry, tail) == paid(50)
    assert made(entry, middle, waited=NEIGHBOUR_SECONDS) == paid(50)
    inflated = claim_of(0, count=90)
    assert made(inflated, middle) == SILENT, "the tail may tell of more"
    both = made(inflated, middle, waited=NEIGHBOUR_SECONDS)
    assert both == paid(32), "what both are known to have had"
    assert made(inflated, middle, tail) == paid(50)
    assert made(middle, inflated, tail) == paid(50)


def test_positions_that_were_held_before_are_not_paid() -> None:
    chain = claims(WORK, 50, 50, 50, start=40)
    assert [made(claim, *chain) for claim in chain] == [paid(10)] * 3


@pytest.mark.parametrize("starts", [(0, 40, 40), (0, 0, 40)])
def test_who_says_that_it_computed_what_it_vouched_for_as_held_is_refuted(
    starts: tuple[int, int, int],
) -> None:
    chain = [claim_of(at, start=start) for at, start in enumerate(starts)]
    liar = starts.index(40) - 1
    found = [made(claim, *chain) for claim in chain]
    assert found[liar] == REFUTED
    assert found[2] == paid(10)


def test_neighbours_that_stopped_far_apart_agree_on_a_part() -> None:
    entry, middle = claim_of(0, count=20), claim_of(1, count=10)
    assert made(entry, middle, waited=NEIGHBOUR_SECONDS) == paid(8)


def test_what_both_held_before_is_paid_to_nobody() -> None:
    entry, middle = claim_of(0, count=20, start=8), claim_of(1, count=10, start=8)
    assert made(entry, middle, waited=NEIGHBOUR_SECONDS) == paid(0)


@pytest.mark.parametrize("liar", [0, 1])
def test_who_commits_to_other_rows_than_it_vouched_for_is_refuted_and_nobody_else(
    liar: int,
) -> None:
    chain = [claim_of(at, salt=(b"", b"x" if at == liar else b"")) for at in range(3)]
    found = [made(claim, *chain) for claim in chain]
    assert found == [REFUTED if at == liar else paid(50) for at in range(3)]
    assert Stages(dict(enumerate(chain))).refuted == {liar}


def test_a_contradiction_in_the_last_rows_alone_is_one() -> None:
    entry, middle, tail = claims(WORK, 50, 50, 50)
    sent = entry.proof.outputs
    other = type(sent)(50, sent.digest, sent.marks, bytes(16) + sent.last[16:])
    liar = claim_of(0, outputs=other)
    assert made(liar, middle, tail) == REFUTED


def test_whatever_comes_first_a_liar_is_not_paid_once_it_was_shown() -> None:
    chain = [claim_of(at, salt=(b"", b"x" if at == 1 else b"")) for at in range(3)]
    for order in permutations(chain):
        came: list[Claim] = []
        for claim in order:
            came.append(claim)
            found = {each.place: made(each, *came) for each in came}
            assert found.get(1, SILENT) in (SILENT, REFUTED)
            assert all(each in (SILENT, paid(50)) for at, each in found.items() if at != 1)


def test_a_session_that_began_anew_with_other_rows_speaks_against_nobody() -> None:
    entry = claim_of(0, salt=(b"", b"again"), epoch=1)
    middle, tail = claim_of(1), claim_of(2)
    assert made(entry, middle) == SILENT, "these rows were not its last ones"
    assert made(middle, entry, tail) == paid(50)
    assert made(entry, middle, waited=WAIT_SECONDS) == unattested(50)


def test_an_entry_that_names_another_epoch_has_nobody_who_tells_of_it() -> None:
    liar = claim_of(0, salt=(b"", b"x"), epoch=7)
    _, middle, tail = claims(WORK, 50, 50, 50)
    assert made(liar, middle, tail) == SILENT
    assert made(liar, middle, tail, waited=WAIT_SECONDS) == unattested(50)
    assert made(middle, liar, tail) == made(tail, middle, liar) == paid(50)


def test_rows_of_a_spare_say_nothing_of_the_stage_that_it_stood_in_for() -> None:
    spare = TicketStage(SPARE.peer_id, WORK.ticket.chain[0].layers, "f32/f32/f32")
    work = Work([identity(1), identity(2)], changes={"spares": (spare,)})
    entry = claim_of(0, work, salt=(b"", b"x"))
    tail = claim_of(1, work, sender=SPARE)
    assert made(entry, tail) == SILENT
    assert made(tail, entry) == paid(50)


def test_a_spare_alone_bears_nobody_out() -> None:
    spare = TicketStage(SPARE.peer_id, WORK.ticket.chain[0].layers, "f32/f32/f32")
    work = Work(WORK.workers, changes={"spares": (spare,)})
    greedy = claim_of(1, work, count=90, sender=SPARE)
    assert made(greedy, waited=WAIT_SECONDS - 1) == SILENT
    assert made(greedy, waited=WAIT_SECONDS) == unattested(90)
    tail = claim_of(2, work, count=20)
    assert made(greedy, claim_of(0, work, count=10)) == SILENT
    assert made(greedy, claim_of(0, work, count=10), tail) == paid(10)
    assert made(greedy, tail, waited=NEIGHBOUR_SECONDS) == paid(16), "what both had"


@pytest.mark.parametrize(("liar", "counts"), [(0, (10, 90, 90)), (1, (90, 2, 90))])
def test_who_commits_to_fewer_rows_than_it_vouched_for_is_refuted_and_nobody_else(
    liar: int, counts: tuple[int, int, int]
) -> None:
    chain = claims(WORK, *counts)
    found = [made(claim, *chain) for claim in chain]
    assert found == [REFUTED if at == liar else paid(90) for at in range(3)]


def test_of_an_entry_nobody_tells_more_than_passed_those_between() -> None:
    work = Work([identity(number) for number in range(1, 5)])
    entry, honest, *friends = claims(work, 90, 10, 10, 90)
    assert made(entry, honest, *friends) == paid(10)
    spare = TicketStage(SPARE.peer_id, work.ticket.chain[2].layers, "f32/f32/f32")
    work = Work(work.workers, changes={"spares": (spare,)})
    chain = [claim_of(at, work, count=n) for at, n in enumerate((90, 10, 10))]
    friend = claim_of(3, work, count=90, sender=SPARE)
    assert made(chain[0], *chain[1:], friend) == paid(10)


def test_a_taker_cannot_name_a_spare_to_say_nothing_of_its_entry() -> None:
    spare = TicketStage(SPARE.peer_id, WORK.ticket.chain[0].layers, "f32/f32/f32")
    work = Work([identity(1), identity(2)], changes={"spares": (spare,)})
    entry, tail = claim_of(0, work), claim_of(1, work, sender=SPARE)
    assert made(entry, tail) == made(tail, entry) == paid(50)


def test_a_taker_cannot_alter_what_its_sender_bound_itself_to() -> None:
    """A proof that proves nothing: the voucher is for all marks of a commit."""
    came = claim_of(1).proof.inputs
    voucher = claim_of(1).proof.voucher
    for marks, last in ((bytes(len(came.marks)), came.last), (came.marks, bytes(len(came.last)))):
        with pytest.raises(BadSignature):
            claim_of(1, inputs=type(came)(came.stop, came.digest, marks, last), voucher=voucher)


def test_two_that_say_more_than_came_are_bounded_by_who_stands_before_both() -> None:
    entry, friend, greedy = claim_of(0, count=10), claim_of(1, count=10), claim_of(2, count=90)
    assert made(greedy, friend, entry) == paid(10)
    assert made(greedy, entry, waited=NEIGHBOUR_SECONDS) == paid(10)


def test_who_was_refuted_bounds_nobody_and_vouches_for_no_pay_of_the_entry() -> None:
    work = Work([identity(number) for number in range(1, 5)])
    entry, three = claim_of(0, work, count=90), claim_of(3, work, count=90)
    liar = claim_of(1, work, count=2, salt=(b"", b"x"))
    two = claim_of(2, work, count=90)
    chain = [entry, liar, two, three]
    assert [made(claim, *chain) for claim in chain] == [paid(90), REFUTED, paid(90), paid(90)]


@given(st.integers(1, 100), st.integers(1, 100))
def test_nobody_is_paid_more_than_the_ticket_and_others_say(ours: int, theirs: int) -> None:
    work = Work([identity(1), identity(2)])
    entry, tail = claims(work, ours, theirs)
    attested = made(entry, tail)
    assert attested.positions <= min(ours, theirs, work.max_tokens)
    assert attested.word is (Word.REFUTED if theirs > ours else Word.BORNE_OUT)
    assert worth(entry, attested.positions) == attested.positions * 10 * MICRO_PER_LAYER_TOKEN


@given(st.lists(st.integers(1, 100), min_size=3, max_size=3))
def test_who_vouched_for_what_it_committed_to_is_never_refuted(counts: list[int]) -> None:
    """Those in front are ahead."""
    chain = claims(WORK, *sorted(counts, reverse=True))
    assert Stages(dict(enumerate(chain))).refuted == frozenset()


@given(st.lists(st.integers(1, 100), min_size=4, max_size=4))
def test_in_an_honest_chain_that_was_given_up_everybody_is_paid_what_it_computed(
    counts: list[int],
) -> None:
    """Those in front are ahead; of the entry somebody has to tell."""
    work = Work([identity(number) for number in range(1, 5)])
    chain = claims(work, *sorted(counts, reverse=True))
    for claim in chain[1:]:
        assert made(claim, *chain) == paid(claim.proof.outputs.stop)
    entry = made(chain[0], *chain)
    assert max(chain[2].proof.outputs.stop, 1) <= entry.positions <= chain[1].proof.outputs.stop
