"""A sketch of a worker's output: the largest values of one row in 32, for when the rows are gone.

    a row       u16 stretch | i16 exponent | 64 x (u16 channel, f16 value)      260 bytes

Little endian. The stretch is the position over STEP, so that contexts of two million positions
have one; channels rise; a channel's value is what stands there times 2**exponent, and the largest
of a row is between a half and one: no dtype's range is too wide for it. A model of less than 64
channels has all of them in it. Every stretch has its row at the same place, and the first of a
proof are kept up to MAX_SKETCH, so which rows a sketch holds follows from its positions alone.

A channel that is not named must be smaller than those that are: what the reference has above the
smallest of them counts as error. So a worker gains nothing by naming the channels that it knows.
"""

from __future__ import annotations

import torch
from torch import Tensor

from tessella.core.audits import Measured
from tessella.core.proofs import MAX_SKETCH
from tessella.engine.recompute import LEAST_NORM, finite, gains_of, measured

# Positions of a stretch, and which of them has its row in the sketch: not the first few, which
# start alike whatever is asked, and soon enough that a short question has one.
STEP = 32
PLACE = 15
# Channels of a row: a few hold most of the norm.
CHANNELS = 64

_ENTRY_BYTES = 4
_HEAD_BYTES = 4


def row_bytes(hidden: int) -> int:
    """Bytes of one row in a sketch."""
    return _HEAD_BYTES + _ENTRY_BYTES * min(CHANNELS, hidden)


def sketched_positions(start: int, stop: int, hidden: int) -> range:
    """The positions of `[start, stop)` that a proof's sketch holds, MAX_SKETCH counted."""
    first = start + (PLACE - start) % STEP
    return range(first, stop, STEP)[: MAX_SKETCH // row_bytes(hidden)]


def sketch(rows: Tensor, start: int) -> bytes:
    """The sketched ones among rows `[n, hidden]` that begin at position `start`; any float dtype.

    Sketches of rows that follow one another are put together by adding their bytes.
    """
    first = (PLACE - start) % STEP
    if first >= len(rows):
        return b""
    return _packed(rows[first::STEP], (start + first) // STEP)


class Sketcher:
    """The sketch of one session's work while it runs, from the first position that is computed."""

    def __init__(self, start: int, hidden: int) -> None:
        self._start, self._row_bytes = start, row_bytes(hidden)
        self._most = MAX_SKETCH // self._row_bytes
        self._held = bytearray()

    def add(self, rows: Tensor, position: int) -> None:
        """Rows `[n, hidden]` at a position and after it; what was there before is forgotten.

        All rows before them have been added, from `start` on: a session leaves no gaps.
        """
        if self._held:
            self.truncate(position)
        if len(self._held) < self._most * self._row_bytes:
            self._held += sketch(rows, position)
            del self._held[self._most * self._row_bytes :]

    def truncate(self, stop: int) -> None:
        """Forget every position from this one on."""
        kept = len(range(self._start + (PLACE - self._start) % STEP, stop, STEP))
        del self._held[kept * self._row_bytes :]

    def taken(self) -> bytes:
        """The sketch so far."""
        return bytes(self._held)


def compare(held: bytes, reference: Tensor, start: int) -> Measured | None:
    """A sketch beside the recomputed rows `[n, hidden]` of positions from `start` on.

    None if no sketch has a row of these positions, as in sessions of less than PLACE + 1.

    The figures are those of `recompute.measure` over the rows that the sketch holds; the error of
    an honest row is never above that of the whole row by more than SKETCH_ROUNDING. No tokens for
    bytes that are no sketch of these positions: too few or many of them, or channels that do not
    rise. Raises NotFinite for reference rows that hold NaN or Inf.
    """
    hidden = reference.shape[1]
    wanted = sketched_positions(start, start + len(reference), hidden)
    if not wanted:
        return None
    unpacked = _unpacked(held, wanted, hidden)
    if unpacked is None:
        return Measured(0, torch.inf, torch.inf, torch.inf, finite=False)
    at = torch.tensor(wanted) - start
    rows = reference[at.to(reference.device)].cpu().double()
    return _compared(*unpacked, finite(rows))


@torch.inference_mode()
def _packed(rows: Tensor, stretch: int) -> bytes:
    """Rows of stretches that follow one another."""
    rows = rows.to("cpu", torch.float64)
    channels = rows.abs().topk(min(CHANNELS, rows.shape[1]), sorted=False).indices.sort().values
    values = rows.gather(1, channels)
    exponents = values.abs().amax(dim=1, keepdim=True).frexp().exponent
    halves = (values * torch.exp2(-exponents.double())).half().view(torch.int16)
    entries = torch.stack((channels.to(torch.int16), halves), dim=-1).flatten(1)
    stretches = torch.arange(stretch, stretch + len(rows))[:, None]
    heads = torch.cat((stretches, exponents), dim=1).to(torch.int16)
    packed: bytes = torch.cat((heads, entries), dim=1).numpy().tobytes()
    return packed


def _unpacked(held: bytes, wanted: range, hidden: int) -> tuple[Tensor, Tensor] | None:
    """Channels and values, `[rows, 64]`; None for what is no sketch of these positions."""
    if len(held) != len(wanted) * row_bytes(hidden):
        return None
    # torch wants memory it could write to, so the bytes are copied once.
    words = torch.frombuffer(bytearray(held), dtype=torch.int16).view(len(wanted), -1)
    stretches = words[:, 0].to(torch.int32) & 0xFFFF
    channels = words[:, 2::2].to(torch.int64) & 0xFFFF
    right = (
        stretches.tolist() == [position // STEP & 0xFFFF for position in wanted]
        and bool((channels.diff(dim=1) > 0).all())
        and int(channels.max()) < hidden
    )
    if not right:
        return None
    values = words[:, 3::2].contiguous().view(torch.float16).double()
    return channels, values * torch.exp2(words[:, 1:2].double())


@torch.inference_mode()
def _compared(channels: Tensor, values: Tensor, reference: Tensor) -> Measured:
    """`channels`, `values` `[rows, 64]` and `reference` `[rows, hidden]`, in f64."""
    norms = reference.norm(dim=-1)
    floor = norms.clamp(min=LEAST_NORM)
    there = reference.gather(1, channels)
    smallest = values.abs().amin(dim=1, keepdim=True)
    unnamed = reference.abs().scatter(1, channels, 0.0)
    above = (unnamed - smallest).clamp(min=0.0)
    errors = ((values - there).norm(dim=-1).square() + above.norm(dim=-1).square()).sqrt() / floor
    return measured(errors, gains_of(values, there), norms)
