"""What a node that lies says of its rows; what it computes is what the real one would.

    inputs   it commits to other rows than came      outputs  it commits to other rows than it sent
    hidden   the same, and shows auditors nothing    sent     it sends other rows than it commits to

Auditors of `outputs` and of `sent` are shown the rows that it computed.
"""

from __future__ import annotations

from dataclasses import replace
from weakref import WeakKeyDictionary

from torch import Tensor

from tessella.core.commitments import Rows
from tessella.core.messages import Commit
from tessella.core.tensors import WireTensor
from tessella.core.vouchers import Sent, crossing_at, vouch
from tessella.worker.audits.ring import Ring
from tessella.worker.downstream import Downstream
from tessella.worker.proofs.witness import Bill, Witness
from tessella.worker.stage import Outcome


def inputs() -> None:
    """Commit to other inputs than came. It is for no entry: that one keeps its inputs, too."""
    honest = Witness.bill

    def bill(self: Witness) -> Bill:
        made = honest(self)
        return replace(made, inputs=_other(made.inputs))

    Witness.bill = bill  # type: ignore[method-assign]


def outputs() -> None:
    """Commit to other outputs than were sent, and are kept."""
    honest = Witness.bill

    def bill(self: Witness) -> Bill:
        made = honest(self)
        return replace(made, outputs=_other(made.outputs))

    Witness.bill = bill  # type: ignore[method-assign]


def hidden() -> None:
    """Commit to other outputs than were sent, and have kept none when somebody asks."""
    outputs()
    Ring.rows = lambda *_: None  # type: ignore[method-assign]


def sent() -> None:
    """Send other outputs than are committed to and kept, so that the next stage is in the wrong.

    It has to vouch for those that it sends: else nobody takes them.
    """
    saw, send = Witness.saw, Downstream.send
    rows: WeakKeyDictionary[Witness, Rows] = WeakKeyDictionary()

    def see(
        self: Witness,
        position: int,
        count: int,
        taken: bytes,
        given: bytes,
        output: Tensor,
        *,
        voucher: bytes = b"",
    ) -> None:
        saw(self, position, count, taken, given, output, voucher=voucher)
        theirs, of = rows.setdefault(self, Rows()), self.ticketing
        theirs.put(position, _noisy(given), count)
        if self._identity is not None:
            crossing = crossing_at(of.ticket, of.epoch, of.layers.stop)
            other = Sent(self._start or 0, theirs.commit())
            self.voucher = vouch(self._identity, crossing, other)

    async def send_other(
        self: Downstream, outcome: Outcome, position: int, upto: int, sample: bool
    ) -> None:
        assert isinstance(outcome, WireTensor)
        await send(self, replace(outcome, data=_noisy(outcome.data)), position, upto, sample)

    Witness.saw = see  # type: ignore[method-assign]
    Downstream.send = send_other  # type: ignore[method-assign]


def _other(commit: Commit) -> Commit:
    """As long, with nothing in common."""
    digest, marks, last = map(_flipped, (commit.digest, commit.marks, commit.last))
    return Commit(commit.stop, digest, marks, last)


def _flipped(data: bytes) -> bytes:
    return bytes(each ^ 1 for each in data)


def _noisy(rows: bytes) -> bytes:
    """The same f32 but for the last bit of each: what a layer makes of them is no other answer."""
    noisy = bytearray(rows)
    noisy[::4] = _flipped(rows[::4])
    return bytes(noisy)
