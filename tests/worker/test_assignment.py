from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from tessella.core.errors import LocalError, Refused, RemoteFailure
from tessella.core.layers import LayerRange
from tessella.worker.assignment import Assignment

FRONT, BACK, WHOLE = LayerRange(0, 3), LayerRange(3, 6), LayerRange(0, 6)


def an_assignment(layers: LayerRange, insists: LayerRange | None = None) -> Assignment:
    assignment = Assignment(6, insists)
    assert assignment.begin(layers) == layers
    return assignment


def test_before_anything_is_assigned_there_is_nothing_to_hold() -> None:
    with pytest.raises(LocalError):
        _ = Assignment(6, None).layers


def test_a_range_beyond_the_model_is_no_range_to_join_with() -> None:
    with pytest.raises(RemoteFailure, match=r"0:7 of a model of 6"):
        Assignment(6, None).begin(LayerRange(0, 7))


@pytest.mark.parametrize(
    ("insists", "wanted", "culprit"),
    [(None, LayerRange(4, 7), "4:7"), (FRONT, BACK, "0:3"), (FRONT, WHOLE, "0:3")],
)
async def test_what_is_refused_changes_nothing(
    insists: LayerRange | None, wanted: LayerRange, culprit: str
) -> None:
    assignment = an_assignment(FRONT, insists)
    with assignment.while_wanted(FRONT) as scope:
        with pytest.raises(Refused, match=culprit):
            assignment.want(wanted)
        assert not scope.cancel_called
    assert assignment.layers == FRONT


def test_a_node_that_insists_may_be_told_its_own_range() -> None:
    assignment = an_assignment(BACK, FRONT)
    assignment.want(FRONT)
    assert assignment.layers == FRONT


async def test_work_for_a_range_ends_when_another_is_wanted(autojump_clock: MockClock) -> None:
    assignment = an_assignment(FRONT)
    with assignment.while_wanted(FRONT) as scope:
        await trio.sleep(1.0)
        assignment.want(FRONT)
        await trio.sleep(1.0)
        assignment.want(BACK)
        await trio.sleep_forever()
    assert scope.cancelled_caught
    assert trio.current_time() == pytest.approx(2.0, abs=0.1)


async def test_work_for_a_range_that_is_wanted_no_more_does_not_begin(
    autojump_clock: MockClock,
) -> None:
    assignment = an_assignment(FRONT)
    assignment.want(BACK)
    with assignment.while_wanted(FRONT) as scope:
        await trio.sleep_forever()
    assert scope.cancelled_caught


async def test_giving_up_a_range_ends_when_it_is_wanted_again_and_not_for_a_third(
    autojump_clock: MockClock,
) -> None:
    assignment = an_assignment(FRONT)
    assignment.want(BACK)
    with assignment.while_unwanted(FRONT) as scope:
        await trio.sleep(1.0)
        assignment.want(WHOLE)
        await trio.sleep(1.0)
        assignment.want(FRONT)
        await trio.sleep_forever()
    assert scope.cancelled_caught


async def test_what_is_over_is_not_ended() -> None:
    assignment = an_assignment(FRONT)
    with assignment.while_wanted(FRONT) as scope:
        pass
    assignment.want(BACK)
    assert not scope.cancel_called


async def test_work_ends_while_nothing_is_to_be_held(autojump_clock: MockClock) -> None:
    assignment = an_assignment(FRONT)
    with assignment.while_wanted(FRONT) as scope:
        await trio.sleep(1.0)
        assignment.rest()
        await trio.sleep_forever()
    assert scope.cancelled_caught
    with assignment.while_wanted(FRONT) as scope:
        await trio.sleep_forever()
    assert trio.current_time() == pytest.approx(1.0, abs=0.1)


async def test_a_rest_is_over_for_the_range_that_is_wanted_by_then(
    autojump_clock: MockClock,
) -> None:
    assignment = an_assignment(FRONT)
    assignment.rest()
    with assignment.while_unwanted(FRONT) as scope:
        assignment.want(BACK)
        assignment.wake()
        assignment.rest()
        assignment.want(FRONT)
        await trio.sleep(1.0)
        assert not scope.cancel_called
        assignment.wake()
        await trio.sleep_forever()
    assert scope.cancelled_caught


async def test_whoever_waits_for_the_end_of_a_rest_hears_of_it(autojump_clock: MockClock) -> None:
    assignment = an_assignment(FRONT)
    await assignment.awake()
    assignment.rest()
    assignment.rest()
    assert assignment.is_resting
    async with trio.open_nursery() as nursery:
        nursery.start_soon(assignment.awake)
        await trio.sleep(1.0)
        assignment.wake()
    assert not assignment.is_resting
