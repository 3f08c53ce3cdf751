from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tessella.core.errors import BadConfig
from tessella.core.health import MOST_WINDOWS, OomRule, OomStreak

RULE = OomRule(streak=3, window=30.0)
Told = tuple[str, float]


def told(*events: Told, rule: OomRule = RULE) -> OomStreak:
    streak = OomStreak(rule=rule)
    for what, at in events:
        streak = streak.after_oom(at) if what == "oom" else streak.after_success(at)
    return streak


THREE = (("oom", 0.0), ("oom", 5.0), ("oom", 10.0))


@pytest.mark.parametrize(
    ("events", "at", "saturated"),
    [
        pytest.param((), 0.0, False, id="nothing happened"),
        pytest.param(THREE[:2], 5.0, False, id="two of three"),
        pytest.param(THREE, 10.0, True, id="three of three"),
        pytest.param(THREE, 39.9, True, id="the window is not quiet yet"),
        pytest.param(THREE, 40.0, False, id="a quiet window"),
        pytest.param(
            (("oom", 0.0), ("oom", 5.0), ("fine", 6.0), ("oom", 10.0)),
            10.0,
            False,
            id="not in a row",
        ),
        pytest.param(
            (("oom", 0.0), ("oom", 20.0), ("oom", 30.0)), 30.0, False, id="not in one window"
        ),
        pytest.param((("oom", 0.0), ("oom", 20.0), ("oom", 29.9)), 29.9, True, id="just in one"),
        pytest.param(
            (("oom", 0.0), ("oom", 20.0), ("oom", 30.0), ("oom", 35.0)),
            35.0,
            True,
            id="the last three are in one",
        ),
        pytest.param((*THREE, ("oom", 30.0)), 59.9, True, id="another one begins the quiet anew"),
        pytest.param((*THREE, ("oom", 30.0)), 60.0, False, id="and it is as long as before"),
        pytest.param(
            (*THREE, ("fine", 12.0)), 39.9, True, id="an old session that ends is no news"
        ),
        pytest.param((*THREE, ("oom", 45.0)), 45.0, True, id="on probation one is enough"),
        pytest.param((*THREE, ("oom", 45.0)), 104.9, True, id="and lasts twice as long"),
        pytest.param((*THREE, ("oom", 45.0)), 105.0, False, id="and no longer"),
        pytest.param((*THREE, ("oom", 71.0)), 71.0, False, id="after the probation one is none"),
        pytest.param(
            (*THREE, ("fine", 41.0), ("oom", 45.0)), 45.0, False, id="a session ends the probation"
        ),
    ],
)
def test_saturation_begins_with_a_streak_and_ends_with_quiet(
    events: tuple[Told, ...], at: float, saturated: bool
) -> None:
    streak = told(*events)
    assert streak.saturated(at) is saturated
    assert (streak.quiet_left(at) > 0) is saturated


def test_a_node_that_fails_at_every_try_is_tried_ever_more_rarely_up_to_a_bound() -> None:
    streak, now, waits = told(*THREE), 10.0, []
    for _ in range(8):
        waits.append(streak.quiet_left(now) / RULE.window)
        now += streak.quiet_left(now)
        assert not streak.saturated(now)
        streak = streak.after_oom(now)
    assert waits == [1, 2, 4, 8, 16, 16, 16, 16]
    assert max(waits) == MOST_WINDOWS


def test_a_streak_of_one_is_a_rule_too() -> None:
    rule = OomRule(streak=1, window=1.0)
    assert told(("oom", 3.0), rule=rule).saturated(3.5)
    assert not told(("oom", 3.0), rule=rule).saturated(4.0)


@given(
    st.lists(st.tuples(st.sampled_from(["oom", "fine"]), st.floats(0.0, 20.0)), max_size=40),
    st.integers(1, 5),
)
def test_fewer_failures_than_a_streak_saturate_nobody_and_quiet_frees_everybody(
    steps: list[tuple[str, float]], streak: int
) -> None:
    rule = OomRule(streak=streak, window=30.0)
    now, events = 0.0, []
    for what, wait in steps:
        now += wait
        events.append((what, now))
    state = told(*events, rule=rule)
    if sum(what == "oom" for what, _ in steps) < streak:
        assert not state.saturated(now)
    assert not state.saturated(now + MOST_WINDOWS * rule.window)
    assert len(state.failed) <= streak


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"streak": 0}, "oom_streak"),
        ({"window": 0.0}, "streak_window_secs"),
        ({"window": math.inf}, "streak_window_secs"),
        ({"window": math.nan}, "streak_window_secs"),
    ],
)
def test_a_rule_out_of_its_range_is_named(given: dict[str, float], named: str) -> None:
    with pytest.raises(BadConfig, match=named):
        OomRule(**given)  # type: ignore[arg-type]
