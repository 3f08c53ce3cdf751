"""A ledger that was tampered with is found out, and the index that is named is the right one."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tessella.core.errors import BadLedger
from tessella.core.identity import Identity
from tessella.core.ledger.entries import (
    MINT,
    ZERO_HASH,
    Entry,
    Line,
    balances,
    entry_hash,
    open_entry,
    seal_entry,
)
from tessella.core.ledger.heads import Head
from tessella.core.ledger.tree import Frontier, root
from tessella.core.ledger.walk import Walk

ORIGIN, WORKER, OTHER = (Identity(bytes(31) + bytes([n])).peer_id for n in (1, 2, 3))


def entry(sequence: int, previous: bytes, amount: int = 5) -> Entry:
    return Entry(
        origin=ORIGIN,
        sequence=sequence,
        previous=previous,
        kind="slash",
        at=float(sequence),
        lines=(Line(WORKER, amount), Line(MINT, -amount)),
    )


def written(count: int, amount: int = 5) -> list[bytes]:
    """A sound ledger."""
    payloads: list[bytes] = []
    last = ZERO_HASH
    for sequence in range(count):
        payloads.append(seal_entry(entry(sequence, last, amount)))
        last = entry_hash(payloads[-1])
    return payloads


def head_of(payloads: list[bytes]) -> Head:
    leaves = [entry_hash(payload) for payload in payloads]
    last = leaves[-1] if leaves else ZERO_HASH
    return Head(origin=ORIGIN, size=len(leaves), root=root(leaves), last=last, at=0.0)


def altered(payload: bytes, **changes: object) -> bytes:
    return seal_entry(replace(open_entry(payload), **changes))  # type: ignore[arg-type]


def bad_index(payloads: list[bytes], head: Head, leaves: list[bytes] | None = None) -> int | None:
    """Where reading up to a head stops; None if all is sound."""
    walk = Walk(ORIGIN)
    try:
        for number, payload in enumerate(payloads):
            walk.feed(payload, leaves[number] if leaves else None)
        walk.check_head(head)
    except BadLedger as exc:
        return exc.index
    return None


LEDGER = written(12)
HEAD = head_of(LEDGER)
FEWER = (Line(WORKER, 4), Line(MINT, -4))


@pytest.mark.parametrize("count", [0, 1, 12])
def test_a_sound_ledger_is_walked_to_its_head(count: int) -> None:
    walk = Walk(ORIGIN)
    entries = [walk.feed(payload) for payload in LEDGER[:count]]
    walk.check_head(head_of(LEDGER[:count]))
    assert walk.size == count
    assert walk.balances == balances(entries)
    assert sum(walk.balances.values()) == 0


@given(st.integers(0, len(LEDGER) - 1))
def test_an_altered_entry_is_named(place: int) -> None:
    payloads = list(LEDGER)
    payloads[place] = altered(LEDGER[place], lines=FEWER)
    assert bad_index(payloads, HEAD) == place


@given(st.integers(0, len(LEDGER) - 1))
def test_with_the_leaves_kept_beside_any_altered_byte_is_named(place: int) -> None:
    leaves = [entry_hash(payload) for payload in LEDGER]
    payloads = list(LEDGER)
    payloads[place] = altered(LEDGER[place], previous=b"x" * 32)
    assert bad_index(payloads, HEAD, leaves) == place
    assert bad_index(LEDGER, HEAD, leaves) is None


@given(st.integers(0, len(LEDGER) - 1))
def test_an_altered_entry_with_its_leaf_altered_too_is_named(place: int) -> None:
    payloads = list(LEDGER)
    payloads[place] = altered(LEDGER[place], lines=FEWER)
    assert bad_index(payloads, HEAD, [entry_hash(payload) for payload in payloads]) == place


@given(st.integers(0, len(LEDGER) - 1))
def test_an_entry_that_breaks_the_rules_is_named(place: int) -> None:
    payloads = list(LEDGER)
    payloads[place] = LEDGER[place].replace(b"\x05", b"\x06", 1)[:-1] + b"\xf9"
    assert bad_index(payloads, HEAD) == place


@given(st.integers(0, len(LEDGER) - 1))
def test_a_gap_is_named(place: int) -> None:
    assert bad_index(LEDGER[:place] + LEDGER[place + 1 :], HEAD) == place


@given(st.integers(0, len(LEDGER) - 2))
def test_entries_twice_or_out_of_order_are_named(place: int) -> None:
    assert bad_index([*LEDGER[: place + 1], *LEDGER[place:]], HEAD) == place + 1
    swapped = [*LEDGER[:place], LEDGER[place + 1], LEDGER[place], *LEDGER[place + 2 :]]
    assert bad_index(swapped, HEAD) == place


@given(st.integers(0, len(LEDGER) - 1))
def test_a_cut_tail_is_named_by_the_first_entry_that_is_missing(left: int) -> None:
    assert bad_index(LEDGER[:left], HEAD) == left


@given(st.integers(0, len(LEDGER) - 1))
def test_a_head_from_before_is_named_by_the_first_entry_that_it_leaves_out(size: int) -> None:
    assert bad_index(LEDGER, head_of(LEDGER[:size])) == size


def test_another_history_written_whole_is_a_fork() -> None:
    walk = Walk(ORIGIN)
    for payload in written(12, amount=6):
        walk.feed(payload)
    with pytest.raises(BadLedger, match="fork") as refusal:
        walk.check_head(HEAD)
    assert refusal.value.index == 11


@pytest.mark.parametrize(
    ("head", "why"),
    [
        (replace(HEAD, root=bytes(32)), "root of other entries"),
        (replace(HEAD, origin=OTHER), OTHER),
    ],
)
def test_a_head_of_other_entries_is_bad_as_a_whole(head: Head, why: str) -> None:
    walk = Walk(ORIGIN)
    for payload in LEDGER:
        walk.feed(payload)
    with pytest.raises(BadLedger, match=why) as refusal:
        walk.check_head(head)
    assert refusal.value.index == 0


@pytest.mark.parametrize(
    ("payload", "why"),
    [
        (altered(LEDGER[3], origin=OTHER), f"of the ledger of {OTHER}"),
        (b"\xc1", "plain values"),
        (bytes(5000), "4096"),
        (LEDGER[4], "missing"),
    ],
)
def test_after_a_bad_entry_the_walk_stands_where_it_stood(payload: bytes, why: str) -> None:
    walk = Walk(ORIGIN)
    for sound in LEDGER[:3]:
        walk.feed(sound)
    with pytest.raises(BadLedger, match=why) as refusal:
        walk.feed(payload)
    assert refusal.value.index == walk.size == 3
    for sound in LEDGER[3:]:
        walk.feed(sound)
    walk.check_head(HEAD)


@given(st.integers(0, len(LEDGER)))
def test_a_walk_goes_on_where_another_ended(stop: int) -> None:
    first = Walk(ORIGIN)
    for payload in LEDGER[:stop]:
        first.feed(payload)
    kept = Frontier(first.frontier.size, first.frontier.peaks)
    second = Walk(ORIGIN, frontier=kept, last=first.last)
    for payload in LEDGER[stop:]:
        second.feed(payload)
    second.check_head(HEAD)
    sums = {account: first.balances.get(account, 0) for account in (WORKER, MINT)}
    assert sums[WORKER] + second.balances.get(WORKER, 0) == 5 * len(LEDGER)


def test_a_page_of_a_forked_ledger_does_not_follow_what_was_walked_before() -> None:
    walk = Walk(ORIGIN)
    for payload in LEDGER[:6]:
        walk.feed(payload)
    with pytest.raises(BadLedger, match="after another") as refusal:
        walk.feed(written(7, amount=6)[6])
    assert refusal.value.index == 5
