"""What a node stands on: who it is, its network, its arithmetic and its clock."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from p2p.peers import Host
from tessella.core.identity import Identity
from tessella.worker.stage import Compute


@dataclass(frozen=True, slots=True)
class Ground:
    """All of it is the caller's, to close afterwards."""

    identity: Identity
    host: Host
    compute: Compute
    clock: Callable[[], float] = time.time
    """Seconds since 1970, for what is signed."""
