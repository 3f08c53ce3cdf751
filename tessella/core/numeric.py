"""The arithmetic that a node declares, and how far two honest nodes of it may lie apart.

    compute / weights / wire         f32/q4_1/f32, bf16/bf16/bf16, f16/q8_0/bf16

Computing and sending round, and each dtype rounds by its own amount. Loading does not: an auditor
loads the very weights that were declared, so their word says which answer is right, never how much
may be missing from it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import hypot, sqrt

from tessella.core.shapes import DType

# Words of how the matrices of a checkpoint's layers are stored; `mixed` where they differ.
MIXED = "mixed"
WEIGHT_WORDS = ("f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "q4_k", "q6_k", MIXED)
# Of a text that is no class, as much is repeated.
_SHOWN_CHARS = 60
# Room above the worst that calibration saw, which is few texts on few devices. The table's own
# limits of the token are nearer to what they allow than those of the median, and so is this one.
_MEDIAN_MARGIN = 2.0
_TOKEN_MARGIN = 1.5


@dataclass(frozen=True, slots=True)
class NumericClass:
    """What a node computes with, how its weights are stored, and what it sends.

    Raises ValueError for weights by a word that is none of WEIGHT_WORDS.
    """

    compute: DType
    weights: str
    wire: DType

    def __post_init__(self) -> None:
        if self.weights not in WEIGHT_WORDS:
            known = ", ".join(WEIGHT_WORDS)
            raise ValueError(f"no weight format: {self.weights[:_SHOWN_CHARS]!r}; one of {known}")

    def __str__(self) -> str:
        return f"{self.compute.value}/{self.weights}/{self.wire.value}"

    @classmethod
    def parse(cls, text: str) -> NumericClass:
        """`"f32/q4_1/f32"` as a class. Raises ValueError that names the text."""
        try:
            compute, weights, wire = text.split("/", 3)
            return cls(DType(compute), weights, DType(wire))
        except ValueError as exc:
            shown = repr(text[:_SHOWN_CHARS])
            raise ValueError(f"no numeric class COMPUTE/WEIGHTS/WIRE: {shown}") from exc


@dataclass(frozen=True, slots=True)
class Tolerance:
    """What an audit lets pass. All three are relative, so 0.01 is a hundredth."""

    median: float
    """Of the errors of the tokens that are no sinks; for one layer, and it grows by their root."""
    token: float
    """Of the worst token."""
    gain: float
    """Of the median gain, in its distance from 1."""

    def widened(self, factor: float) -> Tolerance:
        """All three, so many times as large."""
        return Tolerance(self.median * factor, self.token * factor, self.gain * factor)

    def median_of(self, layers: int) -> float:
        """The limit of the median over so many layers."""
        return self.median * sqrt(layers)


# At least 1.5 times the worst of 48 honest audits of a trained model, whatever the order of sums,
# the kernel, the threads and the chunks; a hundred times it for f32.
_TABLE = {
    DType.F32: Tolerance(3e-5, 1e-3, 2e-4),
    DType.F16: Tolerance(1.5e-3, 0.10, 2e-3),
    DType.BF16: Tolerance(1.0e-2, 0.25, 6e-3),
}


def tolerances(klass: NumericClass) -> Tolerance:
    """What honest nodes of a class are allowed, against the sums of an auditor in f32.

    One dtype for both covers both of its roundings; two of them add as independent errors do.
    """
    compute, wire = _TABLE[klass.compute], _TABLE[klass.wire]
    if compute == wire:
        return compute
    return Tolerance(
        hypot(compute.median, wire.median),
        hypot(compute.token, wire.token),
        hypot(compute.gain, wire.gain),
    )


def calibrated(table: Tolerance, worst_median: float, worst_token: float, layers: int) -> Tolerance:
    """A tolerance that honest nodes of one model keep, by the worst seen over so many layers.

    Calibration only ever widens what the table says; it leaves the gain.
    """
    return Tolerance(
        max(table.median, _MEDIAN_MARGIN * worst_median / sqrt(layers)),
        max(table.token, _TOKEN_MARGIN * worst_token),
        table.gain,
    )


def weights_word(stored: Iterable[str]) -> str:
    """The word for matrices that are stored so, in the checkpoint's own words and any case.

    `mixed` for several, for none, and for what we have no word for.
    """
    words = {each.lower() for each in stored}
    word = words.pop() if len(words) == 1 else MIXED
    return word if word in WEIGHT_WORDS else MIXED
