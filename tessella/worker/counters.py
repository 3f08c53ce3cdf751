"""What happened at this node since it started, counted where it happens."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from statistics import median

from tessella.core.errors import LocalError, TessellaError
from tessella.core.ids import PeerId
from tessella.core.messages import Hidden

# Enough decode steps for a steady median, few enough that a change of load shows in seconds.
STEPS_KEPT = 256
# Peers that can fail us are unbounded over a life; the table is not.
MAX_COUNTED_PEERS = 4096
# An error is shown in one line of a status document.
MAX_ERROR_CHARS = 200


@dataclass(slots=True)
class Counters:
    """Counts by peer. `hidden_*` count hidden states: frames and bytes of tensor."""

    hidden_frames_sent: Counter[PeerId] = field(default_factory=Counter)
    hidden_bytes_sent: Counter[PeerId] = field(default_factory=Counter)
    hidden_frames_received: Counter[PeerId] = field(default_factory=Counter)
    hidden_bytes_received: Counter[PeerId] = field(default_factory=Counter)
    peer_failures: Counter[PeerId] = field(default_factory=Counter)
    sessions_opened: int = 0
    positions_computed: int = 0
    """Positions that went through the layers here, of prompts and of answers."""
    compute_seconds: float = 0.0
    """What that took on the compute thread."""
    tokens_sampled: int = 0
    answers: int = 0
    mesh_errors: int = 0
    """How often something kept the mesh from hearing of this node."""
    last_mesh_error: str = ""
    _steps: list[float] = field(default_factory=list)

    def sent(self, peer: PeerId, hidden: Hidden) -> None:
        """A hidden state went to a peer."""
        _count(self.hidden_frames_sent, peer, 1)
        _count(self.hidden_bytes_sent, peer, len(hidden.tensor.data))

    def received(self, peer: PeerId, hidden: Hidden) -> None:
        """A hidden state came from a peer."""
        _count(self.hidden_frames_received, peer, 1)
        _count(self.hidden_bytes_received, peer, len(hidden.tensor.data))

    def failed(self, peer: PeerId) -> None:
        """A peer failed us."""
        _count(self.peer_failures, peer, 1)

    def computed(self, positions: int, seconds: float) -> None:
        """One step over so many positions took this long on the compute thread."""
        self.positions_computed += positions
        self.compute_seconds += seconds
        if positions == 1:
            self._steps.append(seconds)
            del self._steps[:-STEPS_KEPT]

    def forget_steps(self) -> None:
        """What was measured does not hold for the shard that comes next."""
        self._steps.clear()

    def mesh_failed(self, error: Exception) -> None:
        """The mesh did not hear of this node, for this reason."""
        said = error if isinstance(error, TessellaError) else LocalError(repr(error))
        self.mesh_errors += 1
        self.last_mesh_error = f"{said.code}: {said.told()}"[:MAX_ERROR_CHARS]

    @property
    def step_ms(self) -> float:
        """Median milliseconds of the last decode steps; 0 before the first."""
        return median(self._steps) * 1000 if self._steps else 0.0


def _count(counter: Counter[PeerId], peer: PeerId, amount: int) -> None:
    if peer in counter or len(counter) < MAX_COUNTED_PEERS:
        counter[peer] += amount
