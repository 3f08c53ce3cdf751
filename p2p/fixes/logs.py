"""libp2p's log where it can be asked for, and nowhere else."""

from __future__ import annotations

import logging

from libp2p.network.connection import swarm_connection

LOGGER = "libp2p"


def quieten_libp2p() -> None:
    """Keep what libp2p logs off standard error.

    Its logger neither passes records on nor has a handler, so Python prints each warning itself;
    a peer that hangs up is one. Part of it logs through the root logger, which installs a handler
    there on first use and so turns on printing for the whole program.
    """
    logging.getLogger(LOGGER).addHandler(logging.NullHandler())
    swarm_connection.logging = logging.getLogger(f"{LOGGER}.connection")  # type: ignore[attr-defined, assignment]
