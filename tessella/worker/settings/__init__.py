"""What the operator of a node may set, and the configuration that comes of it.

tables    the keys, with their defaults and what they mean
kinds     what their values may be
reading   flag > environment > file > default, and what is missing
composing from settings to a `WorkerConfig`
pages     the file with every key, and the page that explains it
"""

from __future__ import annotations

from tessella.worker.settings.composing import find_weights, worker_config
from tessella.worker.settings.reading import (
    KEYS,
    NodeSettings,
    missing,
    read_node_settings,
    usual_file,
)

__all__ = [
    "KEYS",
    "NodeSettings",
    "find_weights",
    "missing",
    "read_node_settings",
    "usual_file",
    "worker_config",
]
