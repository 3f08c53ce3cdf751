"""A worker that audits often, and may cheat.

python -m tests.mesh.audits.worker_program CHEAT [ARGUMENTS OF tessella-worker]

CHEAT is `honest`, one of `cheats` or of `lies`, or `copy:` and the address of whom it copies. Waits
are shorter than a mesh needs, so that a test is over sooner, and all nodes say that they are
equally fast; all else is the worker as it is.
"""

from __future__ import annotations

import sys

from tessella.cli.worker import run
from tessella.worker.audits import room
from tessella.worker.counters import Counters
from tessella.worker.proofs import upload
from tests.mesh.audits import cheats, lies
from tests.mesh.audits.copying import copy

HONEST, COPY = "honest", "copy"
AUDIT_SECONDS = 0.5
# Toys on one machine are equally fast, whatever each has measured so far: so all are drawn alike.
STEP_MS = 1.0
CHEATS = {
    HONEST: lambda: None,
    "echo": cheats.echo,
    "scale": cheats.scale,
    "skip": cheats.skip,
    "stale": cheats.stale,
    "lower": cheats.lower,
    "inputs": lies.inputs,
    "outputs": lies.outputs,
    "hidden": lies.hidden,
    "sent": lies.sent,
}


def shorten_waits() -> None:
    """Proofs are brought at once, and audits asked for twice a second."""
    room.BEAT_SECONDS = AUDIT_SECONDS
    upload.GATHER_SECONDS, upload.FIRST_ASK, upload.LONGEST_ASK = 0.05, 0.2, 0.5


def be_as_fast_as_others() -> None:
    """Tell musivum the same time for a step as every node of the mesh."""
    Counters.step_ms = STEP_MS  # type: ignore[assignment, method-assign]


def main() -> None:
    """Be such a node."""
    cheat, _, whom = sys.argv[1].partition(":")
    shorten_waits()
    be_as_fast_as_others()
    if cheat == COPY:
        copy(whom)
    else:
        CHEATS[cheat]()
    run(sys.argv[2:])


if __name__ == "__main__":
    main()
