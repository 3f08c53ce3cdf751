"""The ledger on both databases, over restarts, and over ends that nobody announced."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from musivum.ledger import Ledger
from musivum.ledger.draft import KEPT_LEVEL
from musivum.ledger.merging import merge
from musivum.store import open_store
from tessella.core.attesting import WAIT_SECONDS
from tessella.core.ledger import (
    MINT,
    SLASHED,
    Line,
    Walk,
    entry_hash,
    open_head,
    verify_consistency,
    verify_inclusion,
)
from tests.core.work import MUSIVUM, NOW, Work, identity
from tests.musivum.ledger.keeping import PAY, WORKER, a_request, became, one_stage
from tests.musivum.ledger.test_merging import PARTNER, Partner, paying

ROOT = Path(__file__).parents[3]
BATCH = 20
# Settles batches of proofs from a number on, and says the number of each that was answered.
SETTLER = """
import sys, trio
from musivum.ledger import Ledger
from musivum.store import open_store
from tests.core.work import MUSIVUM, NOW
from tests.musivum.ledger.keeping import one_stage

async def main(url, first, batch):
    async with open_store(url) as store:
        ledger = Ledger(MUSIVUM, store, lambda: NOW)
        while True:
            await ledger.settle([one_stage(number) for number in range(first, first + batch)])
            first += batch
            print(first, flush=True)

trio.run(main, sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
"""
KINDS = ["sqlite", pytest.param("postgres", marks=pytest.mark.mesh)]


@pytest.fixture(params=KINDS)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A database that nobody used."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/m.db"
        return
    postgres: Any = request.getfixturevalue("postgres")
    yield str(postgres.url(postgres.new_database()))


async def walked(ledger: Ledger) -> Walk:
    walk = Walk(MUSIVUM.peer_id)
    while page := await ledger.page(since=walk.size):
        for payload in page:
            walk.feed(payload)
    walk.check_head(open_head(*await ledger.head(walk.size), MUSIVUM.peer_id))
    return walk


async def test_all_of_it_on_either_database(url: str) -> None:
    chain = [WORKER, identity(2), identity(3)]
    work = Work(chain, requester=identity(9).peer_id)
    async with open_store(url) as store:
        ledger = Ledger(MUSIVUM, store, lambda: NOW)
        proofs = [work.proof(place, previous=bytes([place + 1]) * 32) for place in range(3)]
        assert became(await ledger.settle([proofs[0]])) == ["waiting"]
        assert became(await ledger.settle([proofs[1], proofs[0]])) == ["waiting", "already_paid"]
        fork = Work(chain[:1], request_id=a_request(1)).proof(0, previous=b"\1" * 32)
        assert became(await ledger.settle([proofs[2], fork])) == ["paid", "refused"]
        lines = [Line(WORKER.peer_id, -1), Line(SLASHED, 1)]
        await ledger.post("slash", lines, "a reason")
        lonely = Work(chain[:2], request_id=a_request(2)).proof(0)
        assert became(await ledger.settle([lonely])) == ["waiting"]
        assert await ledger.proof(a_request(2), WORKER.peer_id, MUSIVUM.peer_id) == lonely
        assert (await ledger.credits(WORKER.peer_id)).waiting == 1
        partner = Partner()
        payloads = [partner.pays(3, *paying(MINT, 5)), partner.pays(4)]
        await store.transact(lambda each: merge(each, PARTNER.peer_id, payloads, NOW))
        assert became(await ledger.settle([one_stage(3)])) == ["already_paid"]
    async with open_store(url) as store:
        ledger = Ledger(MUSIVUM, store, lambda: NOW)
        await ledger.sweep(NOW + WAIT_SECONDS)
        walk = await walked(ledger)
        # Of what nobody bore out a fifth of what others did, at a partner as well.
        alone = (PAY + 5) // 5
        assert walk.balances[WORKER.peer_id] == PAY - 1 + alone
        found = await ledger.credits(WORKER.peer_id)
        assert (found.balance, found.earned) == (PAY - 1 + alone + 5, PAY + alone + 5)
        assert found.waiting == 0
        assert sum(each.balance for each in await ledger.accounts()) == 0
        assert await ledger.check() == await ledger.check(whole=True) == walk.size + 2
        await ledger.sweep(NOW + 3 * WAIT_SECONDS)
        assert await ledger.proof(a_request(2), WORKER.peer_id, MUSIVUM.peer_id) is None


@pytest.mark.slow
async def test_a_long_ledger_on_either_database(url: str) -> None:
    count = (1 << KEPT_LEVEL) + 50
    async with open_store(url) as store:
        ledger = Ledger(MUSIVUM, store, lambda: NOW)
        for first in range(0, count, 100):
            numbers = range(first, min(first + 100, count))
            await ledger.settle([one_stage(number) for number in numbers])
        walk = await walked(ledger)
        index, old = 200, 100
        shown = await ledger.inclusion(index)
        leaf = entry_hash(shown.payload)
        assert verify_inclusion(leaf, index, count, shown.path, walk.frontier.root)
        before = Walk(MUSIVUM.peer_id)
        for payload in await ledger.page(limit=old):
            before.feed(payload)
        proof = await ledger.consistency(old)
        roots = before.frontier.root, walk.frontier.root
        assert verify_consistency(old, count, *roots, proof)
        assert await ledger.check() == count


def killed(url: str, first: int, answers: int) -> int:
    """Kill a settler some time after so many answers; returns what the last of them said."""
    argv = [sys.executable, "-c", SETTLER, url, str(first), str(BATCH)]
    with subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        said = [child.stdout.readline() for _ in range(answers)]
        child.kill()
    return int(said[-1])


@pytest.mark.mesh
async def test_a_kill_loses_no_payment_and_makes_none_twice(url: str) -> None:
    first = 0
    for answers in (1, 3, 5):
        first = killed(url, first, answers)
        async with open_store(url) as store:
            ledger = Ledger(MUSIVUM, store, lambda: NOW)
            written = await ledger.check(whole=True)
            assert written >= first
            assert written % BATCH == 0
            again = [one_stage(number) for number in range(written)]
            for start in range(0, written, 200):
                outcomes = await ledger.settle(again[start : start + 200])
                assert set(became(outcomes)) == {"already_paid"}
            first = written
            assert (await walked(ledger)).balances[WORKER.peer_id] == first * PAY
