"""A partner that is forgotten leaves nothing behind, and may be read again."""

from __future__ import annotations

from functools import partial

import pytest
from sqlalchemy import Connection, select

from musivum.federation.forgetting import UNDONE_ENTRIES, knows, undo_some
from musivum.store.ledger_tables import ENTRIES, LEDGERS, MINTED, PROOFS, TREE
from musivum.store.partner_tables import PARTNERS
from tessella.core.errors import BadRequest, UnknownEntry
from tessella.core.ledger import MINT
from tessella.core.settlement import Became, Outcome
from tests.core.work import identity
from tests.musivum.federation.light import OTHER, WORKER, A, B, Light, a_proof, fill, pair
from tests.musivum.ledger.keeping import PAY


def left(connection: Connection) -> dict[str, int]:
    """Rows of a partner, by table."""
    tables = (ENTRIES, LEDGERS, TREE, PARTNERS, PROOFS)
    return {
        table.name: len(connection.execute(select(table).where(table.c.origin == A.peer_id)).all())
        for table in tables
    }


@pytest.mark.parametrize("checked", [False, True])
@pytest.mark.parametrize("count", [1, UNDONE_ENTRIES, 2 * UNDONE_ENTRIES + 77])
async def test_what_is_forgotten_was_never_here(count: int, checked: bool) -> None:
    a, b = pair()
    await b.ledger.settle([a_proof(1000, B)])
    before = await b.ledger.accounts()
    await fill(a, count)
    await b.sync(a)
    if checked:
        await b.ledger.check()
    assert await b.balances() != {WORKER.peer_id: PAY, MINT: -PAY}
    assert (await b.federation.forget(A.peer_id)).entries == count
    assert set((await b.store.transact(left)).values()) == {0}
    assert [(each.account, each.balance, each.earned) for each in before] == [
        (each.account, each.balance, each.earned)
        for each in await b.ledger.accounts()
        if each.balance
    ]
    await b.ledger.check()
    await b.verify()
    await b.sync(a)
    assert await b.ledger.size(A.peer_id) == count
    await b.verify()


async def test_pieces_leave_a_ledger_that_is_only_shorter() -> None:
    a, b = pair()
    await fill(a, UNDONE_ENTRIES + 300)
    await b.sync(a)
    await b.ledger.check()
    undo = partial(undo_some, origin=A.peer_id, now=b.now)
    assert await b.store.transact(undo) == UNDONE_ENTRIES
    assert await b.ledger.size(A.peer_id) == 300
    await b.ledger.check()
    await b.ledger.check(whole=True)
    await b.sync(a)
    assert await b.balances() == await a.balances()
    await b.verify()


async def test_a_proof_that_it_had_paid_may_be_paid_here() -> None:
    a, b = pair()
    await a.ledger.settle([a_proof(1)])
    await b.sync(a)
    await b.federation.forget(A.peer_id)
    assert await b.ledger.settle([a_proof(1)]) == [Outcome(Became.PAID, PAY)]
    await b.sync(a)
    await a.sync(b)
    # And is paid once, when both know of each other again.
    assert await a.balances() == await b.balances() == {WORKER.peer_id: PAY, MINT: -PAY}
    await b.verify()


async def test_what_we_took_back_for_it_stays_taken_back_until_it_is_paid_again() -> None:
    a, b = pair()
    for side in (a, b):
        await side.ledger.settle([a_proof(1)])
    await b.sync(a)
    assert [entry.kind for entry in await b.entries()] == ["payment", "reversal"]
    await b.federation.forget(A.peer_id)
    assert await b.balances() == {}
    assert await b.ledger.settle([a_proof(1)]) == [Outcome(Became.WAITING)]
    await b.sync(a)
    assert await b.ledger.settle([a_proof(1)]) == [Outcome(Became.ALREADY_PAID, PAY)]
    await b.verify()


async def _minted(side: Light) -> dict[tuple[str, str], int]:
    """What is counted of today, but for counts of nothing."""
    asked = select(MINTED).where(MINTED.c.micro != 0)
    rows = await side.store.transact(lambda connection: connection.execute(asked).all())
    return {(row.worker, row.requester): row.micro for row in rows}


async def test_what_it_minted_is_no_more_of_the_caps() -> None:
    a, b = pair()
    await b.ledger.settle([a_proof(1000, B), a_proof(1001, B, requester=OTHER.peer_id)])
    before = await _minted(b)
    assert before == {(WORKER.peer_id, ""): 2 * PAY, (WORKER.peer_id, OTHER.peer_id): PAY}
    await fill(a, UNDONE_ENTRIES + 300)
    await b.sync(a)
    # Two payments of 3 and one of these given back by 1, of every four entries.
    by_a = (UNDONE_ENTRIES + 300) // 4 * 5
    assert await _minted(b) == {**before, (WORKER.peer_id, ""): 2 * PAY + by_a}
    await b.federation.forget(A.peer_id)
    assert await _minted(b) == before
    await b.sync(a)
    assert (await _minted(b))[WORKER.peer_id, ""] == 2 * PAY + by_a


async def test_nobody_is_forgotten_of_whom_nothing_is_kept() -> None:
    _, b = pair()
    await b.ledger.settle([a_proof(1, B)])
    for peer in (A.peer_id, B.peer_id, identity(7).peer_id):
        with pytest.raises(BadRequest, match="nothing is kept of a partner"):
            await b.federation.forget(peer)
    assert not await b.store.transact(lambda connection: knows(connection, A.peer_id))
    with pytest.raises(UnknownEntry):
        await b.ledger.inclusion(1)


async def test_a_musivum_that_is_no_partner_any_more_can_be_forgotten() -> None:
    a, b = pair()
    await a.ledger.settle([a_proof(1)])
    await b.sync(a)
    alone = Light(B, [], b.wire, b.store)
    assert await alone.balances() == {WORKER.peer_id: PAY, MINT: -PAY}
    assert (await alone.federation.forget(A.peer_id)).entries == 1
    assert await alone.balances() == {}
