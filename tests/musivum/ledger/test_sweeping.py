"""What waited too long is paid a share; what is old is let go of, and never paid again."""

from __future__ import annotations

import pytest
import trio
from sqlalchemy import func, select
from trio.testing import MockClock

from musivum.ledger import run_ledger
from musivum.ledger.kept import KEEP_SECONDS
from musivum.ledger.room import SWEEP_SECONDS
from musivum.ledger.sweeping import SWEEP_PROOFS
from musivum.store.ledger_tables import EARNED, MINTED, PROOFS
from tessella.core.attesting import NEIGHBOUR_SECONDS, WAIT_SECONDS
from tessella.core.errors import StoreUnavailable
from tessella.core.proofs import SignedProof
from tessella.core.settlement import (
    UNATTESTED_SHARE,
    Became,
    Caps,
    Outcome,
)
from tests.core.work import MUSIVUM, NOW, Work, committed, identity
from tests.musivum.ledger.keeping import PAY, WORKER, Kept, a_request, became, one_stage

CHAIN = [WORKER, identity(2)]
HALF = PAY // UNATTESTED_SHARE


async def bytes_kept(kept: Kept) -> int:
    asked = select(func.sum(func.length(PROOFS.c.payload)))
    return int(await kept.store.transact(lambda connection: connection.execute(asked).scalar_one()))


async def test_a_proof_whose_neighbour_never_spoke_is_paid_half(kept: Kept) -> None:
    work = Work(CHAIN)
    await kept.earns(WORKER)
    await kept.ledger.settle([work.proof(0)])
    await kept.ledger.sweep(NOW + WAIT_SECONDS - 1)
    assert kept.paid == []
    await kept.ledger.sweep(NOW + WAIT_SECONDS)
    assert [one.micro for one in kept.paid] == [HALF]
    assert await kept.ledger.settle([work.proof(0)]) == [Outcome(Became.ALREADY_PAID, HALF)]
    # The neighbour that comes at last is borne out by it, and nobody is paid again.
    assert await kept.ledger.settle([work.proof(1)]) == [Outcome(Became.PAID, PAY)]
    await kept.ledger.sweep(NOW + 2 * WAIT_SECONDS)
    assert (await kept.walk()).size == 5 + 2
    await kept.ledger.check(whole=True)


async def test_more_than_one_transaction_may_be_overdue(kept: Kept) -> None:
    count = SWEEP_PROOFS + 3
    for first in range(0, count, 200):
        works = [
            Work(CHAIN, request_id=a_request(n)) for n in range(first, min(first + 200, count))
        ]
        await kept.ledger.settle([work.proof(0, 1) for work in works])
    await kept.ledger.sweep(NOW + WAIT_SECONDS)
    assert len(kept.paid) == count
    assert (await kept.ledger.credits(WORKER.peer_id)).waiting == 0


async def test_old_bytes_go_and_what_was_paid_stays_paid(kept: Kept) -> None:
    proof = one_stage(1)
    await kept.ledger.settle([proof])
    await kept.ledger.sweep(NOW + KEEP_SECONDS)
    assert await bytes_kept(kept) == len(proof.payload)
    await kept.ledger.sweep(NOW + KEEP_SECONDS + 1)
    assert await bytes_kept(kept) == 0
    assert await kept.ledger.proof(a_request(1), WORKER.peer_id, MUSIVUM.peer_id) is None
    assert await kept.ledger.settle([proof]) == [Outcome(Became.ALREADY_PAID, PAY)]
    assert became(
        await kept.ledger.settle([Work(CHAIN[:1], request_id=a_request(1)).proof(0, 9)])
    ) == ["refused"]


async def test_counts_of_days_that_are_over_go(kept: Kept) -> None:
    await kept.ledger.settle([one_stage(1)])

    async def rows() -> list[int]:
        counts = [select(func.count()).select_from(table) for table in (EARNED, MINTED)]
        return await kept.store.transact(
            lambda connection: [connection.execute(asked).scalar_one() for asked in counts]
        )

    await kept.ledger.sweep(NOW)
    assert await rows() == [1, 1]
    await kept.ledger.sweep(NOW + 2 * 24 * 3600)
    assert await rows() == [0, 0]


async def test_it_is_done_now_and_then_also_after_one_without_room(
    kept: Kept, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    await kept.earns(WORKER)
    await kept.ledger.settle([Work(CHAIN).proof(0)])
    began = trio.current_time()
    kept.store.error = StoreUnavailable("no room")
    with trio.move_on_after(WAIT_SECONDS + SWEEP_SECONDS / 2):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run_ledger, kept.ledger, lambda: NOW + trio.current_time() - began)
            await trio.sleep(SWEEP_SECONDS / 2)
            kept.store.error = None
    assert [record.getMessage() for record in caplog.records] == [
        "the ledger is not swept: no room"
    ]
    assert [one.micro for one in kept.paid] == [HALF]


def unseen(work: Work) -> SignedProof:
    """An entry's proof of as many positions as its ticket has, of rows that nobody else saw."""
    rows = committed(0, work.max_tokens, b"made up").commit()
    return work.proof(0, work.max_tokens, inputs=rows, outputs=rows)


async def test_what_nobody_bears_out_takes_nothing_from_who_asked(kept: Kept) -> None:
    asker, liar = identity(9), identity(2)
    await kept.ledger.settle([one_stage(1, worker=asker)])
    await kept.earns(liar)
    works = [
        Work([worker, identity(3)], requester=asker.peer_id, request_id=a_request(number))
        for number, worker in enumerate((liar, WORKER), start=2)
    ]
    await kept.ledger.settle([unseen(work) for work in works])
    await kept.ledger.sweep(NOW + WAIT_SECONDS)
    assert await kept.ledger.balance(asker.peer_id) == PAY
    assert await kept.ledger.balance(WORKER.peer_id) == 0, "nobody saw anything it did that day"
    assert await kept.ledger.balance(liar.peer_id) == 6 * PAY, "half of twice as many, of the mint"
    await kept.walk()


async def test_a_worker_mints_a_share_of_a_day_for_what_nobody_bears_out() -> None:
    kept = Kept(caps=Caps(worker=5 * PAY))
    for number in range(4):
        asker = identity(100 + number).peer_id
        work = Work(CHAIN, requester=asker, request_id=a_request(number))
        await kept.ledger.settle([unseen(work)])
    await kept.earns(WORKER)
    await kept.ledger.sweep(NOW + WAIT_SECONDS)
    assert await kept.ledger.balance(WORKER.peer_id) == (5 + 1) * PAY
    assert len(kept.paid) == 4


async def test_a_worker_gets_for_what_nobody_bears_out_a_part_of_what_others_did() -> None:
    kept = Kept(caps=Caps(worker=1000 * PAY))
    await kept.earns(WORKER, times=3)
    for number in range(4):
        work = Work(CHAIN, request_id=a_request(number))
        await kept.ledger.settle([unseen(work)])
    await kept.ledger.sweep(NOW + WAIT_SECONDS)
    got = await kept.ledger.balance(WORKER.peer_id) - 3 * PAY
    # A fifth of what it earned, with what it got so itself.
    assert 3 * PAY // 5 <= got < PAY


async def test_one_that_waits_on_is_not_looked_at_again_at_once(kept: Kept) -> None:
    await kept.ledger.settle([Work(CHAIN).proof(0)])
    with trio.fail_after(10):
        await kept.ledger.sweep(NOW + NEIGHBOUR_SECONDS)
        await kept.ledger.sweep(NOW + NEIGHBOUR_SECONDS)
    assert kept.paid == []
