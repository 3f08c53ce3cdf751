"""The peers a node knew, on disk, so that it finds the swarm again without any bootstrap.

The file holds `{"peers": ["/ip4/…/tcp/…/p2p/…", …]}`. It is only ever replaced whole. One that
cannot be read costs a line in the log and nothing else.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from tessella.core.addresses import PeerAddress, merge, parse_peer
from tessella.core.errors import BadAddress
from tessella.core.frames import MIB

logger = logging.getLogger(__name__)

# 200 peers of 16 addresses of 100 letters are a third of it.
MAX_BYTES = MIB
MAX_LINES = 4096


def load_peers(path: Path) -> tuple[PeerAddress, ...]:
    """The peers in a snapshot; none if there is no file, or none that can be read."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
        return _peers(data)
    except FileNotFoundError:
        return ()
    except (OSError, ValueError, RecursionError, BadAddress) as exc:
        logger.warning("peer snapshot ignored: %s: %s", path, exc)
        return ()


def _peers(data: bytes) -> tuple[PeerAddress, ...]:
    if len(data) > MAX_BYTES:
        raise ValueError(f"over {MAX_BYTES} bytes")
    document = json.loads(data)
    lines = document.get("peers") if isinstance(document, dict) else None
    if not isinstance(lines, list) or len(lines) > MAX_LINES:
        raise ValueError(f"no list of at most {MAX_LINES} peers")
    if not all(isinstance(line, str) for line in lines):
        raise ValueError("a peer that is not text")
    return merge(parse_peer(line) for line in lines)


def save_peers(path: Path, peers: Iterable[PeerAddress]) -> None:
    """Replace the snapshot. A disk that refuses costs a line in the log."""
    lines = [line for peer in peers for line in peer.full()][:MAX_LINES]
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh.write_text(json.dumps({"peers": lines}, indent=0))
        fresh.replace(path)
    except OSError as exc:
        logger.warning("peer snapshot not written: %s: %s", path, exc)
        with suppress(OSError):
            fresh.unlink(missing_ok=True)
