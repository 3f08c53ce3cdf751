"""What canaries marked of late, and whom a measured gain gives away.

A canary multiplies what it should not have been asked for by a gain that only it knows, and tells
us before anybody audits. An auditor that measures this very gain in the work of whoever asked the
canary has found a copy, and cannot have known what to say.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from tessella.core.audits import LEAST_MARK, MOST_MARK, accuses
from tessella.core.errors import BadRequest
from tessella.core.ids import SESSION_ID_BYTES, PeerId
from tessella.core.messages import Mark, Marks
from tessella.core.tickets import CLOCK_SECONDS

# As long as an audit may come after the hop.
MARK_SECONDS = 3600.0
MAX_MARKS_EACH = 256
# The canary that said nothing for longest goes first.
MAX_CANARIES = 512
# A peer id has 52; what is longer is no peer, and would be kept for an hour.
MAX_COPIER_CHARS = 64
# A gain comes as a double; what is drawn ends between these.
_SLACK = 1e-9


@dataclass(slots=True)
class _Canary:
    marks: OrderedDict[bytes, Mark] = field(default_factory=OrderedDict)
    """By session, the one told first first."""


class MarkTable:
    """The marks of the last hour; at most MAX_MARKS_EACH of each canary."""

    def __init__(self) -> None:
        self._canaries: OrderedDict[PeerId, _Canary] = OrderedDict()

    def __len__(self) -> int:
        return sum(len(each.marks) for each in self._canaries.values())

    def put(self, canary: PeerId, said: Marks, now: float) -> None:
        """Remember marks, told at `now`, in seconds since 1970; one told before stays as it was.

        Raises BadRequest for one that no canary makes, and then takes none.
        """
        for mark in said.marks:
            _check(canary, mark, now)
        known = self._canaries.setdefault(canary, _Canary())
        self._canaries.move_to_end(canary)
        for mark in said.marks:
            known.marks.setdefault(mark.session_id, mark)
        while len(known.marks) > MAX_MARKS_EACH:
            known.marks.popitem(last=False)
        while len(self._canaries) > MAX_CANARIES:
            self._canaries.popitem(last=False)

    def expire(self, now: float) -> None:
        """Forget those of more than an hour ago."""
        for canary, known in list(self._canaries.items()):
            old = [name for name, mark in known.marks.items() if mark.at < now - MARK_SECONDS]
            for name in old:
                del known.marks[name]
            if not known.marks:
                del self._canaries[canary]

    def find(
        self,
        copier: PeerId,
        gain: float,
        during: tuple[float, float],
        trusts: Callable[[PeerId], bool],
    ) -> PeerId | None:
        """The canary whose mark a gain in a peer's work is, made in a time; None if there is none.

        `trusts` says whose marks count.
        """
        since, until = during
        for canary, known in self._canaries.items():
            if not trusts(canary):
                continue
            for mark in known.marks.values():
                is_its = mark.copier == copier and since <= mark.at <= until
                if is_its and accuses(gain, mark.gain):
                    return canary
        return None


def _check(canary: PeerId, mark: Mark, now: float) -> None:
    size = abs(mark.gain - 1.0)
    if not LEAST_MARK - _SLACK <= size <= MOST_MARK + _SLACK:
        raise BadRequest(f"a mark with the gain {mark.gain:g}")
    if not now - MARK_SECONDS - CLOCK_SECONDS <= mark.at <= now + CLOCK_SECONDS:
        raise BadRequest(f"a mark made {now - mark.at:.0f} s ago")
    is_somebody = 0 < len(mark.copier) <= MAX_COPIER_CHARS and mark.copier != canary
    if len(mark.session_id) != SESSION_ID_BYTES or not is_somebody:
        raise BadRequest("a mark without a session of somebody else")
