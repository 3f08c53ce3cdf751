"""What is shown of the ledger is enough to check it from outside, entry by entry."""

from __future__ import annotations

from base64 import b64decode

import pytest
import trio
from trio.testing import MockClock

from musivum.bodies.fields import NoArguments
from musivum.bodies.ledger import HeadBody, ProofArguments
from musivum.ledger import Ledger
from musivum.pages.ledger import MAX_WAITING, PROOFS_AT_ONCE, LedgerPages, credits_json
from musivum.store.memory import MemoryStore
from tessella.core.errors import StoreUnavailable, UnknownEntry
from tessella.core.ledger import (
    EMPTY_ROOT,
    Head,
    Walk,
    entry_hash,
    open_head,
    verify_consistency,
    verify_inclusion,
)
from tests.core.work import MUSIVUM, NOW, Work, identity


@pytest.fixture
async def ledger() -> Ledger:
    """Of eleven payments."""
    made = Ledger(MUSIVUM, MemoryStore(), lambda: NOW)
    for number in range(11):
        work = Work([identity(1)], request_id=bytes([number]) * 16)
        await made.settle([work.proof(0)])
    return made


@pytest.fixture
def pages(ledger: Ledger) -> LedgerPages:
    return LedgerPages(ledger)


def verified(body: HeadBody) -> Head:
    """The head, by its signature alone."""
    return open_head(b64decode(body.payload), bytes.fromhex(body.signature), MUSIVUM.peer_id)


def asked(**query: int) -> ProofArguments:
    return ProofArguments.model_validate(query)


async def test_a_head_is_readable_and_signed(pages: LedgerPages) -> None:
    body = await pages.head(NoArguments())
    head = verified(body)
    assert (body.size, body.origin) == (head.size, MUSIVUM.peer_id) == (11, head.origin)
    assert (body.root, body.last, body.at) == (head.root.hex(), head.last.hex(), head.at)


async def test_a_ledger_of_no_entries_has_a_head_too() -> None:
    pages = LedgerPages(Ledger(MUSIVUM, MemoryStore(), lambda: NOW))
    head = verified(await pages.head(NoArguments()))
    assert (head.size, head.root) == (0, EMPTY_ROOT)
    with pytest.raises(UnknownEntry):
        await pages.proof(asked(index=0))
    assert (await pages.proof(asked(**{"from": 0}))).consistency == []


@pytest.mark.parametrize(("index", "count", "found"), [(0, 1, 1), (3, 5, 5), (10, 1, 1), (8, 9, 3)])
async def test_the_last_of_a_page_is_joined_to_the_head(
    index: int, count: int, found: int, pages: LedgerPages
) -> None:
    body = await pages.proof(asked(index=index, count=count))
    assert (body.index, len(body.entries)) == (index, found)
    head = verified(body.head)
    path = list(map(bytes.fromhex, body.inclusion))
    leaf = entry_hash(b64decode(body.entries[-1]))
    assert verify_inclusion(leaf, index + found - 1, head.size, path, head.root)
    assert not verify_inclusion(leaf, index + found, head.size, path, head.root)


async def test_whoever_reads_every_page_has_walked_the_whole_ledger(pages: LedgerPages) -> None:
    walk = Walk(MUSIVUM.peer_id)
    head = verified(await pages.head(NoArguments()))
    while walk.size < head.size:
        for entry in (await pages.proof(asked(index=walk.size, count=4))).entries:
            walk.feed(b64decode(entry))
    walk.check_head(head)
    assert sum(walk.balances.values()) == 0
    assert walk.balances[identity(1).peer_id] == 11 * 500_000


async def test_a_later_tree_is_shown_to_begin_with_an_earlier_one(
    pages: LedgerPages, ledger: Ledger
) -> None:
    before = verified(await pages.head(NoArguments()))
    work = Work([identity(1)], request_id=b"x" * 16)
    await ledger.settle([work.proof(0)])
    body = await pages.proof(asked(**{"from": before.size, "to": before.size + 1}))
    after = verified(body.head)
    path = list(map(bytes.fromhex, body.consistency))
    assert after.size == before.size + 1
    assert verify_consistency(before.size, after.size, before.root, after.root, path)


@pytest.mark.parametrize(
    "query",
    [
        {"from": 9, "to": 3},
        {"index": 11},
        {"from": 12},
        {"from": 2, "to": 12},
        {"index": 3, "from": 12},
    ],
)
async def test_what_is_not_there_is_said(query: dict[str, int], pages: LedgerPages) -> None:
    with pytest.raises(UnknownEntry):
        await pages.proof(asked(**query))


async def test_both_proofs_come_in_one_answer(pages: LedgerPages) -> None:
    body = await pages.proof(asked(**{"index": 2, "from": 6}))
    assert (body.index, len(body.entries)) == (2, 1)
    assert body.inclusion
    assert body.consistency
    head_alone = await pages.proof(asked())
    assert (head_alone.index, head_alone.entries, head_alone.inclusion) == (None, [], [])
    assert head_alone.head == body.head


async def test_an_account_is_told_as_json(ledger: Ledger) -> None:
    told = await credits_json(ledger, identity(1).peer_id, "a suspect")
    assert b'"held_against":"a suspect"' in told
    assert b'"credits":5.5,"micro":5500000,"tier":"standard"' in told


class Busy(Ledger):
    """A ledger whose database takes its time, and that counts who waits for it."""

    now = most = 0

    async def consistency(self, old: int, new: int | None = None) -> tuple[bytes, ...]:
        self.now += 1
        self.most = max(self.most, self.now)
        await trio.sleep(1)
        self.now -= 1
        return ()


async def test_of_the_curious_two_are_in_the_way_of_who_is_to_be_paid(
    autojump_clock: MockClock,
) -> None:
    busy = Busy(MUSIVUM, MemoryStore(), lambda: NOW)
    await busy.settle([Work([identity(1)]).proof(0)])
    pages, refused = LedgerPages(busy), 0

    async def ask() -> None:
        nonlocal refused
        try:
            await pages.proof(ProofArguments.model_validate({"from": 1}))
        except StoreUnavailable:
            refused += 1

    async with trio.open_nursery() as nursery:
        for _ in range(PROOFS_AT_ONCE + MAX_WAITING + 3):
            nursery.start_soon(ask)
    assert busy.most == PROOFS_AT_ONCE
    assert refused == 3
