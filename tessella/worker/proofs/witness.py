"""What passes through one stage for one ticket: digests of the rows, and a sketch of the output."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from tessella.core.commitments import Rows
from tessella.core.layers import LayerRange
from tessella.core.messages import Commit
from tessella.core.shapes import DType
from tessella.engine.sketch import Sketcher

if TYPE_CHECKING:
    import torch


class Kept(Protocol):
    """Where rows are kept for a while, for whoever is ordered to look at them."""

    def put(self, position: int, data: bytes, count: int) -> None:
        """Rows from a position on; what was there and after it is forgotten. Never raises."""

    def go_on_from(self, before: Kept) -> None:
        """Take over the rows of the session that this one goes on with. Never raises."""


@dataclass(frozen=True, slots=True)
class Ticketing:
    """The ticket of one session, and this node's part in it."""

    ticket: bytes
    signature: bytes
    request_id: bytes
    layers: LayerRange
    dtype: DType
    """In which hidden states travel."""


@dataclass(frozen=True, slots=True)
class Bill:
    """One stage's work for one ticket, before it is numbered and signed."""

    ticketing: Ticketing
    start: int
    """The first position that was computed for this ticket."""
    inputs: Commit
    outputs: Commit
    sketch: bytes

    @property
    def positions(self) -> int:
        """How many were computed."""
        return self.outputs.stop - self.start


class Witness:
    """Sees one session at one stage, from position 0; rows are kept as digests alone.

    `saw` is for the compute thread, all else for the loop while no step runs.
    """

    def __init__(
        self,
        ticketing: Ticketing,
        *,
        kept_outputs: Kept | None = None,
        kept_ids: Kept | None = None,
        abandoned: Callable[[Bill], None] = lambda _: None,
    ) -> None:
        """`kept_ids` is for the entry, whose inputs are token ids.

        `abandoned` is called once with what nobody billed when the session ended.
        """
        self.ticketing = ticketing
        self.is_billed = False
        """Whether there is a proof of it already: another would be refused."""
        self._inputs, self._outputs = Rows(), Rows()
        self._start: int | None = None
        self._sketcher: Sketcher | None = None
        self._kept_outputs, self._kept_ids = kept_outputs, kept_ids
        self._abandoned = abandoned

    @property
    def dtype(self) -> DType:
        """In which the tail's hidden states are committed to."""
        return self.ticketing.dtype

    @property
    def owes(self) -> bool:
        """Whether there is work that no proof was made of."""
        return not self.is_billed and self._start is not None

    def saw(
        self, position: int, count: int, taken: bytes, given: bytes, output: torch.Tensor
    ) -> None:
        """A step is done: `count` rows from a position on, as bytes on both sides.

        `taken` is token ids as u32 at the entry; `output` is `[count, hidden]`, the rows that
        `given` says. What was there and after it is forgotten. Raises LocalError for a gap.
        """
        self._inputs.put(position, taken, count)
        self._outputs.put(position, given, count)
        if self._sketcher is None or self._start is None or position < self._start:
            self._start, self._sketcher = position, Sketcher(position, output.shape[1])
        self._sketcher.add(output, position)
        if self._kept_outputs is not None:
            self._kept_outputs.put(position, given, count)
        if self._kept_ids is not None:
            self._kept_ids.put(position, taken, count)

    def go_on_from(self, before: Witness) -> None:
        """Take over the rows of the session that this one goes on with; `before` is left empty.

        Within one ticket its work, and whether that was billed, comes along. That of another
        ticket, not billed yet, is abandoned first.
        """
        if before.ticketing.request_id == self.ticketing.request_id:
            self.is_billed = before.is_billed
            self._start, self._sketcher = before._start, before._sketcher
            before._start = None
        before.end()
        self._inputs, before._inputs = before._inputs, Rows()
        self._outputs, before._outputs = before._outputs, Rows()
        if self._kept_outputs is not None and before._kept_outputs is not None:
            self._kept_outputs.go_on_from(before._kept_outputs)
        if self._kept_ids is not None and before._kept_ids is not None:
            self._kept_ids.go_on_from(before._kept_ids)

    def end(self) -> None:
        """The session is over here: what is owed for it is abandoned."""
        if self.owes:
            self._abandoned(self.bill())
            self.is_billed = True

    def bill(self) -> Bill:
        """All that was computed. Only where `owes`."""
        return Bill(
            ticketing=self.ticketing,
            start=self._start or 0,
            inputs=self._inputs.commit(),
            outputs=self._outputs.commit(),
            sketch=self._sketcher.taken() if self._sketcher is not None else b"",
        )
