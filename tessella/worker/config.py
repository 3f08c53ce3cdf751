"""What the operator of a node decides, checked once, passed down whole."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from tessella.core.addresses import PeerAddress
from tessella.core.errors import BadConfig
from tessella.core.ids import ModelId
from tessella.core.layers import LayerRange
from tessella.core.shapes import DType


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerConfig:
    """One node. Raises BadConfig that names the key and its rule."""

    musivum: tuple[PeerAddress, ...] = ()
    """The orchestrators of its mesh: one it registers with, and others that may take its place.

    None for a node of the swarm alone.
    """
    kademlia: bool = False
    """Whether it is found through the swarm, beside or instead of musivum."""
    bootstrap: tuple[PeerAddress, ...] = ()
    """Peers through which it finds the swarm. Its own address among them is left out."""
    lan: bool = True
    """Whether a node of the swarm looks for others by multicast on its local network."""
    snapshot: Path | None = None
    """Where the peers of the swarm are kept between runs."""
    model: ModelId
    """The name the model is served under."""
    weights: Path
    """A GGUF file or a HuggingFace directory."""
    claim_mb: int
    """Memory the layer range is sized to, in MB. At least 1; musivum has a floor of its own."""
    listen: tuple[str, ...] = ("/ip4/0.0.0.0/tcp/9080",)
    """Multiaddrs to listen on; port 0 takes a free one."""
    announce: tuple[str, ...] = ()
    """Multiaddrs that others are told first: what a NAT or a proxy maps to the listeners."""
    allow_private: bool = False
    """Whether private and loopback addresses are told, and dialled where the swarm names them."""
    layers: LayerRange | None = None
    """A range to insist on for good; None takes what musivum assigns. The swarm assigns none."""
    device: str | None = None
    """`cuda`, `metal` or `cpu`; None takes the best there is."""
    dtype: DType | None = None
    """Serving element type; None takes the device's default."""
    context: int = 2048
    """Positions one session may hold, at most the model's. At least 1."""
    slots: int = 4
    """Sessions of a full context that the KV budget is sized for. At least 1."""
    max_sessions: int = 64
    """Live sessions at most; twice as many streams, of hops and of tokens each. At least 1."""
    prefill_chunk: int = 128
    """Positions in one prefill chunk: smaller overlaps stages better, larger multiplies better."""
    hop_timeout: float = 10.0
    """Seconds without progress after which a stage counts as silent. Above 0."""
    drain_seconds: float = 30.0
    """Seconds that live sessions have to finish when the node moves to other layers. At least 0."""

    def __post_init__(self) -> None:
        for name in ("claim_mb", "context", "slots", "max_sessions", "prefill_chunk"):
            if getattr(self, name) < 1:
                raise BadConfig(f"{name} must be at least 1, not {getattr(self, name)}")
        if not self.musivum and not self.kademlia:
            raise BadConfig("a node needs a mesh: musivum, or kademlia")
        if not self.musivum and self.layers is None:
            raise BadConfig("layers: nobody assigns a range where there is no musivum")
        if self.bootstrap and not self.kademlia:
            raise BadConfig("bootstrap: peers of the swarm, and kademlia is off")
        if not self.hop_timeout > 0:
            raise BadConfig(f"hop_timeout must be above 0, not {self.hop_timeout}")
        if not 0 <= self.drain_seconds < math.inf:
            raise BadConfig(f"drain_seconds must be at least 0, not {self.drain_seconds}")
