"""How often somebody may: a token bucket for each source, and a bounded number of them."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

# Buckets that are remembered, about 4 MiB. One that refilled is forgotten first, then the one used
# longest ago: who has that many addresses is bounded by their networks, and by all together.
MAX_BUCKETS = 16_384

S = TypeVar("S", bound=Hashable)
"""A source, as it is told apart from others."""


@dataclass(frozen=True, slots=True)
class Rate:
    """So many a second on average, and `burst` at once after a pause."""

    per_second: float
    burst: int


@dataclass(frozen=True, slots=True)
class Bucket:
    """What is left of a rate, and when that was."""

    tokens: float
    at: float


def refill(bucket: Bucket, rate: Rate, now: float) -> Bucket:
    """The bucket as it is `now`, in seconds of any clock that does not go back."""
    gained = max(0.0, now - bucket.at) * rate.per_second
    return Bucket(min(float(rate.burst), bucket.tokens + gained), now)


class Buckets(Generic[S]):
    """One bucket a source, full until it is used; at most `most` are remembered."""

    def __init__(self, rate: Rate, most: int = MAX_BUCKETS) -> None:
        self._rate = rate
        self._most = most
        # Used longest ago first.
        self._buckets: dict[S, Bucket] = {}

    def __len__(self) -> int:
        return len(self._buckets)

    def left(self, source: S, now: float) -> float:
        """How many more may pass now."""
        return self._filled(source, now).tokens

    def take(self, source: S, now: float) -> bool:
        """Whether one more may pass, which then counts."""
        bucket = self._filled(source, now)
        passes = bucket.tokens >= 1.0
        self._buckets.pop(source, None)
        self._buckets[source] = Bucket(bucket.tokens - passes, now)
        self._forget(now)
        return passes

    def _filled(self, source: S, now: float) -> Bucket:
        known = self._buckets.get(source)
        full = Bucket(float(self._rate.burst), now)
        return full if known is None else refill(known, self._rate, now)

    def _forget(self, now: float) -> None:
        while self._buckets:
            source, bucket = next(iter(self._buckets.items()))
            full = refill(bucket, self._rate, now).tokens >= self._rate.burst
            if not full and len(self._buckets) <= self._most:
                return
            del self._buckets[source]
