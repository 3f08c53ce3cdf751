"""What the operator of a node decides, checked once, passed down whole."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from tessella.core.addresses import Cidr, PeerAddress
from tessella.core.errors import BadConfig
from tessella.core.ids import ModelId
from tessella.core.layers import LayerRange
from tessella.core.schedule import Schedule
from tessella.core.shapes import DType

PRUNING = ("off", "dry-run", "on")
LOG_FORMATS = ("text", "json", "rich")
CANARIES = ("off", "echo", "scale", "watermark")
# 8 bodies of 64 MiB, each with its copy, are 1 GiB; more at once is one node's whole uplink.
MAX_HOP_BODIES = 8
# A musivum that starts in the same minute is waited for.
REGISTRATION_GRACE = 30.0
WAL_CHECKPOINT = 300.0
_LEAST_ONE = (
    "claim_mb",
    "context",
    "slots",
    "max_sessions",
    "max_hop_bodies",
    "prefill_chunk",
    "oom_streak",
)
_ABOVE_ZERO = ("hop_timeout", "oom_window_seconds", "wal_checkpoint_seconds")
_AT_LEAST_ZERO = ("drain_seconds", "registration_grace_seconds", "audit_ring_mb")


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerConfig:
    """One node. Raises BadConfig that names the key and its rule."""

    musivum: tuple[PeerAddress, ...] = ()
    """The orchestrators of its mesh: one it registers with, and others that may take its place.

    None for a node of the swarm alone, and while `orchestrator_url` is not resolved.
    """
    orchestrator_url: str = ""
    """The http(s) URL under which musivum says its peer id and addresses; empty for none."""
    registration_grace_seconds: float = REGISTRATION_GRACE
    """How long a musivum that does not answer is waited for at the start. At least 0."""
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
    chat_template: Path | None = None
    """A file with a Jinja template that takes the place of the model's own."""
    models_dir: Path | None = None
    """Where models lie; None is `models` in TESSELLA_HOME."""
    hub: str = ""
    """The http(s) URL of the hub that models are fetched from; empty is HuggingFace's."""
    model_cache_prune: str = "off"
    """Whether shards that a new assignment no longer needs are deleted: `off`, `dry-run` that only
    tells them, or `on`."""
    clean_cache: bool = False
    """Whether the shards that are here are deleted and fetched anew at this start."""
    claim_mb: int
    """Memory the layer range is sized to, in MB. At least 1; musivum has a floor of its own."""
    listen: tuple[str, ...] = ("/ip4/0.0.0.0/tcp/9080",)
    """Multiaddrs to listen on; port 0 takes a free one."""
    announce: tuple[str, ...] = ()
    """Multiaddrs that others are told first: what a NAT or a proxy maps to the listeners."""
    allow_private: bool | tuple[Cidr, ...] = False
    """Whether private and loopback addresses are told, and called where others name them, or the
    networks in which they are."""
    callback_allowed_hosts: tuple[str, ...] = ()
    """Hosts that tokens may be pushed to although they are not public: names, or IP literals."""
    http: tuple[str, ...] = ()
    """HOST:PORT pairs to answer HTTP on; port 0 takes a free one. None answers no HTTP."""
    public_api_url: str = ""
    """The http(s) URL at which others reach `http`; empty tells them none."""
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
    max_hop_bodies: int = MAX_HOP_BODIES
    """HTTP bodies of hops of over 256 KiB that are read at once; fewer where memory does not hold
    each of them twice. At least 1."""
    max_input_tokens: int | None = None
    """Tokens of the longest prompt it takes; None measures it. At least 1."""
    prefill_chunk: int = 128
    """Positions in one prefill chunk: smaller overlaps stages better, larger multiplies better."""
    hop_timeout: float = 10.0
    """Seconds without progress after which a stage counts as silent. Above 0."""
    drain_seconds: float = 30.0
    """Seconds that live sessions have to finish when the node moves to other layers. At least 0."""
    oom_streak: int = 3
    """Times in a row without memory, within `oom_window_seconds`, that mean it is full.
    At least 1."""
    oom_window_seconds: float = 30.0
    """See `oom_streak`. Above 0."""
    auto_pause: bool = False
    """Whether it takes no sessions while other programs use its device."""
    auto_pause_percent: int = 50
    """Use of the device by others from which `auto_pause` holds, in percent. 1 to 100."""
    pause_schedule: Schedule = ()
    """Hours of the week, local time, in which it takes no sessions."""
    audits: bool = True
    """Whether it looks at what others served, in the time that sessions leave it."""
    audit_ring_mb: int = 256
    """Memory for what it served itself, kept an hour for auditors, in MB. 0 keeps nothing, and
    leaves them the sketches of its proofs. At least 0."""
    canary_mode: str = "off"
    """How it answers wrongly on purpose: `off`, `echo`, `scale`, or `watermark`, which needs
    `proofs`."""
    proofs: Path | None = None
    """The book of what it served and is owed; None serves whoever has a ticket for nothing."""
    wal_checkpoint_seconds: float = WAL_CHECKPOINT
    """How often what it keeps on disk is folded into its database. Above 0."""
    log_format: str = "text"
    """How its log is written: `text`, `json` or `rich`."""

    def __post_init__(self) -> None:
        self._check_numbers()
        self._check_words()
        if not self.musivum and not self.orchestrator_url and not self.kademlia:
            raise BadConfig("a node needs a mesh: musivum, or kademlia")
        if not self.musivum and not self.orchestrator_url and self.layers is None:
            raise BadConfig("layers: nobody assigns a range where there is no musivum")
        if self.bootstrap and not self.kademlia:
            raise BadConfig("bootstrap: peers of the swarm, and kademlia is off")

    def _check_numbers(self) -> None:
        for name in _LEAST_ONE:
            if getattr(self, name) < 1:
                raise BadConfig(f"{name} must be at least 1, not {getattr(self, name)}")
        if self.max_input_tokens is not None and self.max_input_tokens < 1:
            raise BadConfig(f"max_input_tokens must be at least 1, not {self.max_input_tokens}")
        if not 1 <= self.auto_pause_percent <= 100:
            raise BadConfig(f"auto_pause_percent must be 1 to 100, not {self.auto_pause_percent}")
        for name in _ABOVE_ZERO:
            if not getattr(self, name) > 0:
                raise BadConfig(f"{name} must be above 0, not {getattr(self, name)}")
        for name in _AT_LEAST_ZERO:
            if not 0 <= getattr(self, name) < math.inf:
                raise BadConfig(f"{name} must be at least 0, not {getattr(self, name)}")

    def _check_words(self) -> None:
        words_of = (
            ("model_cache_prune", PRUNING),
            ("log_format", LOG_FORMATS),
            ("canary_mode", CANARIES),
        )
        for name, known in words_of:
            if getattr(self, name) not in known:
                words = ", ".join(known)
                raise BadConfig(f"{name} must be one of {words}, not {getattr(self, name)!r}")
        if self.canary_mode == "watermark" and self.proofs is None:
            # It tells who is paid by the proofs that it makes.
            raise BadConfig("canary_mode: watermark needs a book of proofs")
        for name in ("orchestrator_url", "public_api_url", "hub"):
            url = getattr(self, name)
            if url and not url.startswith(("http://", "https://")):
                raise BadConfig(f"{name} must be an http or https URL")
