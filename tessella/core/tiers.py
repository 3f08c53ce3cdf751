"""Who goes first where work waits: the tier that a balance earns, and a line ordered by it.

A tier is a head start, not a place: who is of a higher tier counts as having come that much
earlier. So nobody is passed for ever, equals go in the order they came in, and where nobody waits
everyone is served at once.
"""

from __future__ import annotations

from collections import deque
from enum import StrEnum
from typing import Generic, Protocol, TypeVar

# Micro-credits of one credit: every account is kept in whole ones of these.
MICRO = 1_000_000
# Credits that a VIP has more than.
VIP_ABOVE = 1000
# How much earlier than the next lower tier one counts as having come. Dozens of decode steps, so
# that the better tier does go first on a busy node; and twice this, the most that a later VIP can
# pass a Leech by, is short of every time after which somebody takes a session for stuck.
HEAD_START_SECONDS = 2.0


class Tier(StrEnum):
    """How soon a request is served where others wait too, the first one first."""

    VIP = "vip"
    STANDARD = "standard"
    LEECH = "leech"

    def title(self) -> str:
        """The tier as people read it: VIP, Standard, Leech."""
        return "VIP" if self is Tier.VIP else self.value.capitalize()


def tier_of(balance: int) -> Tier:
    """The tier of an account that holds `balance` micro-credits."""
    if balance > VIP_ABOVE * MICRO:
        return Tier.VIP
    return Tier.STANDARD if balance > 0 else Tier.LEECH


_HEAD_START = {tier: steps * HEAD_START_SECONDS for steps, tier in enumerate(reversed(tuple(Tier)))}


def due(tier: Tier, queued_at: float) -> float:
    """When it is the turn of what was queued then, in seconds of the same clock: lowest first."""
    return queued_at - _HEAD_START[tier]


class Waiting(Protocol):
    """What can stand in a `Line`. It defines no `==`: it is found again by identity."""

    @property
    def tier(self) -> Tier:
        """Whose work it is."""

    @property
    def queued_at(self) -> float:
        """When it came, in seconds of one clock that does not go back."""


W = TypeVar("W", bound=Waiting)


class Line(Generic[W]):
    """What waits, taken as it is due. It has no end of its own: who puts in bounds it.

    One thread may `take` while another one puts in and removes: every change is one step of a
    deque, and no lock is held.
    """

    def __init__(self) -> None:
        # The best tier first, which is taken first of those that are due at the same moment.
        self._of: dict[Tier, deque[W]] = {tier: deque() for tier in Tier}

    def __len__(self) -> int:
        return sum(map(len, self._of.values()))

    def put(self, one: W) -> None:
        """Let one more wait, who came no earlier than those of its tier that wait already."""
        self._of[one.tier].append(one)

    def remove(self, one: W) -> bool:
        """Take one out, wherever it stands: False if it does not wait here any more."""
        try:
            self._of[one.tier].remove(one)
        except ValueError:
            return False
        return True

    def take(self) -> W | None:
        """The one that is due first, which no longer waits; None if nobody does."""
        while (first := self._first()) is not None:
            try:
                return first.popleft()
            except IndexError:
                continue  # the last of them was removed a moment ago
        return None

    def _first(self) -> deque[W] | None:
        """The tier whose head is due first."""
        first, at = None, float("inf")
        for tier, line in self._of.items():
            try:
                head = due(tier, line[0].queued_at)
            except IndexError:
                continue
            if head < at:
                first, at = line, head
        return first
