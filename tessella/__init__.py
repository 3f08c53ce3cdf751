"""Tessella: many machines run one language model, each holding a range of whole layers.

    cli      the commands                          musivum.cli beside them
    worker   the node                              musivum, the orchestrator
    engine   torch                                 p2p, libp2p
    core     values and rules; no socket, disk, clock, thread or GPU

Imports only ever go down this list, and siblings on a floor do not know each other:
`lint-imports` holds it.
"""

__version__ = "0.1.0"
