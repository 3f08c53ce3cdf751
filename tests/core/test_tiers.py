from __future__ import annotations

import threading
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tessella.core.tiers import HEAD_START_SECONDS, MICRO, Line, Tier, due, tier_of

tiers = st.sampled_from(Tier)
# Eighths of a second are exact as floats, so that a law about equal moments means equal ones.
moments = st.integers(0, 400).map(lambda eighths: eighths / 8)
# The most by which one who came later can go first.
LONGEST = HEAD_START_SECONDS * (len(Tier) - 1)


@dataclass(eq=False, frozen=True)
class One:
    tier: Tier
    queued_at: float


@pytest.mark.parametrize(
    ("balance", "tier"),
    [
        (1000 * MICRO + 1, Tier.VIP),
        (1000 * MICRO, Tier.STANDARD),
        (1, Tier.STANDARD),
        (0, Tier.LEECH),
        (-1, Tier.LEECH),
        (10**30, Tier.VIP),
    ],
)
def test_a_balance_decides_the_tier(balance: int, tier: Tier) -> None:
    assert tier_of(balance) is tier


@given(st.integers(), st.integers())
def test_more_credits_never_make_a_worse_tier(one: int, more: int) -> None:
    order = list(Tier)
    poor, rich = sorted((one, more))
    assert order.index(tier_of(rich)) <= order.index(tier_of(poor))


def test_tiers_have_the_names_of_the_wire_and_those_of_people() -> None:
    assert {str(tier): tier.title() for tier in Tier} == {
        "vip": "VIP",
        "standard": "Standard",
        "leech": "Leech",
    }


@given(tiers, tiers, moments, moments)
def test_the_better_tier_is_due_first_within_the_head_start(
    one: Tier, other: Tier, came: float, later: float
) -> None:
    order = list(Tier)
    steps = order.index(other) - order.index(one)
    if steps > 0:
        head = steps * HEAD_START_SECONDS
        assert (due(one, came + later) < due(other, came)) == (later < head)


@given(tiers, moments, moments)
def test_equals_are_due_as_they_came(tier: Tier, one: float, other: float) -> None:
    assert (due(tier, one) < due(tier, other)) == (one < other)


@given(tiers, tiers, moments, moments)
def test_nobody_is_passed_by_those_that_come_after_the_longest_head_start(
    one: Tier, other: Tier, came: float, later: float
) -> None:
    if later > LONGEST:
        assert due(one, came) < due(other, came + later)


def line_of(came: list[One]) -> Line[One]:
    line: Line[One] = Line()
    for one in came:
        line.put(one)
    return line


def taken(line: Line[One]) -> list[One]:
    out: list[One] = []
    while (one := line.take()) is not None:
        out.append(one)
    return out


waiting = st.lists(st.builds(One, tiers, moments), max_size=30).map(
    lambda ones: sorted(ones, key=lambda one: one.queued_at)
)


@given(waiting)
def test_a_line_gives_everyone_once_as_they_are_due(came: list[One]) -> None:
    order = list(Tier)
    line = line_of(came)
    assert len(line) == len(came)
    expected = sorted(came, key=lambda one: (due(one.tier, one.queued_at), order.index(one.tier)))
    assert taken(line) == expected
    assert len(line) == 0


@given(waiting, st.data())
def test_who_is_removed_is_not_taken_and_the_others_are(
    came: list[One], data: st.DataObject
) -> None:
    line = line_of(came)
    gone = data.draw(st.sets(st.sampled_from(came))) if came else set()
    assert all(line.remove(one) for one in gone)
    assert not any(line.remove(one) for one in gone)
    left = taken(line)
    assert set(left) == set(came) - gone
    assert len(left) == len(came) - len(gone)


@given(st.lists(tiers, min_size=1, max_size=60), tiers)
def test_a_crowd_that_never_ends_keeps_nobody_waiting(crowd: list[Tier], tier: Tier) -> None:
    """One second of work for each, and one more comes every second: a machine that is full."""
    line: Line[One] = Line()
    ours = One(tier, 0.0)
    line.put(ours)
    waited = 0
    for second in range(200):
        line.put(One(crowd[second % len(crowd)], float(second)))
        if line.take() is ours:
            break
        waited = second + 1
    # What came within the longest head start may go before it, and nothing else.
    assert waited <= LONGEST + 1


def test_one_who_is_alone_is_taken_at_once_whatever_the_tier() -> None:
    for tier in Tier:
        one = One(tier, 5.0)
        assert line_of([one]).take() is one


def test_two_threads_share_a_line_and_nobody_is_lost_or_taken_twice() -> None:
    line: Line[One] = Line()
    out: list[One] = []
    done = threading.Event()

    def consume() -> None:
        while not done.is_set() or len(line):
            if (one := line.take()) is not None:
                out.append(one)

    consumer = threading.Thread(target=consume)
    consumer.start()
    order = list(Tier)
    put = [One(order[at % 3], float(at)) for at in range(3000)]
    removed = []
    for at, one in enumerate(put):
        line.put(one)
        if at % 2 and line.remove(put[at - 1]):
            removed.append(put[at - 1])
    done.set()
    consumer.join(10.0)
    assert not consumer.is_alive()
    assert len(out) + len(removed) == len(put)
    assert set(out) | set(removed) == set(put)
