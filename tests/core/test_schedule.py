"""Hours of the week: what a text means, and which moments it holds."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tessella.core.errors import BadConfig
from tessella.core.schedule import DAY_MINUTES, Span, paused_at

# The first of January 2024 was a Monday.
MONDAY = datetime(2024, 1, 1)
DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")


def at(day: str, clock: str) -> datetime:
    hour, minute = map(int, clock.split(":"))
    return MONDAY + timedelta(days=DAYS.index(day), hours=hour, minutes=minute)


@pytest.mark.parametrize(
    ("text", "moment", "is_within"),
    [
        ("mon-fri 09:00-17:30", at("mon", "08:59"), False),
        ("mon-fri 09:00-17:30", at("mon", "09:00"), True),
        ("mon-fri 09:00-17:30", at("fri", "17:29"), True),
        ("mon-fri 09:00-17:30", at("fri", "17:30"), False),
        ("mon-fri 09:00-17:30", at("sat", "12:00"), False),
        ("MON-Fri  9:00-17:30", at("wed", "12:00"), True),
        ("sat-sun", at("sun", "23:59"), True),
        ("sat-sun", at("mon", "00:00"), False),
        ("tue", at("tue", "00:00"), True),
        ("tue", at("wed", "00:00"), False),
        ("fri-mon 10:00-12:00", at("sun", "11:00"), True),
        ("fri-mon 10:00-12:00", at("mon", "11:00"), True),
        ("fri-mon 10:00-12:00", at("tue", "11:00"), False),
        ("fri-mon 10:00-12:00", at("thu", "11:00"), False),
        ("fri 22:00-06:00", at("fri", "21:59"), False),
        ("fri 22:00-06:00", at("fri", "22:00"), True),
        ("fri 22:00-06:00", at("sat", "05:59"), True),
        ("fri 22:00-06:00", at("sat", "06:00"), False),
        ("fri 22:00-06:00", at("fri", "03:00"), False),
        ("sun 22:00-06:00", at("mon", "05:00"), True),
        ("22:00-06:00", at("thu", "02:00"), True),
        ("22:00-06:00", at("thu", "12:00"), False),
        ("mon 22:00-24:00", at("mon", "23:59"), True),
        ("mon 22:00-24:00", at("tue", "00:00"), False),
        ("mon 22:00-00:00", at("mon", "23:59"), True),
        ("mon 22:00-00:00", at("tue", "00:00"), False),
    ],
)
def test_a_moment_is_within_a_span(text: str, moment: datetime, is_within: bool) -> None:
    assert Span.parse(text).holds(moment) is is_within


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "monday",
        "mon-",
        "mo 09:00-10:00",
        "xyz 09:00-10:00",
        "mon,tue 09:00-10:00",
        "mon09:00-10:00",
        "mon 09:00",
        "mon 9-17",
        "mon 09:60-10:00",
        "mon 09:00-24:01",
        "mon 25:00-26:00",
        "mon 09:00-09:00",
        "mon 24:00-06:00",
        "mon 09:00-10:00 tue",
        "٣٣:00-10:00",
    ],
)
def test_what_is_no_span_is_named(text: str) -> None:
    with pytest.raises(BadConfig) as caught:
        Span.parse(text)
    assert repr(text) in str(caught.value)


def test_a_pause_is_any_of_the_spans_and_none_without_any() -> None:
    schedule = (Span.parse("mon"), Span.parse("12:00-13:00"))
    assert paused_at(schedule, at("mon", "05:00"))
    assert paused_at(schedule, at("tue", "12:30"))
    assert not paused_at(schedule, at("tue", "13:00"))
    assert not paused_at((), at("mon", "05:00"))


SPANS = st.builds(
    Span,
    st.integers(0, 6),
    st.integers(0, 6),
    st.integers(0, DAY_MINUTES - 1),
    st.integers(0, DAY_MINUTES),
).filter(lambda span: span.start != span.stop)


@given(SPANS)
def test_a_span_is_read_as_it_is_written(span: Span) -> None:
    assert Span.parse(str(span)) == span


@given(SPANS, st.integers(0, 7 * DAY_MINUTES - 1))
def test_a_week_later_nothing_has_changed(span: Span, minute: int) -> None:
    moment = MONDAY + timedelta(minutes=minute)
    assert span.holds(moment) == span.holds(moment + timedelta(weeks=1))
