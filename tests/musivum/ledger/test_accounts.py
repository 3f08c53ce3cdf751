"""What an account owns, earned, spent and waits for."""

from __future__ import annotations

from musivum.ledger import Credits
from tessella.core.ledger import MINT
from tessella.core.tiers import MICRO, Tier
from tests.core.work import NOW, Work, identity
from tests.musivum.ledger.keeping import PAY, WORKER, Kept, a_request, one_stage

WHO = WORKER.peer_id
OTHER = identity(2)


async def test_nobody_has_nothing(kept: Kept) -> None:
    assert await kept.ledger.credits(WHO) == Credits(WHO)
    assert (await kept.ledger.credits(WHO)).tier is Tier.LEECH
    assert await kept.ledger.balance(WHO) == 0
    assert await kept.ledger.accounts() == []


async def test_what_is_earned_and_spent_is_counted(kept: Kept) -> None:
    await kept.ledger.settle([one_stage(1), one_stage(2), one_stage(3, WHO, OTHER)])
    assert await kept.ledger.credits(WHO) == Credits(WHO, PAY, 2 * PAY, 2 * PAY, PAY)
    assert await kept.ledger.credits(OTHER.peer_id) == Credits(OTHER.peer_id, PAY, PAY, PAY)
    assert (await kept.ledger.credits(MINT)).spent == 2 * PAY
    assert (await kept.ledger.credits(WHO)).tier is Tier.STANDARD


async def test_what_was_earned_of_late_is_of_a_day(kept: Kept) -> None:
    kept.now = (NOW // 3600) * 3600
    await kept.ledger.settle([one_stage(1, at=kept.now)])
    kept.now += 23 * 3600 + 3599
    await kept.ledger.settle([one_stage(2, at=kept.now)])
    assert (await kept.ledger.credits(WHO)).earned_day == 2 * PAY
    kept.now += 1
    found = await kept.ledger.credits(WHO)
    assert (found.earned_day, found.earned) == (PAY, 2 * PAY)
    await kept.ledger.sweep(kept.now)
    assert await kept.ledger.credits(WHO) == found


async def test_proofs_that_wait_are_counted_before_anything_is_owned(kept: Kept) -> None:
    works = [Work([WORKER, OTHER], request_id=a_request(n)) for n in range(3)]
    await kept.ledger.settle([work.proof(0) for work in works])
    assert (await kept.ledger.credits(WHO)).waiting == 3
    await kept.ledger.settle([works[0].proof(1)])
    assert (await kept.ledger.credits(WHO)).waiting == 2
    assert (await kept.ledger.credits(OTHER.peer_id)).waiting == 0


async def test_the_richest_come_first_and_not_all(kept: Kept) -> None:
    await kept.ledger.settle([one_stage(1), one_stage(2), one_stage(3, worker=OTHER)])
    named = [each.account for each in await kept.ledger.accounts()]
    assert named == [WHO, OTHER.peer_id, MINT]
    assert [each.account for each in await kept.ledger.accounts(1)] == [WHO]
    assert sum(each.balance for each in await kept.ledger.accounts()) == 0
    assert (await kept.ledger.accounts())[0].earned_day == 2 * PAY
    assert PAY == MICRO // 2
