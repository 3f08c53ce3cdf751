"""A proof is paid once, whatever the order, the company and the number in which it comes."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from musivum.store import rows
from tessella.core.ledger import MINT
from tessella.core.proofs import SignedProof, proof_hash
from tessella.core.settlement import MICRO_PER_LAYER_TOKEN, Became, Caps, Outcome
from tessella.core.tickets import ANONYMOUS
from tessella.core.tiers import MICRO
from tests.core.work import MUSIVUM, NOW, Work, identity
from tests.musivum.ledger.keeping import PAY, Kept, a_request, became, one_stage

CHAIN = [identity(1), identity(2), identity(3)]
CLIENT = identity(9).peer_id
WORK = Work(CHAIN, requester=CLIENT)
PROOFS = [WORK.proof(place) for place in range(3)]


async def test_a_chain_is_paid_when_its_proofs_are_there(kept: Kept) -> None:
    assert await kept.ledger.settle(PROOFS[:1]) == [Outcome(Became.WAITING)]
    assert await kept.ledger.settle(PROOFS[2:]) == [Outcome(Became.WAITING)]
    assert await kept.entries() == []
    assert await kept.ledger.settle(PROOFS[1:2]) == [Outcome(Became.PAID, PAY)]
    assert [entry.worker for entry in await kept.entries()] == [
        worker.peer_id for worker in (CHAIN[0], CHAIN[1], CHAIN[2])
    ]
    assert await kept.ledger.settle(PROOFS) == [Outcome(Became.ALREADY_PAID, PAY)] * 3
    assert len(await kept.entries()) == 3
    assert [(one.claim.worker, one.micro, one.signed) for one in kept.paid] == [
        (worker.peer_id, PAY, proof) for worker, proof in zip(CHAIN, PROOFS, strict=True)
    ]


async def test_the_requester_pays_what_it_owns_and_the_mint_the_rest(kept: Kept) -> None:
    await kept.ledger.settle([one_stage(1, worker=identity(9))])
    assert await kept.ledger.balance(CLIENT) == PAY
    await kept.ledger.settle([one_stage(2, CLIENT), one_stage(3, CLIENT)])
    amounts = [
        {line.account: line.amount for line in entry.lines} for entry in await kept.entries()
    ]
    worker = CHAIN[0].peer_id
    assert amounts[1:] == [{worker: PAY, CLIENT: -PAY}, {worker: PAY, MINT: -PAY}]
    assert await kept.ledger.balance(CLIENT) == 0
    await kept.walk()


async def test_an_entry_of_a_payment_names_its_proof(kept: Kept) -> None:
    await kept.ledger.settle([one_stage(7)])
    (entry,) = await kept.entries()
    assert (entry.kind, entry.issuer, entry.request_id, entry.worker, entry.at) == (
        "payment",
        MUSIVUM.peer_id,
        a_request(7),
        CHAIN[0].peer_id,
        NOW,
    )


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(st.lists(st.lists(st.integers(0, 5), max_size=8), max_size=6), st.permutations(range(6)))
def test_any_order_and_number_of_a_chains_proofs_pays_each_once(
    batches: list[list[int]], order: list[int]
) -> None:
    workers = [identity(number) for number in range(1, 7)]
    work = Work(workers, requester=CLIENT, max_tokens=100)
    # A session that was given up: those in front are ahead.
    counts, seen = (53, 52, 51, 50, 50, 50), (52, 52, 51, 50, 50, 50)
    proofs = [work.proof(place, count) for place, count in enumerate(counts)]
    pays = [10 * count * MICRO_PER_LAYER_TOKEN for count in seen]

    async def run() -> None:
        kept = Kept()
        for batch in [*batches, *([place] for place in order)]:
            await kept.ledger.settle([proofs[place] for place in batch])
        walk = await kept.walk()
        assert walk.size == len(kept.paid) == 6
        assert {one.claim.worker for one in kept.paid} == {worker.peer_id for worker in workers}
        assert [walk.balances[worker.peer_id] for worker in workers] == pays
        assert walk.balances[MINT] == -sum(pays)
        assert became(await kept.ledger.settle(proofs)) == ["already_paid"] * 6
        await kept.ledger.check(whole=True)

    trio.run(run)


async def test_the_same_proof_a_hundred_times_at_once_is_paid_once(kept: Kept) -> None:
    outcomes: list[Outcome] = []

    async def bring() -> None:
        outcomes.extend(await kept.ledger.settle([one_stage(1)]))

    async with trio.open_nursery() as nursery:
        for _ in range(100):
            nursery.start_soon(bring)
    assert sorted(became(outcomes)) == ["already_paid"] * 99 + ["paid"]
    assert len(await kept.entries()) == 1


async def test_a_second_proof_of_one_request_is_a_conflict(kept: Kept) -> None:
    other = WORK.proof(0, 60)
    outcomes = await kept.ledger.settle([PROOFS[0], other, PROOFS[1], other])
    assert became(outcomes) == ["waiting", "refused", "waiting", "refused"]
    assert {outcome.code for outcome in outcomes[1::2]} == {"proof_conflict"}
    assert became(await kept.ledger.settle([other])) == ["refused"]
    assert [claim.worker for claim in kept.conflicts] == [CHAIN[0].peer_id] * 3
    assert await kept.ledger.balance(CHAIN[0].peer_id) == PAY


async def test_two_proofs_after_the_same_one_are_a_conflict(kept: Kept) -> None:
    first = Work(CHAIN[:1], request_id=a_request(1)).proof(0)
    after = proof_hash(first.payload)
    forks = [Work(CHAIN[:1], request_id=a_request(n)).proof(0, previous=after) for n in (2, 3)]
    assert became(await kept.ledger.settle([first, *forks])) == ["paid", "paid", "refused"]
    (outcome,) = await kept.ledger.settle(forks[1:])
    assert outcome.code == "proof_conflict"
    assert became(await kept.ledger.settle(forks[:1])) == ["already_paid"]


async def test_proofs_of_fresh_books_come_after_none_and_are_no_conflict(kept: Kept) -> None:
    assert became(await kept.ledger.settle([one_stage(1), one_stage(2)])) == ["paid"] * 2


async def test_two_workers_may_come_after_proofs_of_one_hash(kept: Kept) -> None:
    proofs = [
        Work([worker], request_id=a_request(n)).proof(0, previous=b"p" * 32)
        for n, worker in enumerate(CHAIN)
    ]
    assert became(await kept.ledger.settle(proofs)) == ["paid"] * 3


async def test_of_neighbours_that_stopped_far_apart_the_first_is_paid_for_what_both_surely_saw(
    kept: Kept,
) -> None:
    work = Work(CHAIN[:2])
    assert became(await kept.ledger.settle([work.proof(0, 20), work.proof(1, 10)])) == [
        "waiting",
        "paid",
    ]
    assert [await kept.ledger.balance(worker.peer_id) for worker in CHAIN[:2]] == [
        positions * 10 * MICRO_PER_LAYER_TOKEN for positions in (8, 10)
    ]


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
async def test_the_smaller_count_of_two_neighbours_is_paid_in_any_order(
    kept: Kept, order: tuple[int, ...]
) -> None:
    proofs = [WORK.proof(0, 52), WORK.proof(1, 51), WORK.proof(2, 51)]
    for place in order:
        await kept.ledger.settle([proofs[place]])
    assert [await kept.ledger.balance(worker.peer_id) for worker in CHAIN] == [
        51 * 10 * MICRO_PER_LAYER_TOKEN
    ] * 3


async def test_who_serves_itself_earns_nothing_and_only_once(kept: Kept) -> None:
    own = one_stage(1, CHAIN[0].peer_id)
    assert await kept.ledger.settle([own, own]) == [
        Outcome(Became.PAID, 0),
        Outcome(Became.ALREADY_PAID, 0),
    ]
    (entry,) = await kept.entries()
    assert entry.lines == ()
    await kept.walk()


@pytest.mark.slow
async def test_a_pair_of_one_owner_mints_no_more_than_its_share_of_a_day(
    record_property: Callable[[str, object], None],
) -> None:
    kept = Kept(caps=Caps(worker=100 * MICRO))
    outcomes = []
    for first in range(0, 1000, 250):
        outcomes += await kept.ledger.settle(
            [one_stage(n, CLIENT) for n in range(first, first + 250)]
        )
    assert became(outcomes) == ["paid"] * 1000
    minted = -(await kept.ledger.balance(MINT))
    print(f"selfdeal requests=1000 worth={1000 * PAY / MICRO:g} minted={minted / MICRO:g}")  # noqa: T201
    record_property("selfdeal_minted_credits", minted / MICRO)
    assert minted == 20 * MICRO == await kept.ledger.balance(CHAIN[0].peer_id)
    assert [outcome.micro for outcome in outcomes] == [PAY] * 40 + [0] * 960
    assert len(await kept.entries()) == 1000
    await kept.walk()


async def test_a_worker_mints_no_more_than_its_cap_whoever_asks() -> None:
    kept = Kept(caps=Caps(worker=5 * PAY // 2))
    askers = [ANONYMOUS, *(identity(100 + n).peer_id for n in range(9))]
    await kept.ledger.settle([one_stage(n, asker) for n, asker in enumerate(askers)])
    assert -(await kept.ledger.balance(MINT)) == 5 * PAY // 2
    kept.now += 24 * 3600 - 1
    await kept.ledger.settle([one_stage(20)])
    assert -(await kept.ledger.balance(MINT)) == 5 * PAY // 2 + PAY


async def test_caps_hold_over_batches_and_other_workers_have_their_own() -> None:
    kept = Kept(caps=Caps(worker=10 * PAY))
    for number in range(5):
        await kept.ledger.settle([one_stage(number, CLIENT)])
        await kept.ledger.settle([one_stage(100 + number, CLIENT, CHAIN[1])])
    assert await kept.ledger.balance(CHAIN[0].peer_id) == 2 * PAY
    assert await kept.ledger.balance(CHAIN[1].peer_id) == 2 * PAY


async def test_what_does_not_hold_is_refused_for_itself(kept: Kept) -> None:
    foreign = Work(CHAIN[:1], issuer=identity(50)).proof(0)
    unsigned = SignedProof(PROOFS[0].payload, bytes(64))
    late = Work(CHAIN[:1], issued_at=NOW - 26 * 3600).proof(0)
    stranger = WORK.proof(0, worker=identity(8).peer_id, by=identity(8))
    bad = [foreign, unsigned, late, stranger, SignedProof(b"no proof", bytes(64))]
    outcomes = await kept.ledger.settle([*bad, one_stage(1)])
    assert [outcome.code for outcome in outcomes] == [
        "foreign_ticket",
        "bad_signature",
        "ticket_expired",
        "bad_ticket",
        "bad_frame",
        "",
    ]
    assert became(outcomes) == ["refused"] * 5 + ["paid"]
    assert outcomes[0].text
    assert kept.conflicts == []


async def test_tickets_of_a_partner_are_paid_while_it_is_one(kept: Kept) -> None:
    partner = identity(50)
    proof = Work(CHAIN[:1], issuer=partner).proof(0)
    kept.issuers = (MUSIVUM.peer_id, partner.peer_id)
    assert became(await kept.ledger.settle([proof])) == ["paid"]
    # Another issuer's request of the same id is another request.
    assert became(await kept.ledger.settle([Work(CHAIN[:1]).proof(0)])) == ["paid"]


@pytest.mark.slow
async def test_however_much_waits_of_the_same_requests_one_query_can_be_asked(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows, "PART", 3)
    works = [
        Work(CHAIN, requester=identity(50 + n).peer_id, request_id=a_request(n)) for n in range(8)
    ]
    proofs = [
        work.proof(place, previous=bytes([n, place]) * 16)
        for n, work in enumerate(works)
        for place in range(3)
    ]
    assert became(await kept.ledger.settle(proofs[::3])) == ["waiting"] * 8
    assert became(await kept.ledger.settle(proofs[1::3])) == ["waiting"] * 8
    assert became(await kept.ledger.settle(proofs[2::3])) == ["paid"] * 8
    assert became(await kept.ledger.settle(proofs)) == ["already_paid"] * 24
    await kept.walk()
