"""What a node that lies puts in its proofs; what it computes and sends is what the real one would.

    inputs   it commits to other rows than came      outputs  it commits to other rows than it sent
    hidden   the same, and shows auditors nothing

Auditors of `outputs` are shown the rows that were sent.
"""

from __future__ import annotations

from torch import Tensor

from tessella.worker.audits.ring import Ring
from tessella.worker.proofs.witness import Witness


def inputs() -> None:
    """Commit to other inputs than came. It is for no entry: that one keeps its inputs, too."""
    honest = Witness.saw

    def saw(
        self: Witness, position: int, count: int, taken: bytes, given: bytes, output: Tensor
    ) -> None:
        honest(self, position, count, _other(taken), given, output)

    Witness.saw = saw  # type: ignore[method-assign]


def outputs() -> None:
    """Commit to other outputs than were sent, and are kept."""
    honest = Witness.saw

    def saw(
        self: Witness, position: int, count: int, taken: bytes, given: bytes, output: Tensor
    ) -> None:
        honest(self, position, count, taken, given, output)
        self._outputs.put(position, _other(given), count)

    Witness.saw = saw  # type: ignore[method-assign]


def hidden() -> None:
    """Commit to other outputs than were sent, and have kept none when somebody asks."""
    outputs()
    Ring.rows = lambda *_: None  # type: ignore[method-assign]


def _other(rows: bytes) -> bytes:
    """As many bytes, none of which is the same."""
    return bytes(each ^ 1 for each in rows)
