"""What a page of another's ledger does here: once, whatever was paid at both before."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import select

from musivum.ledger import Movement
from musivum.store.ledger_tables import MINTED
from tessella.core.identity import Identity
from tessella.core.ledger import MINT, SLASHED, Line
from tessella.core.settlement import SECONDS_A_DAY, Became, Outcome, day_of
from tests.core.work import NOW, Work, identity
from tests.musivum.federation.light import (
    OTHER,
    WORKER,
    A,
    B,
    Light,
    Wire,
    a_proof,
    pair,
    standing,
)
from tests.musivum.ledger.keeping import PAY

CLIENT = identity(9)
C = Identity(b"C" * 32)


async def test_what_was_paid_at_one_is_already_paid_at_the_other() -> None:
    a, b = pair()
    await a.ledger.settle([a_proof(1), a_proof(2)])
    assert await b.sync(a) == 1
    assert await b.ledger.settle([a_proof(1)]) == [Outcome(Became.ALREADY_PAID, PAY)]
    assert await b.balances() == await a.balances() == {WORKER.peer_id: 2 * PAY, MINT: -2 * PAY}
    assert await b.entries() == []
    await a.verify()
    await b.verify()


async def test_a_proof_that_waits_here_is_paid_by_the_partner() -> None:
    a, b = pair()
    work = Work([WORKER, OTHER], issuer=A)
    first, second = work.proof(0), work.proof(1)
    assert await b.ledger.settle([first]) == [Outcome(Became.WAITING)]
    await a.ledger.settle([first, second])
    await b.sync(a)
    assert await b.ledger.settle([first, second]) == [Outcome(Became.ALREADY_PAID, PAY)] * 2
    b.now += 2 * 24 * 3600
    await b.ledger.sweep(b.now)
    assert await b.entries() == []
    assert (await b.ledger.credits(WORKER.peer_id)).waiting == 0


async def test_credits_that_were_earned_at_one_are_spent_at_the_other() -> None:
    a, b = pair()
    await a.ledger.settle([a_proof(1, worker=CLIENT)])
    await b.sync(a)
    await b.ledger.settle([a_proof(2, B, WORKER, CLIENT.peer_id)])
    await a.sync(b)
    expected = {WORKER.peer_id: PAY, MINT: -PAY}
    assert await a.balances() == await b.balances() == expected


@pytest.mark.parametrize(
    ("name", "issuer", "kept"),
    [("a ticket of the first", A, "a"), ("a ticket of the second", B, "b")],
)
async def test_what_both_paid_is_paid_by_who_issued_the_ticket(
    name: str, issuer: Identity, kept: str
) -> None:
    a, b = pair()
    for side in (a, b):
        assert await side.ledger.settle([a_proof(1, issuer)]) == [Outcome(Became.PAID, PAY)]
    await _sync_until_quiet([a, b])
    await _is_one_payment([a, b])
    lost = b if kept == "a" else a
    assert [entry.kind for entry in await lost.entries()] == ["payment", "reversal"]
    for side in (a, b):
        assert await side.ledger.settle([a_proof(1, issuer)]) == [Outcome(Became.ALREADY_PAID, PAY)]
        found = await side.ledger.credits(WORKER.peer_id)
        assert (found.balance, found.earned, found.earned_day) == (PAY, PAY, PAY)


async def test_what_is_taken_back_leaves_room_on_the_day_that_it_was_minted() -> None:
    a, b = pair()
    for side in (a, b):
        await side.ledger.settle([a_proof(1, A), a_proof(2, A)])
    for side in (a, b):
        side.now += SECONDS_A_DAY
        await side.ledger.settle([a_proof(3, side.identity)])
    await _sync_until_quiet([a, b])
    assert await _minted(b) == {day_of(NOW): 2 * PAY, day_of(NOW) + 1: 2 * PAY}
    a, b = pair()
    for side in (a, b):
        await side.ledger.settle([a_proof(1, A), a_proof(2, side.identity)])
    await _sync_until_quiet([a, b])
    assert await _minted(a) == await _minted(b) == {day_of(NOW): 3 * PAY}


async def _minted(side: Light) -> dict[int, int]:
    """What is counted for the worker, by day."""
    asked = select(MINTED).where(MINTED.c.worker == WORKER.peer_id, MINTED.c.requester == "")
    rows = await side.store.transact(lambda connection: connection.execute(asked).all())
    return {row.day: row.micro for row in rows}


async def test_of_a_third_ones_ticket_the_earlier_payment_stands() -> None:
    wire = Wire()
    a, b, c = Light(A, [B, C], wire), Light(B, [A, C], wire), Light(C, [A, B], wire)
    a.now += 10
    b.now += 5
    for side in (a, b):
        await side.ledger.settle([a_proof(1, C)])
    await _sync_until_quiet([a, b, c])
    await _is_one_payment([a, b, c])
    assert [entry.kind for entry in await b.entries()] == ["payment"]
    assert [entry.kind for entry in await a.entries()] == ["payment", "reversal"]


async def test_what_was_taken_back_once_is_not_taken_back_for_another() -> None:
    wire = Wire()
    a, b, c = Light(A, [], wire), Light(B, [A, C], wire), Light(C, [A], wire)
    for side in (a, b, c):
        await side.ledger.settle([a_proof(1)])
    for other in (a, c):
        await b.sync(other)
    assert [entry.kind for entry in await b.entries()] == ["payment", "reversal"]
    by = "SELECT origin, entry, micro, state FROM proofs"
    rows = await b.store.transact(lambda connection: connection.exec_driver_sql(by).all())
    assert [tuple(row) for row in rows] == [(A.peer_id, 0, PAY, "paid")]
    await b.verify()


@pytest.mark.slow
async def test_of_three_payments_one_stands() -> None:
    for order in itertools.permutations(range(3)):
        wire = Wire()
        sides = [Light(A, [B, C], wire), Light(B, [A, C], wire), Light(C, [A, B], wire)]
        for side in sides:
            await side.ledger.settle([a_proof(1, B)])
        for place in order:
            await _sync_until_quiet(sides[place:] + sides[:place], rounds=1)
        await _sync_until_quiet(sides)
        await _is_one_payment(sides)
        assert [entry.kind for entry in await sides[1].entries()] == ["payment"]


async def test_pay_that_was_spent_before_it_is_taken_back_is_owed() -> None:
    a, b = pair()
    for side in (a, b):
        await side.ledger.settle([a_proof(1, worker=CLIENT)])
    await b.ledger.settle([a_proof(2, B, WORKER, CLIENT.peer_id)])
    await a.ledger.settle([a_proof(3, A, WORKER, CLIENT.peer_id)])
    await _sync_until_quiet([a, b])
    assert await a.balances() == await b.balances()
    assert await a.ledger.balance(CLIENT.peer_id) == -PAY
    # Whoever owes is served as the poorest are, and pays nothing it has not.
    await a.ledger.settle([a_proof(4, A, WORKER, CLIENT.peer_id)])
    assert await a.ledger.balance(CLIENT.peer_id) == -PAY


async def test_a_payment_of_nothing_is_resolved_like_any_other() -> None:
    a, b = pair()
    own = a_proof(1, A, WORKER, WORKER.peer_id)
    for side in (a, b):
        assert await side.ledger.settle([own]) == [Outcome(Became.PAID, 0)]
    await _sync_until_quiet([a, b])
    await _is_one_payment([a, b])
    assert await a.balances() == await b.balances() == {}


async def test_a_fine_moves_the_account_here_and_bars_nobody() -> None:
    a, b = pair()
    await a.ledger.settle([a_proof(1)])
    fine = [Line(WORKER.peer_id, -5), Line(SLASHED, 5)]
    await a.ledger.post("slash", fine, "two opinions")
    await b.sync(a)
    assert await b.ledger.balance(WORKER.peer_id) == PAY - 5
    (partner,) = b.federation.status().partners
    assert (partner.slashes, partner.reversals) == (1, 0)
    await a.ledger.post("appeal", [replace(each, amount=-each.amount) for each in fine], "sorry")
    await b.sync(a)
    assert await b.ledger.balance(WORKER.peer_id) == PAY
    await b.verify()


@pytest.mark.slow
async def test_a_long_ledger_comes_in_pages() -> None:
    a, b = pair()
    lines = [Line(WORKER.peer_id, 1), Line(MINT, -1)]
    await a.ledger.write(
        lambda draft: [draft.append(_payment(number, lines)) for number in range(2500)]
    )
    assert await b.sync(a) == 3
    (partner,) = b.federation.status().partners
    assert (partner.size, partner.behind, partner.state) == (2500, 0, "following")
    assert await b.balances() == await a.balances()
    await b.verify()


def _payment(number: int, lines: Sequence[Line]) -> Movement:
    return Movement(
        "payment",
        lines,
        issuer=A.peer_id,
        request_id=number.to_bytes(16, "big"),
        worker=WORKER.peer_id,
    )


async def _sync_until_quiet(sides: Sequence[Light], rounds: int = 4) -> None:
    for _ in range(rounds):
        for side, other in itertools.permutations(sides, 2):
            await side.sync(other)


async def _is_one_payment(sides: Sequence[Light]) -> None:
    """One payment of each proof over all ledgers, chains that hold, and the same balances."""
    everything = [entry for side in sides for entry in await side.entries()]
    assert set(standing(everything).values()) == {1}
    first = await sides[0].balances()
    for side in sides:
        await side.verify()
        assert await side.balances() == first


STEPS = st.lists(
    st.tuples(st.sampled_from(["settle", "sync", "wait"]), st.integers(0, 1), st.integers(0, 7)),
    max_size=24,
)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(STEPS)
def test_any_order_of_settling_and_syncing_ends_in_one_payment_a_proof(
    steps: Sequence[tuple[str, int, int]],
) -> None:
    proofs = [
        a_proof(number, (A, B)[number % 2], (WORKER, CLIENT)[number // 2 % 2], requester)
        for number, requester in enumerate([CLIENT.peer_id] * 4 + ["anonymous"] * 4)
    ]

    async def run() -> None:
        sides = pair()
        for step, place, number in steps:
            side, other = sides[place], sides[1 - place]
            if step == "settle":
                (outcome,) = await side.ledger.settle([proofs[number]])
                assert outcome.became in (Became.PAID, Became.ALREADY_PAID)
            elif step == "sync":
                await side.sync(other)
            else:
                side.now += number
        await _sync_until_quiet(sides)
        settled = {number for step, _, number in steps if step == "settle"}
        everything = [entry for side in sides for entry in await side.entries()]
        assert list(standing(everything).values()) == [1] * len(settled)
        for side in sides:
            await side.verify()
        assert await sides[0].balances() == await sides[1].balances()
        assert await sides[0].sync(sides[1]) == await sides[1].sync(sides[0]) == 1
        assert len(await sides[0].entries()) + len(await sides[1].entries()) == len(everything)

    trio.run(run)
