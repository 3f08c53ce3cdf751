"""A ledger that was touched by others than us is found out, and where."""

from __future__ import annotations

import pytest

from musivum.ledger import checking
from musivum.ledger.checking import CHECK_ENTRIES, Check
from tessella.core.errors import StoreLost
from tessella.core.ledger import MINT, SLASHED, Line
from tests.core.work import MUSIVUM
from tests.musivum.ledger.keeping import WORKER, Kept, one_stage
from tests.musivum.ledger.test_history import grow

WHO = WORKER.peer_id


async def touch(kept: Kept, sql: str) -> None:
    """What somebody with the file does to it."""
    await kept.store.transact(lambda connection: connection.exec_driver_sql(sql).rowcount)


async def test_what_was_checked_is_not_read_again(kept: Kept) -> None:
    assert await kept.ledger.check() == 0
    await grow(kept, 3)
    assert await kept.ledger.check() == 3
    assert await kept.ledger.check() == 0
    await kept.ledger.settle([one_stage(1)])
    assert await kept.ledger.check() == 1
    assert await kept.ledger.check(whole=True) == 4
    assert await Kept(kept.store).ledger.check() == 0


async def test_a_long_ledger_is_read_in_pages(kept: Kept) -> None:
    await grow(kept, 3 * CHECK_ENTRIES + 1)
    assert await kept.ledger.check() == 3 * CHECK_ENTRIES + 1
    await grow(kept, CHECK_ENTRIES)
    assert await kept.ledger.check() == CHECK_ENTRIES


async def test_what_was_checked_is_counted_in_pieces(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checking, "CHECK_ENTRIES", 4)
    monkeypatch.setattr(checking, "COUNTS_AN_ENTRY", 3)
    await grow(kept, 50)
    await kept.ledger.check()
    await grow(kept, 5)
    check, counted, read = Check(), [], []
    while True:
        is_done = await kept.store.transact(check.step)
        counted.append(check._walks[MUSIVUM.peer_id].counted)
        read.append(check.entries)
        if is_done:
            break
    # 12 a step; two are as much as one that is read, so three of the next four are read with them.
    assert counted == [12, 24, 36, 48, 50, 50]
    assert read == [0, 0, 0, 0, 3, 5]


async def test_an_entry_that_is_gone_is_missed_wherever_it_was(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checking, "CHECK_ENTRIES", 4)
    monkeypatch.setattr(checking, "COUNTS_AN_ENTRY", 3)
    await grow(kept, 50)
    await kept.ledger.check()
    for sequence in (0, 11, 12, 49):
        copied = "CREATE TEMP TABLE gone AS SELECT * FROM entries WHERE sequence"
        await touch(kept, f"{copied} = {sequence}")
        await touch(kept, f"DELETE FROM entries WHERE sequence = {sequence}")
        with pytest.raises(StoreLost, match="there are other than its 50 entries"):
            await kept.ledger.check()
        await touch(kept, "INSERT INTO entries SELECT * FROM gone")
        await touch(kept, "DROP TABLE gone")
        assert await kept.ledger.check() == 0
    await touch(kept, "INSERT INTO entries SELECT origin, 50, hash, payload FROM entries LIMIT 1")
    with pytest.raises(StoreLost, match="there are other than its 50 entries"):
        await kept.ledger.check()


TOUCHED = [
    ("UPDATE entries SET payload = x'01' WHERE sequence = 3", "ledger entry 3: altered"),
    ("DELETE FROM entries WHERE sequence = 2", "ledger entry 2: it is missing"),
    ("DELETE FROM entries WHERE sequence = 5", "entry 5 is missing"),
    ("UPDATE ledgers SET last = zeroblob(32)", "does not end in the entry that it says"),
    ("UPDATE ledgers SET peaks = zeroblob(64)", "does not end in the entry that it says"),
    ("UPDATE balances SET micro = micro + 1 WHERE account = 'mint'", "account mint has -"),
    ("DELETE FROM balances WHERE account = 'mint'", "account mint is missing"),
    ("INSERT INTO balances VALUES ('x', 5, 0, 0, 0)", "account x has 5, its entries say 0"),
]


@pytest.mark.parametrize(("sql", "why"), TOUCHED)
@pytest.mark.parametrize("whole", [False, True])
async def test_what_was_touched_is_named(kept: Kept, sql: str, why: str, whole: bool) -> None:
    await kept.ledger.settle([one_stage(n) for n in range(6)])
    await touch(kept, sql)
    with pytest.raises(StoreLost, match=why):
        await kept.ledger.check(whole=whole)


@pytest.mark.parametrize(
    ("sql", "why"),
    [
        ("DELETE FROM entries WHERE sequence = 5", "there are other than its 6 entries"),
        (
            "UPDATE balances SET micro = micro + 1 WHERE account = 'slashed'",
            "the account slashed has 7, its entries say 6",
        ),
        ("UPDATE entries SET hash = zeroblob(32) WHERE sequence = 5", "another node 2 of level 1"),
    ],
)
async def test_what_is_cheap_to_see_is_seen_of_what_was_checked_before(
    kept: Kept, sql: str, why: str
) -> None:
    await grow(kept, 6)
    await kept.ledger.check()
    await touch(kept, sql)
    with pytest.raises(StoreLost, match=why):
        await kept.ledger.check()


async def test_an_entry_that_was_altered_after_it_was_checked_is_found_by_a_whole_check(
    kept: Kept,
) -> None:
    await grow(kept, 6)
    await kept.ledger.check()
    await touch(kept, "UPDATE entries SET payload = x'01' WHERE sequence = 1")
    assert await kept.ledger.check() == 0
    with pytest.raises(StoreLost, match=f"{MUSIVUM.peer_id} is not what was written: .* entry 1:"):
        await kept.ledger.check(whole=True)


async def test_a_check_during_payments_is_of_one_moment(kept: Kept) -> None:
    await grow(kept, CHECK_ENTRIES - 1)
    await kept.ledger.settle([one_stage(1)])
    step = kept.store.transact
    calls = 0

    async def between(work: object) -> object:
        nonlocal calls
        calls += 1
        found: object = await step(work)  # type: ignore[arg-type]
        if calls < 3:
            kept.store.transact = step  # type: ignore[method-assign]
            await kept.ledger.post("slash", [Line(WHO, -1), Line(SLASHED, 1)], "")
            kept.store.transact = between  # type: ignore[method-assign, assignment]
        return found

    await grow(kept, CHECK_ENTRIES)
    kept.store.transact = between  # type: ignore[method-assign, assignment]
    assert await kept.ledger.check() == 2 * CHECK_ENTRIES + 2
    assert calls == 3
    assert await kept.ledger.balance(MINT) < 0
