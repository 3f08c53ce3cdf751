"""Attacks on what several musivums pay together, and the figure that each comes to."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import pytest

from tessella.core.ledger import MINT
from tessella.core.proofs import SignedProof
from tessella.core.settlement import Became, Caps
from tessella.core.tickets import ANONYMOUS
from tessella.core.tiers import MICRO
from tests.core.work import identity
from tests.musivum.federation.light import WORKER, Light, Wire, a_proof
from tests.musivum.ledger.keeping import PAY

CAP = 50 * MICRO
REQUESTS = 1000
CLIENT = identity(9).peer_id
Figures = Callable[[str], None]


@pytest.fixture
def figures(record_property: Callable[[str, object], None]) -> Figures:
    """A function that tells what an attack came to."""

    def tell(line: str) -> None:
        print(f"\n{line}")  # noqa: T201 - what a run is for
        record_property(line.split()[0], line)

    return tell


def federated(count: int) -> list[Light]:
    """Musivums of which each lists all others."""
    wire, peers = Wire(), [identity(50 + number) for number in range(count)]
    return [
        Light(peer, [each for each in peers if each is not peer], wire, caps=Caps(CAP))
        for peer in peers
    ]


async def sync_all(sides: Sequence[Light]) -> None:
    for side, other in itertools.permutations(sides, 2):
        await side.sync(other)


async def minted(side: Light) -> int:
    """By all ledgers that it knows, together."""
    return -(await side.ledger.balance(MINT))


def bill(side: Light, number: int, requester: str) -> SignedProof:
    return a_proof(number, side.identity, requester=requester)


@pytest.mark.parametrize(
    ("count", "requester", "every"),
    [
        pytest.param(2, ANONYMOUS, 30, id="nobody's requests at two"),
        pytest.param(2, CLIENT, 30, id="a pair at two", marks=pytest.mark.slow),
        pytest.param(8, CLIENT, 40, id="a pair at eight", marks=pytest.mark.slow),
    ],
)
async def test_a_worker_that_deals_with_itself_mints_one_cap_at_all_partners(
    figures: Figures, count: int, requester: str, every: int
) -> None:
    sides = federated(count)
    for first in range(0, REQUESTS, every):
        batch = range(first, min(first + every, REQUESTS))
        for place, side in enumerate(sides):
            bills = [bill(side, number, requester) for number in batch[place::count]]
            outcomes = await side.ledger.settle(bills)
            assert {each.became for each in outcomes} <= {Became.PAID}
        await sync_all(sides)
    found = {await minted(side) for side in sides}
    slack = every * PAY
    figures(
        f"selfdeal partners={count} requester={'named' if requester == CLIENT else 'none'} "
        f"requests={REQUESTS} worth={REQUESTS * PAY / MICRO:g} minted={max(found) / MICRO:g} "
        f"cap={CAP / MICRO:g} pair={CAP / 5 / MICRO:g} between_syncs={slack / MICRO:g}"
    )
    assert len(found) == 1
    # An entry names a requester only where it pays: what it causes is capped where it asks.
    most = CAP + slack if requester == ANONYMOUS else min(CAP + slack, count * CAP // 5)
    assert 0 < found.pop() <= most
    for side in sides:
        await side.verify()


async def test_a_proof_that_two_paid_takes_of_the_cap_once(figures: Figures) -> None:
    sides = federated(2)
    both = [bill(sides[0], number, ANONYMOUS) for number in range(40)]
    for side in sides:
        await side.ledger.settle(both)
    for _ in range(2):
        await sync_all(sides)
    before = await minted(sides[0])
    rest = [bill(sides[1], number, ANONYMOUS) for number in range(100, 200)]
    await sides[1].ledger.settle(rest)
    await sync_all(sides)
    after = await minted(sides[0])
    figures(f"doubled proofs=40 minted={before / MICRO:g} then={after / MICRO:g} cap=50")
    assert (before, after) == (40 * PAY, CAP)
    assert await sides[1].ledger.balance(WORKER.peer_id) == CAP
