"""A page goes on with what is held, or it is broken, or it tells another history."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from musivum.federation.reading import Held, Page, Rewritten, Seen, read_page, see
from tessella.core.errors import BadFrame, BadLedger, BadSignature, TessellaError
from tessella.core.identity import Identity
from tessella.core.ledger import ZERO_HASH, Frontier
from tests.musivum.federation.script import PARTNER, History, numbers, of_payments

NOTHING = Held(PARTNER.peer_id, Frontier(), ZERO_HASH)


def held(history: History, size: int, latest: Seen | None = None, goal: Seen | None = None) -> Held:
    """What is here when so many entries of a ledger are."""
    begun = history.copy(size)
    seen = latest or begun.seen()
    return Held(PARTNER.peer_id, begun.frontier(), begun.last, goal, seen)


async def page_of(before: Held, history: History, start: int, stop: int | None = None) -> Page:
    """The page with these entries, under the head of all of them."""
    found = await read_page(before, history.seen(), history.payloads[start:stop])
    assert isinstance(found, Page), found
    return found


async def refused(before: Held, latest: Seen, payloads: Sequence[bytes]) -> Rewritten:
    """What was found of another history."""
    found = await read_page(before, latest, payloads)
    assert isinstance(found, Rewritten), found
    return found


async def test_pages_are_read_one_after_the_other_up_to_the_head() -> None:
    history = of_payments(100)
    first = await page_of(NOTHING, history, 0, 40)
    assert (first.size, first.goal, first.latest) == (40, history.seen(), history.seen())
    between = held(history, 40, history.seen(), first.goal)
    last = await page_of(between, history, 40)
    assert (last.size, last.goal) == (100, None)
    assert numbers(last.entries) == list(range(40, 100))


async def test_a_ledger_that_did_not_grow_has_an_empty_page() -> None:
    history = of_payments(3)
    found = await page_of(held(history, 3), history, 3)
    assert (found.size, found.entries, found.goal) == (3, [], None)
    assert (await page_of(NOTHING, History(), 0)).size == 0


@pytest.mark.parametrize(
    ("name", "start", "stop", "error", "said"),
    [
        ("a page that was sent before", 2, 8, BadLedger, "entry 2 stands here again"),
        ("a page with one missing before it", 5, 8, BadLedger, "missing, entry 5 stands here"),
        ("a page with no entry", 8, 8, BadFrame, "no entry of the 4"),
    ],
)
async def test_a_page_from_another_place_is_broken(
    name: str, start: int, stop: int, error: type[TessellaError], said: str
) -> None:
    history = of_payments(8)
    with pytest.raises(error, match=said):
        await read_page(held(history, 4), history.seen(), history.payloads[start:stop])


@pytest.mark.parametrize(
    ("name", "torn"),
    [
        ("twice", lambda page: [*page[:2], page[1], *page[2:]]),
        ("left out", lambda page: [page[0], *page[2:]]),
        ("in another order", lambda page: [page[1], page[0], *page[2:]]),
        ("cut", lambda page: [page[0][:-1], *page[1:]]),
        ("empty", lambda page: [b"", *page[1:]]),
        ("no entry", lambda page: [page[0], b"\x01", *page[1:]]),
    ],
)
async def test_a_page_that_is_not_one_chain_is_broken(name: str, torn: object) -> None:
    history = of_payments(8)
    with pytest.raises(BadLedger):
        await read_page(held(history, 4), history.seen(), torn(history.payloads[4:]))  # type: ignore[operator]


async def test_more_entries_than_the_head_has_are_broken() -> None:
    history = of_payments(8)
    with pytest.raises(BadFrame, match="more entries than the 6"):
        await read_page(held(history, 4), history.copy(6).seen(), history.payloads[4:])


async def test_an_entry_of_another_ledger_is_broken() -> None:
    other = of_payments(4, Identity(b"Q" * 32))
    with pytest.raises(BadLedger, match="of the ledger of"):
        await read_page(NOTHING, of_payments(4).seen(), other.payloads)


def test_a_head_that_the_partner_did_not_sign_is_none() -> None:
    history = of_payments(2)
    foreign = history.signed(Identity(b"Q" * 32))
    with pytest.raises(BadSignature):
        see(foreign, PARTNER.peer_id)
    forged = history.signed()._replace(payload=of_payments(3).signed().payload)
    with pytest.raises(BadSignature):
        see(forged, PARTNER.peer_id)


async def test_fewer_entries_than_before_are_a_rollback() -> None:
    history = of_payments(8)
    before = history.seen()
    for size in (7, 0):
        found = await refused(held(history, 8), history.copy(size).seen(), [])
        assert found.reason == f"rolled back: a head of {size} entries after one of 8"
        assert found.heads == (before, history.copy(size).seen())


async def test_two_heads_of_one_size_are_a_fork() -> None:
    history = of_payments(8)
    other = history.copy(7)
    other.pay(99)
    found = await refused(held(history, 8), other.seen(), [])
    assert found.reason == "a fork: two heads of 8 entries"
    assert found.heads == (history.seen(), other.seen())


@pytest.mark.parametrize("size", [1, 4, 7])
async def test_another_entry_where_ours_is_is_a_fork(size: int) -> None:
    history = of_payments(8)
    other = history.copy(size - 1)
    for number in range(50, 60):
        other.pay(number)
    found = await refused(held(history, size), other.seen(), other.payloads[size:])
    assert "a fork: " in found.reason
    assert f"another entry {size - 1} than is here" in found.reason
    assert found.heads == (history.copy(size).seen(), other.seen())


async def test_entries_that_their_own_head_belies_are_a_fork() -> None:
    history, other = of_payments(8), of_payments(7)
    other.pay(99)
    found = await refused(held(history, 4), other.seen(), history.payloads[4:])
    assert found.reason.startswith("a fork: ")
    assert found.heads == (history.copy(4).seen(), other.seen())
    assert (await refused(NOTHING, other.seen(), history.payloads)).heads == (other.seen(),)


async def test_what_is_held_has_to_come_to_the_head_that_was_seen_first() -> None:
    history = of_payments(8)
    goal = history.seen()
    other = history.copy(4)
    for number in range(50, 60):
        other.pay(number)
    before = held(history, 4, goal, goal)
    found = await refused(before, other.seen(), other.payloads[4:])
    assert found.reason.startswith("a fork: ")
    assert found.heads == (goal, other.seen())


async def test_a_head_that_grows_while_pages_come_moves_the_goal_when_it_is_reached() -> None:
    history = of_payments(10)
    goal = history.copy(6).seen()
    before = held(history, 4, goal, goal)
    assert (await page_of(before, history, 4, 5)).goal == goal
    assert (await page_of(before, history, 4, 7)).goal == history.seen()
    assert (await page_of(before, history, 4)).goal is None


@settings(max_examples=40, deadline=None)
@given(size=st.integers(1, 9), place=st.integers(0, 8), cut=st.integers(1, 5))
def test_whoever_changes_one_entry_is_found_out_by_who_held_it(
    size: int, place: int, cut: int
) -> None:
    import trio

    history = of_payments(9)
    changed = place % size
    other = history.copy(changed)
    while len(other.payloads) < 9 + cut:
        other.pay(1000 + len(other.payloads))
    before = held(history, size)
    found = trio.run(read_page, before, other.seen(), other.payloads[size : size + cut])
    # Of what is changed before the last entry, the next one says nothing, and the head does.
    assert isinstance(found, Rewritten)


async def test_the_head_that_is_held_is_not_needed_to_go_on() -> None:
    history = of_payments(5)
    before = replace(held(history, 3), latest=None)
    assert (await page_of(before, history, 3)).size == 5
