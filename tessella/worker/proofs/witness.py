"""What passes through one stage for one ticket: digests of the rows, who vouches for them, and a
sketch of the output.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from tessella.core.commitments import Rows
from tessella.core.errors import BadSignature, BadTensor, OutOfTurn
from tessella.core.identity import Identity
from tessella.core.ids import PeerId
from tessella.core.layers import LayerRange
from tessella.core.messages import Commit
from tessella.core.shapes import DType
from tessella.core.vouchers import Sent, check_voucher, crossing_at, vouch
from tessella.engine.sketch import Sketcher

if TYPE_CHECKING:
    import torch


class Kept(Protocol):
    """Where rows are kept for a while, for whoever is ordered to look at them."""

    def put(self, position: int, data: bytes, count: int) -> None:
        """Rows from a position on; what was there and after it is forgotten. Never raises."""

    def go_on_from(self, before: Kept) -> None:
        """Take over the rows of the session that this one goes on with. Never raises."""


NOBODY = PeerId("")


@dataclass(frozen=True, slots=True)
class Ticketing:
    """The ticket of one session, and this node's part in it."""

    ticket: bytes
    signature: bytes
    request_id: bytes
    layers: LayerRange
    dtype: DType
    """In which hidden states travel."""
    epoch: int = 0
    """Of the session."""
    sender: PeerId = NOBODY
    """Who sends the rows that come; empty at the entry."""
    is_paid: bool = True
    """Whether this node is paid for it, or only vouches for its rows to who is."""


@dataclass(frozen=True, slots=True)
class Came:
    """Whose the rows are that came."""

    epoch: int
    """Of the session, with the last of them."""
    sender: PeerId
    """Empty at the entry."""
    voucher: bytes
    """The sender's, for all of them; empty at the entry."""


@dataclass(frozen=True, slots=True)
class Bill:
    """One stage's work for one ticket, before it is numbered and signed."""

    ticketing: Ticketing
    start: int
    """The first position that was computed for this ticket."""
    inputs: Commit
    came: Came
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
        identity: Identity | None = None,
        kept_outputs: Kept | None = None,
        kept_ids: Kept | None = None,
        abandoned: Callable[[Bill], None] = lambda _: None,
    ) -> None:
        """`identity` signs for what leaves; `kept_ids` is for the entry, whose inputs are ids.

        `abandoned` is called once with what nobody billed when the session ended.
        """
        self.ticketing = ticketing
        self._identity = identity
        self.is_billed = False
        """Whether there is a proof of it already: another would be refused."""
        self.voucher = b""
        """Ours for all rows that left; empty where we sign none."""
        self._inputs, self._outputs = Rows(), Rows()
        self._came = Came(ticketing.epoch, ticketing.sender, b"")
        self._into, self._out_of = (
            crossing_at(ticketing.ticket, ticketing.epoch, layer)
            for layer in (ticketing.layers.start, ticketing.layers.stop)
        )
        self._is_begun = self._is_ended = False
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
        return self.ticketing.is_paid and not self.is_billed and self._start is not None

    def owes_for(self, request_id: bytes) -> bool:
        """Whether it may still make a proof of a request."""
        is_over = self._is_ended or self.is_billed or not self.ticketing.is_paid
        return not is_over and self.ticketing.request_id == request_id

    def saw(
        self,
        position: int,
        count: int,
        taken: bytes,
        given: bytes,
        output: torch.Tensor,
        *,
        voucher: bytes = b"",
    ) -> None:
        """A step is done: `count` rows from a position on, as bytes on both sides.

        `taken` is token ids as u32 at the entry; `output` is `[count, hidden]`, the rows that
        `given` says; `voucher` came with them. What was there and after it is forgotten, as the
        first step of an epoch may say. Raises OutOfTurn for a later one that does, BadTensor where
        the sender does not vouch for all that came, LocalError for a gap: nothing is changed then.
        """
        self.check_turn(position)
        # A first step may take back rows that are owed for; those of a later one are cut again.
        inputs = self._inputs if self._is_begun else self._inputs.copy()
        inputs.put(position, taken, count)
        start = position if self._start is None else min(position, self._start)
        try:
            self._came = self._checked(inputs, start, voucher)
        except BadTensor:
            inputs.cut(position)
            raise
        self._inputs, self._is_begun = inputs, True
        self._outputs.put(position, given, count)
        if self._sketcher is None or start != self._start:
            self._start, self._sketcher = start, Sketcher(start, output.shape[1])
        self._sketcher.add(output, position)
        self.voucher = self._vouched(start)
        if self._kept_outputs is not None:
            self._kept_outputs.put(position, given, count)
        if self._kept_ids is not None:
            self._kept_ids.put(position, taken, count)

    def check_turn(self, position: int) -> None:
        """Raises OutOfTurn for rows that were vouched for in this epoch and are to be taken back:
        the next stage may have billed them."""
        if self._is_begun and position < len(self._inputs):
            raise OutOfTurn(f"rows from {position} on again, of {len(self._inputs)}, in one epoch")

    def _checked(self, inputs: Rows, start: int, voucher: bytes) -> Came:
        of = self.ticketing
        if of.is_paid and of.sender:
            try:
                check_voucher(of.sender, self._into, Sent(start, inputs.commit()), voucher)
            except BadSignature:
                raise BadTensor(f"{of.sender} does not vouch for what it sent") from None
        return Came(of.epoch, of.sender, voucher)

    def _vouched(self, start: int) -> bytes:
        if self._identity is None:
            return b""
        return vouch(self._identity, self._out_of, Sent(start, self._outputs.commit()))

    def go_on_from(self, before: Witness) -> None:
        """Take over the rows of the session that this one goes on with; `before` is left empty.

        Within one ticket its work, and whether that was billed, comes along. That of another
        ticket, not billed yet, is abandoned first.
        """
        if before.ticketing.ticket == self.ticketing.ticket:
            self.is_billed = before.is_billed
            self._start, self._sketcher = before._start, before._sketcher
            self._came = before._came
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
        self._is_ended = True
        if self.owes:
            self._abandoned(self.bill())
            self.is_billed = True

    def bill(self) -> Bill:
        """All that was computed. Only where `owes`."""
        return Bill(
            ticketing=self.ticketing,
            start=self._start or 0,
            inputs=self._inputs.commit(),
            came=self._came,
            outputs=self._outputs.commit(),
            sketch=self._sketcher.taken() if self._sketcher is not None else b"",
        )
