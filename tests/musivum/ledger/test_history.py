"""Whoever keeps a head can be shown that an entry is under it, and that the ledger only grew."""

from __future__ import annotations

import pytest
from sqlalchemy import Connection, insert

from musivum.ledger.draft import KEPT_LEVEL, Draft, Movement
from musivum.ledger.history import HEAD_ENTRIES, HEAD_SECONDS
from musivum.ledger.room import Ledger
from musivum.store.partner_tables import PARTNERS
from tessella.core.errors import BadRequest, UnknownEntry
from tessella.core.ledger import (
    MAX_PAGE_ENTRIES,
    MINT,
    SLASHED,
    Line,
    entry_hash,
    open_entry,
    pack_page,
    root,
    verify_consistency,
    verify_inclusion,
)
from tests.core.work import MUSIVUM, identity
from tests.musivum.ledger.keeping import Kept, one_stage

# Past two subtrees whose roots are kept, and a few smaller ones.
MANY = (2 << KEPT_LEVEL) + 77
MOVE = Movement("epoch", [Line(MINT, -1), Line(SLASHED, 1)])


def followed(connection: Connection, origin: str) -> None:
    """Have a musivum be a partner."""
    blank = {"goal": b"", "latest": b"", "evidence": b"", "reason": "", "slashes": 0}
    connection.execute(insert(PARTNERS), {"origin": origin, **blank, "reversals": 0})


async def grow(kept: Kept, count: int) -> None:
    """Add so many entries."""

    def work(draft: Draft) -> None:
        for _ in range(count):
            draft.append(MOVE)

    await kept.ledger.write(work)


async def test_a_ledger_without_entries_has_a_head(kept: Kept) -> None:
    head = await kept.head()
    assert (head.size, head.origin) == (0, MUSIVUM.peer_id)
    assert await kept.ledger.page() == []
    assert await kept.ledger.consistency(0) == ()


async def test_who_kept_the_database_is_known_and_partners_are_not_among_them(kept: Kept) -> None:
    assert await kept.ledger.keepers() == frozenset()
    await grow(kept, 1)
    after = Ledger(identity(8), kept.store, lambda: kept.now)
    assert await after.keepers() == {MUSIVUM.peer_id}
    await kept.store.transact(lambda connection: followed(connection, MUSIVUM.peer_id))
    assert await after.keepers() == frozenset()


async def test_there_is_one_head_for_one_size(kept: Kept) -> None:
    await grow(kept, 1)
    first = await kept.ledger.head()
    kept.now += 1e6
    assert await kept.ledger.head(1) == first
    assert await Kept(kept.store, now=kept.now).ledger.head() == first


async def test_a_head_is_signed_anew_when_it_is_old_or_far_behind_or_too_short(kept: Kept) -> None:
    await grow(kept, 1)
    first = await kept.head()
    await grow(kept, 1)
    assert await kept.head() == first
    assert (await kept.head(2)).size == 2
    await grow(kept, HEAD_ENTRIES - 1)
    assert (await kept.head()).size == 2
    await grow(kept, 1)
    assert (await kept.head()).size == 2 + HEAD_ENTRIES
    await grow(kept, 1)
    kept.now += HEAD_SECONDS
    head = await kept.head()
    assert (head.size, head.at) == (3 + HEAD_ENTRIES, kept.now)
    with pytest.raises(UnknownEntry):
        await kept.ledger.head(head.size + 1)


async def test_every_entry_is_under_every_later_head(kept: Kept) -> None:
    await grow(kept, MANY)
    payloads = await kept.ledger.page()
    assert len(payloads) == MANY
    for size in (MANY, 1 << KEPT_LEVEL, 300, 1):
        under = root(entry_hash(payload) for payload in payloads[:size])
        for index in {0, size // 3, size - 1}:
            shown = await kept.ledger.inclusion(index, size)
            assert shown.payload == payloads[index]
            leaf = entry_hash(shown.payload)
            assert verify_inclusion(leaf, index, size, shown.path, under)
    assert (await kept.ledger.inclusion(0)).size == MANY


async def test_every_tree_begins_with_every_earlier_one(kept: Kept) -> None:
    await grow(kept, MANY)
    leaves = [entry_hash(payload) for payload in await kept.ledger.page()]
    for old, new in [(1, MANY), (256, MANY), (257, 511), (500, 512), (MANY, MANY)]:
        proof = await kept.ledger.consistency(old, new)
        assert verify_consistency(old, new, root(leaves[:old]), root(leaves[:new]), proof)
    assert await kept.ledger.consistency(3) == await kept.ledger.consistency(3, MANY)


async def test_what_is_not_there_is_not_shown(kept: Kept) -> None:
    await grow(kept, 3)
    with pytest.raises(UnknownEntry):
        await kept.ledger.inclusion(3)
    with pytest.raises(BadRequest, match="a tree of 4 entries, there are 3"):
        await kept.ledger.inclusion(0, 4)
    with pytest.raises(BadRequest):
        await kept.ledger.consistency(1, 4)
    with pytest.raises(BadRequest):
        await kept.ledger.consistency(3, 2)
    for since, limit in [(-1, 1), (0, -1)]:
        with pytest.raises(BadRequest):
            await kept.ledger.page(since=since, limit=limit)


async def test_pages_follow_each_other_and_end(kept: Kept) -> None:
    await grow(kept, MAX_PAGE_ENTRIES + 5)
    first = await kept.ledger.page(limit=10**9)
    assert len(first) == MAX_PAGE_ENTRIES
    assert pack_page(first)
    rest = await kept.ledger.page(since=len(first))
    assert [open_entry(each).sequence for each in rest] == list(range(1000, 1005))
    assert await kept.ledger.page(since=1005) == []
    assert await kept.ledger.page(limit=0) == []
    assert await kept.ledger.size() == 1005
    assert await kept.ledger.page(identity(7).peer_id) == []
    assert await kept.ledger.size(identity(7).peer_id) == 0


async def test_what_was_written_is_there_after_a_restart(kept: Kept) -> None:
    await kept.ledger.settle([one_stage(1)])
    again = Kept(kept.store)
    await again.ledger.settle([one_stage(2)])
    assert (await again.walk()).size == 2
