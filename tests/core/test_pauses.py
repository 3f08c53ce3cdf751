from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from tessella.core.pauses import Pauses, Why

Say = Callable[[Pauses], Pauses]


def pause(until: float = math.inf) -> Say:
    return lambda pauses: pauses.paused(until)


def resume(pauses: Pauses) -> Pauses:
    return pauses.resumed()


def said(why: Why, wants: bool) -> Say:
    return lambda pauses: pauses.said(why, wants)


BUSY, IDLE = said(Why.GPU, True), said(Why.GPU, False)
NIGHT, DAY = said(Why.SCHEDULE, True), said(Why.SCHEDULE, False)


@pytest.mark.parametrize(
    ("says", "at", "reason"),
    [
        pytest.param([], 0.0, None, id="nobody wants it"),
        pytest.param([pause()], 1e9, Why.OWNER, id="for good"),
        pytest.param([pause(60.0)], 59.9, Why.OWNER, id="for a minute"),
        pytest.param([pause(60.0)], 60.0, None, id="the minute is over"),
        pytest.param([pause(), resume], 0.0, None, id="taken back"),
        pytest.param([NIGHT], 0.0, Why.SCHEDULE, id="by the schedule"),
        pytest.param([NIGHT, DAY], 0.0, None, id="and back by it"),
        pytest.param([NIGHT, resume], 0.0, None, id="the owner overrules it"),
        pytest.param([NIGHT, resume, NIGHT, NIGHT], 0.0, None, id="which it may say as often"),
        pytest.param([NIGHT, resume, DAY, NIGHT], 0.0, Why.SCHEDULE, id="until the next change"),
        pytest.param([NIGHT, resume, BUSY], 0.0, Why.GPU, id="another may want it then"),
        pytest.param([NIGHT, BUSY], 0.0, Why.SCHEDULE, id="one reason of two"),
        pytest.param([NIGHT, BUSY, DAY], 0.0, Why.GPU, id="the other is left"),
        pytest.param([NIGHT, pause(60.0)], 61.0, Why.SCHEDULE, id="what the owner's was beside"),
        pytest.param([pause(), NIGHT, DAY], 0.0, Why.OWNER, id="no schedule ends the owner's"),
        pytest.param([NIGHT, resume, pause()], 0.0, Why.OWNER, id="the owner's last word"),
        pytest.param([BUSY, IDLE, BUSY], 0.0, Why.GPU, id="as often as it changes"),
    ],
)
def test_a_node_is_paused_while_somebody_wants_it_whom_the_owner_did_not_overrule(
    says: list[Say], at: float, reason: Why | None
) -> None:
    pauses = Pauses()
    for say in says:
        pauses = say(pauses)
    assert pauses.reason(at) is reason


def test_only_the_owner_says_when_a_pause_ends() -> None:
    assert Pauses().paused(60.0).until(10.0) == 60.0
    assert Pauses().paused(60.0).until(60.0) == math.inf
    assert Pauses().said(Why.SCHEDULE, True).until(0.0) == math.inf
