"""Where this node is in its life, and what came of the load: the facts that status tells."""

from __future__ import annotations

from dataclasses import dataclass

from tessella.core.errors import ModelUnavailable
from tessella.core.layers import LayerRange
from tessella.core.peers import NodeStatus
from tessella.worker.entry import Entry


@dataclass(slots=True)
class NodeState:
    """Written by `worker.node` alone."""

    started_at: float
    """Seconds on trio's clock."""
    status: NodeStatus = NodeStatus.PENDING_LOAD
    assigned: LayerRange | None = None
    loaded_bytes: int = 0
    total_bytes: int = 0
    entry: Entry | None = None
    """What answers requests; None until the shard is loaded."""

    def serving(self) -> Entry:
        """What answers requests. Raises ModelUnavailable with the progress of the load."""
        if self.entry is None:
            raise ModelUnavailable(
                f"this node is still loading: {self.loaded_bytes} of {self.total_bytes} bytes"
            )
        return self.entry
