from __future__ import annotations

from typing import Any, cast

import pytest
import trio
from trio.testing import MockClock

from tessella.core.errors import LocalError, ModelUnavailable
from tessella.core.layers import LayerRange
from tessella.core.peers import NodeStatus
from tessella.worker.serving import END_SECONDS, Serving
from tessella.worker.state import Loaded, NodeState

FRONT, BACK = LayerRange(0, 3), LayerRange(3, 6)
LOADED = cast("Loaded", object())


def serving() -> Serving:
    state = NodeState(0.0, status=NodeStatus.HEALTHY, layers=FRONT)
    state.loaded = LOADED
    return Serving(state)


def drain(desk: Serving) -> None:
    desk.state.status, desk.state.moving_to = NodeStatus.DRAINING, BACK


async def forever(_: Loaded) -> None:
    await trio.sleep_forever()


async def test_work_is_lent_what_is_loaded_and_what_it_returns_comes_back() -> None:
    async def work(loaded: Loaded) -> Loaded:
        return loaded

    assert await serving().lend(work) is LOADED


@pytest.mark.parametrize(
    ("changes", "text", "details"),
    [
        ({"loaded": None, "status": NodeStatus.PENDING_LOAD}, "still loading", "loading"),
        (
            {"status": NodeStatus.DRAINING, "moving_to": BACK},
            "moves from layers 0:3 to 3:6",
            "draining",
        ),
        ({"status": NodeStatus.DRAINING}, "leaving the mesh", None),
    ],
)
async def test_nothing_is_lent_while_there_is_nothing_or_it_is_to_go(
    changes: dict[str, Any], text: str, details: str | None
) -> None:
    desk = serving()
    for name, value in changes.items():
        setattr(desk.state, name, value)
    with pytest.raises(ModelUnavailable, match=text) as caught:
        await desk.lend(forever)
    assert caught.value.retry
    assert caught.value.details.get("state") == details


async def test_how_long_a_load_takes_is_what_it_took_so_far(autojump_clock: MockClock) -> None:
    desk = serving()
    load = desk.state.begin_load(BACK, trio.current_time())
    desk.state.loaded = None
    await trio.sleep(10.0)
    load.loaded_bytes, load.total_bytes = 100, 300
    with pytest.raises(ModelUnavailable, match="100 of 300 bytes") as caught:
        desk.check_loaded()
    assert caught.value.retry_after == pytest.approx(20.0)
    assert caught.value.details["progress"] == pytest.approx(1 / 3)


async def test_what_is_lent_is_waited_for(autojump_clock: MockClock) -> None:
    desk = serving()
    async with trio.open_nursery() as nursery:
        for seconds in (1.0, 5.0, 3.0):
            nursery.start_soon(desk.lend, _sleeping(seconds))
        await trio.sleep(0.5)
        await desk.unused()
        assert trio.current_time() == pytest.approx(5.0, abs=0.1)
        await desk.unused()


def _sleeping(seconds: float) -> Any:
    async def work(_: Loaded) -> None:
        await trio.sleep(seconds)

    return work


async def test_work_that_is_ended_ends_with_the_reason_and_drags_nothing_along(
    autojump_clock: MockClock,
) -> None:
    desk = serving()
    ended: list[ModelUnavailable] = []

    async def lent() -> None:
        with pytest.raises(ModelUnavailable, match="moves from layers") as caught:
            await desk.lend(forever)
        ended.append(caught.value)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(lent)
        nursery.start_soon(lent)
        await trio.sleep(1.0)
        drain(desk)
        await desk.end()
        desk.state.loaded = None
    assert [(error.__context__, error.__cause__) for error in ended] == [(None, None)] * 2


async def test_an_error_of_the_work_is_its_own(autojump_clock: MockClock) -> None:
    desk = serving()

    async def work(_: Loaded) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await desk.lend(work)
    await desk.unused()


async def test_work_that_does_not_end_is_an_error_of_this_node(autojump_clock: MockClock) -> None:
    desk = serving()

    async def stuck(_: Loaded) -> None:
        with trio.CancelScope(shield=True):
            await trio.sleep(2 * END_SECONDS)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(desk.lend, stuck)
        await trio.sleep(1.0)
        with pytest.raises(LocalError, match="1 sessions did not end"):
            await desk.end()
        nursery.cancel_scope.cancel()
