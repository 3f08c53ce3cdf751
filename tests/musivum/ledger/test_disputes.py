"""Two stages that contradict each other wait for an audit, and are paid as it tells."""

from __future__ import annotations

import itertools

import pytest

from musivum.ledger.room import DISPUTE_SECONDS
from tessella.core.attesting import NEIGHBOUR_SECONDS, WAIT_SECONDS, Ruling
from tessella.core.proofs import Claim, SignedProof, read_claim
from tessella.core.settlement import Became, Outcome
from tests.core.work import MUSIVUM, NOW, Work, identity
from tests.musivum.ledger.keeping import PAY, Kept, a_request, became

CHAIN = [identity(1), identity(2), identity(3)]
WORK = Work(CHAIN)
ENTRY, _, TAIL = (WORK.proof(place) for place in range(3))
# Says that it took other rows than the entry sent, and so does whoever computed on what it made.
LIAR = WORK.proof(1, salt=(b"x", b""))
WAITING = Outcome(Became.WAITING)


def claim_of(proof: SignedProof) -> Claim:
    """What a proof claims."""
    return read_claim(proof, {MUSIVUM.peer_id}, NOW)


async def balances(kept: Kept) -> list[int]:
    """Of the stages of the chain."""
    return [await kept.ledger.balance(worker.peer_id) for worker in CHAIN]


@pytest.mark.parametrize("order", list(itertools.permutations([ENTRY, LIAR, TAIL])))
async def test_a_middle_that_lies_of_its_inputs_waits_with_who_contradicts_it(
    kept: Kept, order: tuple[SignedProof, ...]
) -> None:
    for proof in order:
        await kept.ledger.settle([proof])
    assert await balances(kept) == [0, 0, 0], "whoever comes first"
    assert await kept.ledger.settle([ENTRY, LIAR, TAIL]) == [WAITING] * 3
    assert {each.signed for each in kept.disputed} == {ENTRY}, "it has to show what it sent"


async def test_an_audit_that_bears_the_first_one_out_refuses_the_other(kept: Kept) -> None:
    await kept.ledger.settle([ENTRY, LIAR, TAIL])
    await kept.ledger.rule(claim_of(ENTRY), Ruling.RIGHT)
    assert await balances(kept) == [PAY, 0, PAY]
    (outcome,) = await kept.ledger.settle([LIAR])
    assert (outcome.became, outcome.code) == (Became.REFUSED, "unattested")
    assert [(one.claim.worker, one.is_contradicted) for one in kept.paid] == [
        (CHAIN[0].peer_id, True),
        (CHAIN[2].peer_id, False),
    ]
    await kept.walk()
    await kept.ledger.check(whole=True)


async def test_an_audit_that_tells_against_the_first_one_pays_the_other(kept: Kept) -> None:
    await kept.ledger.settle([WORK.proof(0, salt=(b"", b"x")), WORK.proof(1), TAIL])
    assert await balances(kept) == [0, 0, 0]
    await kept.ledger.rule(kept.disputed[0].claim, Ruling.WRONG)
    assert await balances(kept) == [0, PAY, PAY]


async def test_what_an_audit_found_first_holds_and_pays_once(kept: Kept) -> None:
    await kept.ledger.settle([ENTRY, LIAR, TAIL])
    for ruling in (Ruling.RIGHT, Ruling.WRONG, Ruling.RIGHT):
        await kept.ledger.rule(claim_of(ENTRY), ruling)
    assert await balances(kept) == [PAY, 0, PAY]
    assert len(await kept.entries()) == 2


async def test_a_ruling_on_a_proof_that_never_came_changes_nothing(kept: Kept) -> None:
    await kept.ledger.rule(claim_of(ENTRY), Ruling.RIGHT)
    assert await kept.ledger.settle([ENTRY]) == [WAITING]
    assert await kept.entries() == []


async def test_a_ruling_holds_for_proofs_that_come_after_it_and_after_a_restart(
    kept: Kept,
) -> None:
    await kept.ledger.settle([ENTRY, LIAR])
    await kept.ledger.rule(claim_of(ENTRY), Ruling.RIGHT)
    assert await balances(kept) == [PAY, 0, 0]
    again = Kept(kept.store)
    assert became(await again.ledger.settle([TAIL])) == ["paid"]
    assert await again.ledger.disputes() == []


async def test_disputes_are_told_again_to_a_musivum_that_starts(kept: Kept) -> None:
    for number in range(3):
        work = Work(CHAIN, request_id=a_request(number))
        await kept.ledger.settle([work.proof(0), work.proof(1, salt=(b"x", b"")), work.proof(2)])
    await kept.ledger.rule(kept.disputed[0].claim, Ruling.RIGHT)
    again = Kept(kept.store)
    found = await again.ledger.disputes()
    assert {bill.claim.request_id for bill in found} == {a_request(1), a_request(2)}
    assert {bill.claim.worker for bill in found} == {CHAIN[0].peer_id}
    again.now = NOW + DISPUTE_SECONDS + 1
    assert await again.ledger.disputes() == [], "nothing is kept of them any more"


async def test_what_no_audit_could_decide_is_paid_half_after_a_day(kept: Kept) -> None:
    await kept.earns(CHAIN[0])
    await kept.ledger.settle([ENTRY, LIAR, TAIL])
    await kept.ledger.sweep(NOW + WAIT_SECONDS - 1)
    assert await balances(kept) == [5 * PAY, 0, 0]
    await kept.ledger.sweep(NOW + WAIT_SECONDS)
    half = [5 * PAY + PAY // 2, 0, PAY]
    assert await balances(kept) == half, "of the other nobody ever saw any work"
    await kept.ledger.rule(claim_of(ENTRY), Ruling.RIGHT)
    assert await balances(kept) == half, "and that is final"
    await kept.walk()


async def test_one_neighbours_word_is_enough_after_a_quarter_of_an_hour(kept: Kept) -> None:
    await kept.ledger.settle([WORK.proof(1), TAIL])
    await kept.ledger.sweep(NOW + NEIGHBOUR_SECONDS - 1)
    assert await balances(kept) == [0, 0, 0]
    await kept.ledger.sweep(NOW + NEIGHBOUR_SECONDS)
    assert await balances(kept) == [0, PAY, PAY]
    await kept.ledger.sweep(NOW + NEIGHBOUR_SECONDS)
    assert len(kept.paid) == 2


async def test_of_two_that_count_differently_both_are_told_and_wait(kept: Kept) -> None:
    await kept.ledger.settle([WORK.proof(0, 10), WORK.proof(1, 50), WORK.proof(2, 50)])
    assert set(kept.miscounts) == {(CHAIN[0].peer_id, CHAIN[1].peer_id)}
    assert await balances(kept) == [8 * PAY // 50, 0, 0]
    assert kept.disputed == [], "no rows tell who counts wrongly"
    await kept.earns(CHAIN[1])
    await kept.ledger.sweep(NOW + WAIT_SECONDS)
    assert await balances(kept) == [8 * PAY // 50, 5 * PAY + PAY // 2, 0]


async def test_what_waits_on_is_told_once_while_it_can_be_audited(kept: Kept) -> None:
    await kept.ledger.settle([ENTRY])
    for later in (NEIGHBOUR_SECONDS - 1, NEIGHBOUR_SECONDS, 2 * NEIGHBOUR_SECONDS, WAIT_SECONDS):
        await kept.ledger.sweep(NOW + later)
    assert [(one.signed, one.micro, one.received_at) for one in kept.waiting] == [(ENTRY, 0, NOW)]
