"""Hours of the week, as people write them: `mon-fri 09:00-17:30`.

A span is days, hours, or both: `sat-sun` is the whole of both days, `22:00-06:00` every night.
Hours that end before they begin end on the next day, so `fri 22:00-06:00` ends on Saturday. The
end is not part of the span; 24:00 is the end of a day. All of it is local time.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from tessella.core.errors import BadConfig

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
DAY_MINUTES = 24 * 60
_SHOWN = 60
_SPAN = re.compile(
    r"(?P<days>(?P<first>[a-z]{3})(-(?P<last>[a-z]{3}))?)?"
    r"(?(days)(\s+|$))"
    r"((?P<start>[0-9]{1,2}:[0-9]{2})-(?P<stop>[0-9]{1,2}:[0-9]{2}))?"
)


class Moment(Protocol):
    """A time of day on a day of the week; a `datetime` is one."""

    @property
    def hour(self) -> int:
        """0 to 23."""

    @property
    def minute(self) -> int:
        """0 to 59."""

    def weekday(self) -> int:
        """0 is Monday."""


@dataclass(frozen=True, slots=True)
class Span:
    """The same hours on several days of every week."""

    first: int
    """The first day; 0 is Monday."""
    last: int
    """The last day, included; before `first` it is one of the next week."""
    start: int
    """The minute of the day at which it begins, included."""
    stop: int
    """The minute of the day before which it ends; of the next day, if before `start`."""

    def __str__(self) -> str:
        days = DAYS[self.first] if self.first == self.last else self._days
        return f"{days} {_clock(self.start)}-{_clock(self.stop)}"

    @property
    def _days(self) -> str:
        return f"{DAYS[self.first]}-{DAYS[self.last]}"

    def holds(self, moment: Moment) -> bool:
        """Whether a moment is within."""
        minute, day = moment.hour * 60 + moment.minute, moment.weekday()
        if self.start < self.stop:
            return self._is_on(day) and self.start <= minute < self.stop
        return (self._is_on(day) and minute >= self.start) or (
            self._is_on(day - 1) and minute < self.stop
        )

    def _is_on(self, day: int) -> bool:
        return (day - self.first) % len(DAYS) <= (self.last - self.first) % len(DAYS)

    @classmethod
    def parse(cls, text: str) -> Span:
        """`DAY[-DAY] HH:MM-HH:MM`, or one of both. Raises BadConfig that names the text."""
        found = _SPAN.fullmatch(text.strip().lower())
        if found is None or not (found["days"] or found["start"]):
            raise BadConfig(f"not DAY[-DAY] HH:MM-HH:MM: {text[:_SHOWN]!r}")
        first, last = found["first"] or DAYS[0], found["first"] or DAYS[-1]
        start, stop = found["start"] or "00:00", found["stop"] or "24:00"
        try:
            span = cls(
                DAYS.index(first), DAYS.index(found["last"] or last), _minute(start), _minute(stop)
            )
        except ValueError:
            days = ", ".join(DAYS)
            raise BadConfig(
                f"days are {days}, and hours 00:00 to 24:00; not so {text[:_SHOWN]!r}"
            ) from None
        if span.start in (span.stop, DAY_MINUTES):
            raise BadConfig(f"begins when it ends: {text[:_SHOWN]!r}")
        return span


Schedule = tuple[Span, ...]


def paused_at(schedule: Iterable[Span], moment: Moment) -> bool:
    """Whether a moment is in one of the spans."""
    return any(span.holds(moment) for span in schedule)


def _minute(text: str) -> int:
    hour, _, minute = text.partition(":")
    found = int(hour) * 60 + int(minute)
    if int(minute) > 59 or found > DAY_MINUTES:
        raise ValueError
    return found


def _clock(minute: int) -> str:
    return f"{minute // 60:02}:{minute % 60:02}"
