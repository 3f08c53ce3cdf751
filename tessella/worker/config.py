"""What the operator of a node decides, checked once, passed down whole."""

from __future__ import annotations

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

    musivum: PeerAddress
    """The orchestrator this node registers with."""
    model: ModelId
    """The name the model is served under."""
    weights: Path
    """A GGUF file or a HuggingFace directory."""
    claim_mb: int
    """Memory the layer range is sized to, in MB. At least 1; musivum has a floor of its own."""
    listen: tuple[str, ...] = ("/ip4/0.0.0.0/tcp/9080",)
    """Multiaddrs to listen on; port 0 takes a free one."""
    layers: LayerRange | None = None
    """A range to insist on; None takes what musivum assigns."""
    device: str | None = None
    """`cuda`, `metal` or `cpu`; None takes the best there is."""
    dtype: DType | None = None
    """Serving element type; None takes the device's default."""
    context: int = 2048
    """Positions one session may hold, at most the model's. At least 1."""
    slots: int = 4
    """Sessions of a full context that the KV budget is sized for. At least 1."""
    max_sessions: int = 64
    """Live sessions at most, and streams one peer may hold. At least 1."""
    prefill_chunk: int = 128
    """Positions in one prefill chunk: smaller overlaps stages better, larger multiplies better."""
    hop_timeout: float = 10.0
    """Seconds without progress after which a stage counts as silent. Above 0."""

    def __post_init__(self) -> None:
        for name in ("claim_mb", "context", "slots", "max_sessions", "prefill_chunk"):
            if getattr(self, name) < 1:
                raise BadConfig(f"{name} must be at least 1, not {getattr(self, name)}")
        if not self.hop_timeout > 0:
            raise BadConfig(f"hop_timeout must be above 0, not {self.hop_timeout}")
