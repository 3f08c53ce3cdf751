from __future__ import annotations

import math
from itertools import pairwise

import pytest
import trio
from trio.testing import MockClock

from tessella.core.errors import ClaimTooSmall, PeerUnreachable, TessellaError
from tessella.worker.retries import LONGEST_RETRY, keep_going, try_again

AWAY = PeerUnreachable("nobody there")


def is_away(error: TessellaError) -> bool:
    return error is AWAY


async def test_what_is_away_is_tried_until_it_answers_with_longer_and_longer_pauses(
    autojump_clock: MockClock,
) -> None:
    tried: list[float] = []

    async def attempt() -> int:
        tried.append(trio.current_time())
        if len(tried) < 10:
            raise AWAY
        return 7

    assert await try_again(attempt, math.inf, is_away) == 7
    pauses = [after - before for before, after in pairwise(tried)]
    assert pauses == sorted(pauses)
    assert [pauses[0], pauses[-1]] == pytest.approx([0.5, LONGEST_RETRY])


async def test_every_other_error_leaves_at_once(autojump_clock: MockClock) -> None:
    async def attempt() -> None:
        raise ClaimTooSmall("1 MB")

    with pytest.raises(ClaimTooSmall):
        await try_again(attempt, math.inf, is_away)


async def test_patience_ends_with_the_last_error(autojump_clock: MockClock) -> None:
    async def attempt() -> None:
        raise AWAY

    started = trio.current_time()
    with pytest.raises(PeerUnreachable):
        await try_again(attempt, 20.0, is_away)
    assert trio.current_time() - started == pytest.approx(20.0)


@pytest.mark.parametrize(
    "error", [ZeroDivisionError("a defect"), AWAY, ExceptionGroup("both", [AWAY, KeyError("x")])]
)
async def test_a_task_that_must_not_end_is_begun_again_whatever_ended_it(
    autojump_clock: MockClock, error: Exception
) -> None:
    begun: list[float] = []
    told: list[Exception] = []

    async def task() -> None:
        begun.append(trio.current_time())
        raise error

    with trio.move_on_after(120.0):
        await keep_going(task, told.append)
    pauses = [after - before for before, after in pairwise(begun)]
    assert pauses[:3] == pytest.approx([0.5, 1.0, 2.0])
    assert max(pauses) == pytest.approx(LONGEST_RETRY)
    assert told == [error] * len(begun)


async def test_a_task_that_ran_for_long_is_begun_again_soon(autojump_clock: MockClock) -> None:
    begun: list[float] = []

    async def task() -> None:
        begun.append(trio.current_time())
        if len(begun) == 6:
            await trio.sleep(100.0)
        raise AWAY

    with trio.move_on_after(200.0):
        await keep_going(task, lambda _: None)
    assert begun[6] - begun[5] == pytest.approx(100.5)


async def test_a_task_that_is_cancelled_is_not_begun_again(autojump_clock: MockClock) -> None:
    begun = 0

    async def task() -> None:
        nonlocal begun
        begun += 1
        await trio.sleep_forever()

    with trio.move_on_after(50.0):
        await keep_going(task, lambda _: None)
    assert begun == 1
