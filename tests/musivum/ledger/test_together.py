"""Callers that come at the same time share a transaction, and each gets its own answer."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from musivum.ledger.kept import Bill
from musivum.ledger.together import MAX_GATHERED, MAX_TOGETHER, Together
from tessella.core.errors import StoreUnavailable
from tessella.core.proofs import MAX_BATCH, read_claim
from tessella.core.settlement import Became, Outcome
from tests.core.work import MUSIVUM, NOW
from tests.musivum.ledger.keeping import one_stage

SIGNED = one_stage(1)
BILL = Bill(read_claim(SIGNED, {MUSIVUM.peer_id}, NOW), SIGNED)


class Slow:
    """Work that takes a second and numbers what it is given."""

    def __init__(self) -> None:
        self.calls: list[int] = []
        self.error: StoreUnavailable | None = None

    async def __call__(self, bills: Sequence[Bill]) -> Sequence[Outcome]:
        begun = sum(self.calls)
        self.calls.append(len(bills))
        await trio.sleep(1)
        if self.error is not None:
            raise self.error
        return [Outcome(Became.PAID, begun + place) for place in range(len(bills))]


async def test_those_that_come_meanwhile_go_together(autojump_clock: MockClock) -> None:
    slow = Slow()
    together = Together(slow)
    found: dict[int, Sequence[Outcome]] = {}

    async def bring(number: int) -> None:
        found[number] = await together.settle([BILL] * (number + 1))

    async with trio.open_nursery() as nursery:
        for number in range(4):
            nursery.start_soon(bring, number)
            await wait_all_tasks_blocked()
    assert slow.calls == [1, 2 + 3 + 4]
    assert {number: [each.micro for each in outcomes] for number, outcomes in found.items()} == {
        0: [0],
        1: [1, 2],
        2: [3, 4, 5],
        3: [6, 7, 8, 9],
    }


async def test_no_transaction_is_about_too_many(autojump_clock: MockClock) -> None:
    slow = Slow()
    together = Together(slow)
    async with trio.open_nursery() as nursery:
        for _ in range(7):
            nursery.start_soon(together.settle, [BILL] * MAX_BATCH)
            await wait_all_tasks_blocked()
    assert slow.calls == [MAX_BATCH, MAX_TOGETHER, 2 * MAX_BATCH]


async def test_where_too_many_gather_the_next_is_sent_away(autojump_clock: MockClock) -> None:
    together = Together(Slow())
    async with trio.open_nursery() as nursery:
        for _ in range(1 + MAX_GATHERED // MAX_BATCH):
            nursery.start_soon(together.settle, [BILL] * MAX_BATCH)
            await wait_all_tasks_blocked()
        with pytest.raises(StoreUnavailable, match=f"{MAX_GATHERED} proofs wait"):
            await together.settle([BILL])
    assert len(await together.settle([BILL])) == 1


async def test_who_leaves_takes_nobody_along(autojump_clock: MockClock) -> None:
    slow = Slow()
    together = Together(slow)
    found: list[Sequence[Outcome]] = []

    async def leave(seconds: float) -> None:
        with trio.move_on_after(seconds):
            await together.settle([BILL])

    async def stay() -> None:
        found.append(await together.settle([BILL]))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(leave, 0.5)  # its own transaction is under way
        await wait_all_tasks_blocked()
        nursery.start_soon(leave, 0.6)  # it waits, and is forgotten
        nursery.start_soon(leave, 1.5)  # it may lead the second transaction
        nursery.start_soon(stay)
    assert slow.calls == [1, 2]
    assert len(found) == 1


async def test_an_error_is_told_to_all_of_a_transaction_and_to_nobody_else(
    autojump_clock: MockClock,
) -> None:
    slow = Slow()
    together = Together(slow)
    slow.error = StoreUnavailable("no room")
    errors: list[StoreUnavailable] = []

    async def bring() -> None:
        try:
            await together.settle([BILL])
        except StoreUnavailable as exc:
            errors.append(exc)

    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(bring)
    assert [str(error) for error in errors] == ["no room"] * 3
    assert len({id(error) for error in errors}) == 3
    slow.error = None
    assert len(await together.settle([BILL])) == 1
