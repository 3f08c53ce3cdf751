"""The keys of `worker_config.toml`, a class for each of its tables, in the order of the file."""
# ruff: noqa: RUF009 - `key` makes a `field`

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tessella.core.addresses import Cidr, PeerAddress
from tessella.core.layers import LayerRange
from tessella.core.schedule import Schedule
from tessella.settings.keys import key
from tessella.settings.kinds import AUTO, OFF, number
from tessella.worker.config import MAX_HOP_BODIES, REGISTRATION_GRACE, WAL_CHECKPOINT
from tessella.worker.settings.kinds import (
    CANARY,
    CLAIM,
    COUNT,
    DEVICE,
    FROM_ZERO,
    HOST,
    HOSTS,
    IP,
    KV_CACHE,
    LAYERS,
    LISTEN_IP,
    LOG_FORMAT,
    NAME,
    NONE,
    ORCHESTRATOR,
    PERCENT,
    PORT,
    PRUNE,
    PUBLIC_PORT,
    QUANTIZATION,
    SCHEDULE,
    SERVING_TYPE,
    URL,
)

DEFAULT_KEY = Path("~/.config/tessella/node.key")
_ABOVE_ZERO = number(0, open_end=True)
_FROM_ZERO = number(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class MeshTable:
    """The top of the file: who the node is, and what it joins for."""

    orchestrator_url: str | tuple[PeerAddress, ...] | None = key(
        None,
        ORCHESTRATOR,
        flags=("--tracker-url", "--musivum-url", "--orchestrator-url", "--musivum"),
        variables=("ORCHESTRATOR_URL", "TESSELLA_MUSIVUM"),
    )
    """The mesh's musivum: the URL of its HTTP API, or its multiaddrs; of several musivums the
    others stand by. A node needs one, or `kademlia_enabled`."""

    keypair_path: Path = key(DEFAULT_KEY, flags=("--key",))
    """The identity of the node, 32 bytes, mode 0600; made if there is none. Without it the node is
    another one, and so is its balance."""

    default_model: str | None = key(None, NAME, flags=("--model", "--model-id"))
    """The name that the model is served under. A node needs it, or `weights`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerTable:
    """What the node gives, where it is reached, and how it serves."""

    vram_mb: int | None = key(None, CLAIM, flags=("--claim-mb", "--vram-gb"))
    """The claim that the layer split is computed from, in MB (`--vram-gb` in GB of 1024 MB). A
    node needs it; `tessella-worker plan` tells what it buys."""

    weights: str | None = key(None, NAME, flags=("--weights",))
    """The model's files: a GGUF file, or a HuggingFace directory. None is where `default_model`
    lies."""

    models_dir: Path | None = key(None)
    """Where models are looked for first, before `models` in TESSELLA_HOME, where they are fetched
    to."""

    hub: str | None = key(None, URL, variables=("HF_ENDPOINT",))
    """The hub that a model `org/name` is fetched from, where it is not here. None is
    HuggingFace's."""

    model_cache_prune: str = key("off", PRUNE, flags=("--model-cache-prune",))
    """Whether shards that a new assignment no longer needs are deleted; a dry run only tells which
    would be."""

    chat_template: Path | None = key(None, flags=("--chat-template",))
    """A Jinja template in place of the model's own. None is the model's."""

    api_enabled: bool = key(True, flags=("--no-api",))
    """Whether the node answers HTTP."""

    api_host: str = key("0.0.0.0", HOST, flags=("--api",))
    """Where it answers HTTP; 0.0.0.0 is every address of the machine."""

    api_port: int = key(8080, PORT, flags=("--api",))
    """The port of HTTP; 0 takes a free one."""

    p2p_host: str = key("0.0.0.0", LISTEN_IP)
    """Where other nodes reach it; 0.0.0.0 is every address of the machine. `--listen` with
    multiaddrs goes before it and `p2p_port`."""

    p2p_port: int = key(9080, PORT)
    """The port for other nodes; 0 takes a free one."""

    public_ip: str | None = key(None, IP, flags=("--public-ip",))
    """The address that a NAT maps to this machine. None tells others the machine's own."""

    public_api_port: int | None = key(None, PUBLIC_PORT, flags=("--public-api-port",))
    """The port there that leads to `api_port`. None is the same."""

    public_p2p_port: int | None = key(None, PUBLIC_PORT, flags=("--public-p2p-port",))
    """The port there that leads to `p2p_port`. None is the same."""

    public_api_url: str | None = key(None, URL, flags=("--public-api-url",))
    """The whole URL at which a proxy leads to the HTTP API. None is made of `public_ip`."""

    allow_private_addrs: bool | tuple[Cidr, ...] | None = key(
        None, flags=("--allow-private-addrs",)
    )
    """Whether private and loopback addresses are told to others, and called where others name
    them, or the networks in which they are. None allows them where the node listens on such
    addresses alone. Link-local never."""

    callback_allowed_hosts: tuple[str, ...] = key((), HOSTS)
    """Hosts that tokens may be pushed to although they are not public."""

    kademlia_enabled: bool = key(False, flags=("--kademlia",))
    """Whether the node is found through the swarm, beside or instead of musivum."""

    bootstrap_peers: tuple[PeerAddress, ...] = key((), flags=("--bootstrap",))
    """Peers through which it finds the swarm."""

    lan_discovery: bool = key(True, flags=("--lan/--no-lan",))
    """Whether a node of the swarm looks for others on its local network too."""

    registration_grace_secs: float = key(REGISTRATION_GRACE, _FROM_ZERO)
    """How long a musivum that does not answer is waited for at the start, in seconds."""

    layer_range: LayerRange | None = key(None, LAYERS, flags=("--layers",))
    """Layers to insist on, the last one excluded. None takes what musivum assigns; the swarm
    assigns none."""

    device: str | None = key(None, DEVICE, flags=("--device",))
    """What computes. None is the best there is."""

    dtype: str | None = key(None, SERVING_TYPE, flags=("--dtype",))
    """The serving element type. None is the device's own."""

    quantization: str = key(NONE, QUANTIZATION, flags=("--quantization",))
    """How weights are kept in memory. The engine has no other than the serving type."""

    kv_cache_type: str = key(AUTO, KV_CACHE)
    """How keys and values are kept: in the serving type, whether it is named or not."""

    context_size: int = key(2048, COUNT, flags=("--context",))
    """Positions one session may hold, at most the model's."""

    parallel_slots: int = key(4, COUNT, flags=("--slots",))
    """Sessions of a full context that the claim is sized for."""

    max_sessions: int = key(64, COUNT)
    """Sessions at a time."""

    max_input_tokens: int | None = key(None, COUNT)
    """Tokens of the longest prompt it takes. None measures it."""

    max_concurrent_hop_bodies: int = key(MAX_HOP_BODIES, COUNT)
    """HTTP bodies of hops, of 256 KiB to 64 MiB, that are read at once; fewer where memory does not
    hold each of them twice."""

    prefill_chunk: int = key(128, COUNT)
    """Positions in one prefill chunk: smaller overlaps stages better, larger multiplies better."""

    p2p_inference_timeout_secs: float = key(10.0, _ABOVE_ZERO, flags=("--hop-timeout",))
    """How long a hop may stand still, in seconds."""

    drain_secs: float = key(30.0, _FROM_ZERO)
    """How long sessions may go on when the node moves to other layers, in seconds."""

    wal_checkpoint_interval_secs: float = key(WAL_CHECKPOINT, _ABOVE_ZERO)
    """How often what the node keeps on disk is folded into its database, in seconds."""

    audits: bool = key(True)
    """Whether the node looks at what others served, in the time that sessions leave it."""

    audit_ring_mb: int = key(256, FROM_ZERO)
    """Memory for what the node served itself, kept an hour for auditors, in MB. 0 keeps nothing."""

    canary_mode: str = key(OFF, CANARY)
    """Whether the node answers wrongly on purpose: with its input, with its output times a
    constant, or with a mark for whoever asks past musivum."""

    auto_pause: bool = key(False, flags=("--auto-pause",))
    """Whether the node takes no sessions while other programs use its device."""

    auto_pause_percent: int = key(50, PERCENT)
    """From how much use by others `auto_pause` holds, in percent."""

    pause_schedule: Schedule = key((), SCHEDULE)
    """Hours of the week, in local time, in which the node takes no sessions."""

    log_format: str = key("text", LOG_FORMAT, flags=("--log-format",))
    """How the log on stderr is written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuTable:
    """When the device counts as full."""

    oom_streak: int = key(3, COUNT)
    """Times in a row without memory that mean the node is full rather than broken."""

    streak_window_secs: float = key(30.0, _ABOVE_ZERO)
    """Within how many seconds they count as one streak."""


TABLES = {"": MeshTable, "worker": WorkerTable, "gpu": GpuTable}
"""The tables by the name of their section."""
