"""What an operator may set. Every field has its unit and its rule, checked once, here."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tessella.core.addresses import PeerAddress, check_addr
from tessella.core.errors import BadConfig
from tessella.core.peers import MAX_ROWS
from tessella.core.plan import MIN_VRAM_MB, USABLE_VRAM_PCT

DEFAULT_PORT = 4001
DEFAULT_DATA = Path("~/.musivum")
KEY_NAME = "musivum.key"
PEERS_NAME = "peers.json"

# Shorter beats are a load test; longer ones leave a dead node listed for a quarter of an hour.
MIN_HEARTBEAT, MAX_HEARTBEAT = 0.1, 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MusivumConfig:
    """The settings of one musivum. Raises BadConfig that names the field."""

    listen: tuple[str, ...] = (f"/ip4/0.0.0.0/tcp/{DEFAULT_PORT}",)
    """Multiaddrs to listen on; port 0 takes a free one. At least one."""

    data: Path = DEFAULT_DATA
    """Directory of what outlives a restart; `~` is the home directory. Made if missing."""

    key: Path | None = None
    """The identity file, 32 bytes, mode 0600. None is `musivum.key` in `data`."""

    bootstrap_only: bool = False
    """Whether it only is where peers of the swarm find each other: no tracker, no rows."""

    bootstrap: tuple[PeerAddress, ...] = ()
    """Other bootstrap peers of the same swarm."""

    snapshot: Path | None = None
    """Where the peers of the swarm are kept between runs; None keeps none."""

    min_vram_mb: int = MIN_VRAM_MB
    """No node may claim less, in MB. 0 lets tiny models be split; at least 0."""

    usable_vram_pct: int = USABLE_VRAM_PCT
    """The part of a claim that layers may fill, in percent. 1 to 100."""

    heartbeat_seconds: float = 10.0
    """How often a node is told to announce itself, in seconds. 0.1 to 300."""

    missed_beats: int = 3
    """Heartbeats in a row that a node may miss before it counts as offline. At least 1."""

    load_seconds: float = 900.0
    """How long a node may load its layers before they are given away, in seconds. Above 0."""

    forget_seconds: float = 600.0
    """How long an offline node stays listed, in seconds. At least 0."""

    max_nodes: int = MAX_ROWS
    """Nodes kept at a time, offline ones included. 1 to 16384, which is what a peer list holds."""

    max_connections: int = 12_000
    """Connections open at a time, both ways. At least 1."""

    def __post_init__(self) -> None:
        if not self.listen:
            raise BadConfig("listen: no address to listen on")
        for addr in self.listen:
            check_addr(addr)
        _within("min_vram_mb", self.min_vram_mb, 0, None)
        _within("usable_vram_pct", self.usable_vram_pct, 1, 100)
        _within("heartbeat_seconds", self.heartbeat_seconds, MIN_HEARTBEAT, MAX_HEARTBEAT)
        _within("missed_beats", self.missed_beats, 1, None)
        if not self.load_seconds > 0:
            raise BadConfig(f"load_seconds = {self.load_seconds}: has to be above 0")
        _within("forget_seconds", self.forget_seconds, 0, None)
        _within("max_connections", self.max_connections, 1, None)
        _within("max_nodes", self.max_nodes, 1, MAX_ROWS)

    @property
    def key_path(self) -> Path:
        """Where the identity is."""
        return (self.key or self.data / KEY_NAME).expanduser()

    @property
    def offline_after(self) -> float:
        """Seconds of silence after which a node is offline."""
        return self.heartbeat_seconds * self.missed_beats


def _within(name: str, value: float, least: float, most: float | None) -> None:
    # Written so that NaN, which is on neither side of anything, is refused as well.
    if not value >= least:
        raise BadConfig(f"{name} = {value}: has to be at least {least}")
    if most is not None and value > most:
        raise BadConfig(f"{name} = {value}: has to be at most {most}")
