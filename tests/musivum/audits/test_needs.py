"""A question of who holds little is short, and gives what a look at every audit would."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import combinations

from trio.testing import MockClock

from musivum.audits.choosing import class_of, holds
from musivum.audits.needs import ByNeed, Need
from musivum.audits.orders import keepers_of
from musivum.audits.queue import OpenAudit
from tessella.core.ids import ModelId, PeerId
from tessella.core.layers import LayerRange
from tests.musivum.audits.room import Room

SPANS = [LayerRange(start, stop) for start, stop in combinations(range(10), 2)][:40]


def need(number: int) -> Need:
    return Need(ModelId("m"), "", LayerRange(number, number + 1), "bf16")


def test_audits_are_told_in_their_order_whatever_they_take() -> None:
    audits = ByNeed[int]()
    for number in range(9):
        audits.add(need(number % 3), number)
    asked: list[Need] = []

    def second_or_third(each: Need) -> bool:
        asked.append(each)
        return each != need(0)

    assert audits.that(second_or_third) == [1, 2, 4, 5, 7, 8]
    assert asked == [need(0), need(1), need(2)]
    for number in (1, 4, 7, 5):
        audits.remove(need(number % 3), number)
    assert audits.that(second_or_third) == [2, 8]
    assert asked[3:] == [need(0), need(2)]
    audits.add(need(1), 1)
    assert audits.that(lambda _: True) == [0, 2, 3, 6, 8, 1]


def opened(room: Room, workers: list[PeerId], count: int, rng: random.Random) -> list[OpenAudit]:
    """Audits of 40 needs, some of which were begun."""
    now, found = room.books.clocks.now(), []
    for number in range(count):
        hop = room.hop([rng.choice(workers)])
        proof = replace(hop.claim.proof, layers=SPANS[number % len(SPANS)])
        hop = replace(hop, claim=replace(hop.claim, proof=proof))
        klass = class_of(hop.claim)
        assert klass is not None
        found.append(OpenAudit(hop.claim, hop.signed, klass, now + 3000, now))
        room.audits._open.add(found[-1])
    return found


def looked_for(room: Room, auditor: PeerId, now: float) -> OpenAudit | None:
    """What it gets, by a look at every audit: first those that were begun."""
    node = room.books.roster.find(auditor)
    assert node is not None
    free = [audit for audit in room.audits._open if audit.given is None]
    for audit in sorted(free, key=lambda audit: not audit.asked):
        if not holds(node, audit.need) or not room.audits._choosing.may_have(auditor, audit, now):
            continue
        if room.books.roster.find(keepers_of(audit.claim).inputs) is not None:
            return audit
    return None


async def test_who_asks_gets_what_a_look_at_all_audits_would_give(
    room: Room, autojump_clock: MockClock
) -> None:
    rng = random.Random(5)
    workers = [room.joins(100 + number) for number in range(5)]
    asking = [room.joins(number, SPANS[7 * number % 40]) for number in range(1, 9)]
    asking += [room.joins(20), room.joins(21, weights="q8_0")]
    audits = opened(room, workers, 200, rng)
    gotten = 0
    for _ in range(200):
        autojump_clock.jump(rng.choice([0.0, 5.0, 15.0]))
        now, auditor = room.books.clocks.now(), rng.choice(asking)
        node = room.audits._choosing.heard(auditor, now)
        assert node is not None
        chosen = room.audits._giving._chosen(node, now)
        assert chosen is looked_for(room, auditor, now)
        if chosen is not None:
            gotten += 1
            room.audits._open.give(chosen, auditor, now + 900)
        given = [audit for audit in audits if audit.given is not None]
        if given and rng.random() < 0.7:
            room.audits._open.free(rng.choice(given), now)
        if rng.random() < 0.3:
            room.audits._open.close(audits.pop(rng.randrange(len(audits))))
    assert gotten > 50


async def test_who_holds_nothing_or_little_does_not_look_at_the_rest(
    room: Room, autojump_clock: MockClock
) -> None:
    opened(room, [room.joins(100)], 400, random.Random(5))
    looked: list[OpenAudit] = []
    may_have = room.audits._choosing.may_have

    def counting(caller: PeerId, audit: OpenAudit, now: float) -> bool:
        looked.append(audit)
        return may_have(caller, audit, now) and False

    room.audits._choosing.may_have = counting  # type: ignore[method-assign]
    assert await room.asks(room.joins(1, weights="q8_0")) is None
    assert looked == []
    assert await room.asks(room.joins(2, LayerRange(0, 1))) is None
    assert len(looked) == 400 // len(SPANS)
