from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tessella.core.identity import Identity
from tessella.core.settlement import Became, Outcome
from tessella.worker.proofs.book import Answer, open_book
from tessella.worker.proofs.totals import Totals, read_summary
from tessella.worker.proofs.witness import Bill

OUTCOMES = (
    Outcome(Became.PAID, 1_500_000),
    Outcome(Became.REFUSED, 0, "unattested", "nobody saw it"),
    Outcome(Became.WAITING),
)


async def test_a_summary_is_read_beside_the_node_that_writes(
    path: Path, worker: Identity, a_bill: Callable[..., Bill]
) -> None:
    async with open_book(path, worker, lambda: 5.0) as book:
        for number in range(4):
            await book.serve(a_bill(number))
        owed = await book.due(3, 10**9)
        pairs = zip(owed, OUTCOMES, strict=True)
        await book.record([Answer(each.sequence, outcome, 1e9) for each, outcome in pairs])
        summary = read_summary(path, 10)
        assert summary.totals == book.totals == Totals(4, 4 * 42, 2, 1, 1, 1_500_000)
    assert read_summary(path, 10) == summary
    assert (summary.unsent, summary.waiting, summary.reasons) == (1, 1, {"unattested": 1})
    assert summary.totals.credits == 1.5
    assert [(each.state, each.micro, each.text) for each in summary.last] == [
        ("refused", 0, "nobody saw it"),
        ("paid", 1_500_000, ""),
    ]
    assert read_summary(path, 1).last == summary.last[:1]


def test_there_may_be_no_book_yet(path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_summary(path, 1)
    assert not path.exists()
