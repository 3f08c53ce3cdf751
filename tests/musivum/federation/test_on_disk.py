"""The same in a file and in PostgreSQL, over restarts, and what a page costs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from musivum.ledger import Movement
from musivum.store import open_store
from tessella.core.ledger import MINT, Line
from tests.musivum.federation.light import WORKER, A, B, Light, Wire, a_proof, fill, standing
from tests.musivum.ledger.keeping import PAY

KINDS = ["sqlite", pytest.param("postgres", marks=pytest.mark.mesh)]


@pytest.fixture(params=KINDS)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A database that nobody has used."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'musivum.db'}"
        return
    postgres: Any = request.getfixturevalue("postgres")
    yield str(postgres.url(postgres.new_database()))


async def test_what_both_paid_is_resolved_and_forgotten_on_disk(url: str) -> None:
    wire = Wire()
    a = Light(A, [B], wire)
    await a.ledger.settle([a_proof(1), a_proof(2)])
    async with open_store(url) as store:
        b = Light(B, [A], wire, store)
        await b.ledger.settle([a_proof(1), a_proof(3)])
        await b.sync(a)
    async with open_store(url) as store:
        b = Light(B, [A], wire, store)
        await a.sync(b)
        await b.sync(a)
        assert await a.balances() == await b.balances() == {WORKER.peer_id: 3 * PAY, MINT: -3 * PAY}
        everything = [*await a.entries(), *await b.entries()]
        assert set(standing(everything).values()) == {1}
        await b.verify()
        await fill(a, 300)
        await b.sync(a)
        await b.verify()
        await b.federation.forget(A.peer_id)
        await b.verify()
        await b.sync(a)
        assert await a.balances() == await b.balances()
        await b.verify()


@pytest.mark.slow
async def test_a_full_page_is_taken_in_a_moment(tmp_path: Path) -> None:
    wire = Wire()
    a = Light(A, [B], wire)
    lines = [Line(WORKER.peer_id, 1), Line(MINT, -1)]
    await a.ledger.write(
        lambda draft: [
            draft.append(
                Movement(
                    "payment",
                    lines,
                    issuer=A.peer_id,
                    request_id=number.to_bytes(16, "big"),
                    worker=WORKER.peer_id,
                )
            )
            for number in range(1000)
        ]
    )
    async with open_store(f"sqlite:///{tmp_path / 'musivum.db'}") as store:
        b = Light(B, [A], wire, store)
        began = time.perf_counter()
        assert await b.sync(a) == 1
        took = time.perf_counter() - began
    print(f"\nfed page entries=1000 ms={1000 * took:.0f}")  # noqa: T201 - the figures are for people
    # With everything else that a busy machine does.
    assert took < 5
