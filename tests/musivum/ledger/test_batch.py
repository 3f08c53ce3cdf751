"""What a transaction makes of a chain one of whose stages lies: it is shown to, and not paid."""

from __future__ import annotations

import itertools

import pytest

from tessella.core.attesting import NEIGHBOUR_SECONDS, WAIT_SECONDS
from tessella.core.proofs import SignedProof
from tessella.core.settlement import Became, Outcome
from tests.core.work import NOW, Work, identity
from tests.musivum.ledger.keeping import PAY, Kept, a_request, became

CHAIN = [identity(number) for number in (1, 2, 3, 4)]
WORK = Work(CHAIN)
HONEST = [WORK.proof(place) for place in range(4)]
OTHERS = (b"", b"x")
WAITING = Outcome(Became.WAITING)
TEXT = "it commits to other rows than its worker vouched for to the next stage"
REFUTED = Outcome(Became.REFUSED, 0, "unattested", TEXT)


def lied(liar: int) -> list[SignedProof]:
    """The proofs of a chain one of whose stages commits to other rows than it vouched for."""
    return [WORK.proof(at, salt=OTHERS) if at == liar else each for at, each in enumerate(HONEST)]


async def balances(kept: Kept) -> list[int]:
    """Of the stages of the chain."""
    return [await kept.ledger.balance(worker.peer_id) for worker in CHAIN]


def told(kept: Kept) -> list[str]:
    """Who was told to have committed to other rows than it vouched for."""
    return [each.claim.worker for each in kept.refuted]


@pytest.mark.parametrize("liar", [0, 1, 2])
@pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
async def test_who_lies_of_what_it_sent_is_refused_and_told_once_and_all_beside_it_are_paid(
    kept: Kept, liar: int, order: tuple[int, ...]
) -> None:
    proofs = lied(liar)
    for place in order:
        await kept.ledger.settle([proofs[place]])
    paid = [0 if place == liar else PAY for place in range(4)]
    assert await balances(kept) == paid
    for _ in range(2):
        again = await kept.ledger.settle(proofs)
        assert again[liar] == REFUTED
        assert became(again).count("already_paid") == 3
    assert told(kept) == [CHAIN[liar].peer_id]
    assert [each.by for each in kept.refuted] == [CHAIN[liar + 1].peer_id]
    await kept.ledger.sweep(NOW + WAIT_SECONDS)
    assert await balances(kept) == paid
    assert told(kept) == [CHAIN[liar].peer_id]
    await kept.walk()


async def test_one_that_waits_is_refused_when_the_proof_behind_it_comes(kept: Kept) -> None:
    entry, middle, *_ = lied(0)
    assert await kept.ledger.settle([entry]) == [WAITING]
    assert await kept.ledger.settle([middle]) == [WAITING], "it may be that less came behind it"
    assert await kept.ledger.settle([entry]) == [REFUTED]


async def test_one_that_comes_after_the_proof_behind_it_is_refused_at_once(kept: Kept) -> None:
    _, liar, behind, _ = lied(1)
    await kept.ledger.settle([behind])
    assert await kept.ledger.settle([liar]) == [REFUTED]
    assert told(kept) == [CHAIN[1].peer_id]


async def test_two_that_lie_in_one_chain_are_both_told_and_refused(kept: Kept) -> None:
    proofs = [WORK.proof(at, salt=OTHERS) if at in (0, 1) else HONEST[at] for at in range(4)]
    for place in (0, 2, 1, 3):
        await kept.ledger.settle([proofs[place]])
    assert await balances(kept) == [0, 0, PAY, PAY]
    assert sorted(told(kept)) == sorted(each.peer_id for each in CHAIN[:2])


async def test_what_was_shown_holds_after_a_restart(kept: Kept) -> None:
    proofs = lied(1)
    await kept.ledger.settle(proofs[:3])
    again = Kept(kept.store)
    assert became(await again.ledger.settle(proofs)) == [
        "already_paid",
        "refused",
        "waiting",
        "paid",
    ]
    assert await balances(again) == [PAY, 0, PAY, PAY]
    assert told(again) == [], "it was told"


async def test_one_that_was_paid_before_it_was_shown_to_lie_stays_paid_and_is_told_once(
    kept: Kept,
) -> None:
    _, liar, behind, tail = lied(1)
    await kept.ledger.settle([HONEST[0], liar])
    await kept.ledger.sweep(NOW + NEIGHBOUR_SECONDS)
    assert await balances(kept) == [PAY, PAY, 0, 0]
    assert told(kept) == []
    for _ in range(2):
        await kept.ledger.settle([behind, tail])
    assert await balances(kept) == [PAY] * 4
    assert told(kept) == [CHAIN[1].peer_id]
    assert became(await kept.ledger.settle([liar])) == ["already_paid"]
    await kept.ledger.sweep(NOW + WAIT_SECONDS)
    assert told(kept) == [CHAIN[1].peer_id]
    assert len(await kept.entries()) == 4


async def test_two_tickets_of_one_request_say_nothing_of_each_other(kept: Kept) -> None:
    first, second = (Work(CHAIN, max_tokens=most) for most in (100, 101))
    await kept.ledger.settle([first.proof(0, salt=OTHERS)])
    proofs = [second.proof(place) for place in (1, 2, 3)]
    assert became(await kept.ledger.settle(proofs)) == ["waiting"] * 3
    await kept.ledger.sweep(NOW + WAIT_SECONDS)
    assert await balances(kept) == [0, PAY, PAY, PAY], "of the entry nobody tells"
    assert told(kept) == []


async def test_a_voucher_is_enough_after_a_quarter_of_an_hour(kept: Kept) -> None:
    await kept.ledger.settle(HONEST[1:])
    await kept.ledger.sweep(NOW + NEIGHBOUR_SECONDS - 1)
    assert await balances(kept) == [0] * 4
    await kept.ledger.sweep(NOW + NEIGHBOUR_SECONDS)
    assert await balances(kept) == [0, PAY, PAY, PAY]
    await kept.ledger.sweep(NOW + NEIGHBOUR_SECONDS)
    assert len(kept.paid) == 3


async def test_who_says_more_than_came_is_paid_for_what_those_in_front_sent(kept: Kept) -> None:
    counts = (32, 32, 100, 100)
    await kept.ledger.settle([WORK.proof(place, count) for place, count in enumerate(counts)])
    assert await balances(kept) == [32 * PAY // 50 if at != 1 else 0 for at in range(4)]
    assert told(kept) == [CHAIN[1].peer_id], "it vouched for more than it had"


async def test_what_waits_on_is_told_once_while_it_can_be_audited(kept: Kept) -> None:
    for number in range(2):
        await kept.ledger.settle([Work(CHAIN, request_id=a_request(number)).proof(0)])
    for later in (NEIGHBOUR_SECONDS - 1, NEIGHBOUR_SECONDS, 2 * NEIGHBOUR_SECONDS, WAIT_SECONDS):
        await kept.ledger.sweep(NOW + later)
    assert [(one.claim.request_id, one.micro, one.received_at) for one in kept.waiting] == [
        (a_request(number), 0, NOW) for number in range(2)
    ]
