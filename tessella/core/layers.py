"""Ranges of layers, half-open everywhere: `[start, stop)`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class LayerRange:
    """Whole layers `start, start + 1, … stop - 1`. Raises ValueError unless 0 <= start < stop."""

    start: int
    stop: int

    def __post_init__(self) -> None:
        if not 0 <= self.start < self.stop:
            raise ValueError(f"no layer range: [{self.start}, {self.stop})")

    def __len__(self) -> int:
        return self.stop - self.start

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.start, self.stop))

    def __str__(self) -> str:
        return f"{self.start}:{self.stop}"

    def holds(self, other: LayerRange) -> bool:
        """Whether every layer of the other range is one of these."""
        return self.start <= other.start and other.stop <= self.stop

    @classmethod
    def parse(cls, text: str) -> LayerRange:
        """`"0:10"` as a range. Raises ValueError that names the text."""
        start, colon, stop = text.partition(":")
        if not (colon and start.isdecimal() and stop.isdecimal()):
            raise ValueError(f"not a layer range START:STOP: {text!r}")
        return cls(int(start), int(stop))


def holes(held: Iterable[LayerRange], layers: int) -> list[LayerRange]:
    """The stretches of `[0, layers)` that no range holds, in order."""
    found: list[LayerRange] = []
    reached = 0
    for piece in sorted(held):
        if piece.start > reached:
            found.append(LayerRange(reached, min(piece.start, layers)))
        reached = max(reached, piece.stop)
        if reached >= layers:
            return found
    if reached < layers:
        found.append(LayerRange(reached, layers))
    return found
