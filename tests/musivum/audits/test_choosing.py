"""Who is asked to audit, and that nobody can choose whom it audits."""

from __future__ import annotations

from dataclasses import replace

from trio.testing import MockClock

from musivum.audits.choosing import SETTLING_SECONDS
from tessella.core.ids import PeerId
from tessella.core.messages import AuditReport
from tests.musivum.audits.room import (
    FIRST,
    GOOD,
    LAST,
    SAYS_FRAUD,
    Room,
    peer,
)


async def test_only_who_holds_the_same_layers_of_the_same_weights_is_asked(
    room: Room, worker: PeerId, autojump_clock: MockClock
) -> None:
    others = [
        room.joins(2, FIRST),
        room.joins(3, weights="q8_0"),
        room.joins(4, weights=""),
        room.joins(5, model="other"),
    ]
    room.works(worker)
    stranger = peer(99)
    for _ in range(20):
        for asking in (*others, worker, stranger):
            assert await room.asks(asking) is None
        room.time.jump(60)
    assert await room.asks(room.joins(6)) is not None


async def test_a_node_of_the_same_chain_audits_only_where_there_is_nobody_else(
    room: Room, autojump_clock: MockClock
) -> None:
    chain = [room.joins(1), room.joins(2)]
    room.audits.settled([room.hop(chain, 0), room.hop(chain, 0)])
    assert await room.asks(chain[1]) is None, "somebody else may be about to ask"
    room.time.jump(SETTLING_SECONDS + 1)
    assert await room.asks(chain[1]) is not None
    other = room.joins(3)
    assert await room.asks(other) is not None
    room.audits.settled([room.hop(chain, 0)])
    room.time.jump(10 * SETTLING_SECONDS)
    assert await room.asks(chain[1]) is None


async def test_a_spare_that_sent_the_rows_audits_only_where_there_is_nobody_else(
    room: Room, autojump_clock: MockClock
) -> None:
    chain, spare = [room.joins(1, FIRST), room.joins(2, LAST)], room.joins(3)
    hop = room.hop(chain, 1)
    proof = replace(hop.claim.proof, sender=spare)
    room.audits.settled([replace(hop, claim=replace(hop.claim, proof=proof))])
    assert await room.asks(spare) is None
    room.time.jump(SETTLING_SECONDS + 1)
    assert await room.asks(spare) is not None


async def test_the_next_hop_goes_to_another_auditor_where_there_is_one(
    room: Room, worker: PeerId, auditors: list[PeerId], autojump_clock: MockClock
) -> None:
    asking, seen = auditors[:2], list[PeerId]()

    def says(auditor: PeerId, _: object) -> object:
        seen.append(auditor)
        return GOOD

    for _ in range(6):
        room.works(worker)
        assert await room.audited(asking, says) == 1  # type: ignore[arg-type]
    assert seen in ([*asking] * 3, [*reversed(asking)] * 3)


async def test_auditors_are_drawn_and_not_whoever_asks_first(
    room: Room, worker: PeerId, autojump_clock: MockClock
) -> None:
    eager, *others = [room.joins(number) for number in range(20, 40)]
    for auditor in others:
        await room.asks(auditor)
    room.works(worker, 20)
    tasks = [await room.asks(eager) for _ in range(20)]
    assert sum(task is not None for task in tasks) <= 3, "about one in twenty is its own"


async def test_newcomers_judge_nobody_where_others_showed_that_they_can_compute(
    room: Room, autojump_clock: MockClock
) -> None:
    veterans = [room.joins(number) for number in (1, 2)]
    for veteran in veterans:
        room.works(veteran, 5)
    await room.audited(veterans, lambda *_: GOOD)
    newcomers = [room.joins(number) for number in (31, 32, 33)]

    def says(auditor: PeerId, _: object) -> AuditReport:
        return SAYS_FRAUD if auditor in newcomers else GOOD

    for _ in range(20):
        room.works(veterans[0], 5)
        await room.audited([*newcomers, *veterans], says)
    assert room.audits.barred(veterans[0]) is None
    assert room.audits.counters()["rejected"] == 0
    assert not any(map(room.audits.suspects, veterans))
