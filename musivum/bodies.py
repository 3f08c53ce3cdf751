"""What musivum is asked and answers, as JSON: one model a body, the same at both doors."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from musivum.json_rules import NUMBER
from musivum.node import MAX_QUEUE_DEPTH, MAX_STEP_MS
from musivum.registration import MAX_CLAIM_MB, MAX_NAME_CHARS, MAX_SLOTS
from tessella.core.addresses import MAX_ADDR_CHARS, MAX_ADDRS
from tessella.core.configs import MAX_CONTEXT, MAX_LAYERS
from tessella.core.manifest import MAX_FILE_NAME_CHARS, MAX_FILES
from tessella.web.targets import MAX_URL_CHARS

MAX_PEER_ID_CHARS = 64
# A code of the error tree.
MAX_CODE_CHARS = 64
# 9 PB: above this readers of JSON that know doubles alone no longer tell numbers apart.
MAX_BYTES = 1 << 53

Name = Annotated[str, Field(min_length=1, max_length=MAX_NAME_CHARS)]
PeerName = Annotated[str, Field(min_length=1, max_length=MAX_PEER_ID_CHARS)]
Hash = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
"""32 bytes in hex."""
Device = Literal["cuda", "metal", "cpu"]
WeightWord = Literal["f32", "f16", "bf16", "Q8_0", "INT4"]
KvWord = Literal["f32", "f16", "bf16", "q8_0", "q4_0"]
StoredWord = Literal["", "f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "q4_k", "q6_k", "mixed"]
"""How the matrices of a checkpoint are stored, as `core.numeric` has the words; or nothing."""
Span = tuple[
    Annotated[int, Field(ge=0, le=MAX_LAYERS), NUMBER],
    Annotated[int, Field(ge=1, le=MAX_LAYERS), NUMBER],
]
"""Half-open: [start, stop)."""


class Body(BaseModel):
    """A JSON object whose fields are all known."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class NoArguments(Body):
    """A question that takes no arguments."""


class OfModel(Body):
    """Which model."""

    model_id: Name


class OfAnyModel(Body):
    """Which model; all of them without."""

    model_id: Annotated[str, Field(max_length=MAX_NAME_CHARS)] = ""


class PriceArguments(OfModel):
    """A model, and how it would be served; what is left out is as the mesh does it."""

    device: Device | None = None
    dtype: WeightWord | None = None
    kv_cache_type: KvWord | None = None
    context_size: Annotated[int, Field(ge=1, le=MAX_CONTEXT)] | None = None
    parallel_slots: Annotated[int, Field(ge=1, le=MAX_SLOTS)] | None = None


class AssignmentArguments(PriceArguments):
    """The same, and the memory that a node would offer."""

    vram_mb: Annotated[int, Field(ge=0, le=MAX_CLAIM_MB)]


class ReputationArguments(Body):
    """One peer, or all."""

    peer_id: PeerName | None = None
    all: bool = False


class PeerBody(Body):
    """A node as clients and stages need it."""

    peer_id: str
    model_id: str
    status: str
    layer_ranges: list[Span]
    total_layers: int
    replica_group_id: int = 0
    http_api_url: str | None
    http_addr: str | None
    p2p_addrs: list[str]
    device: str
    dtype: str
    queue_depth: int
    step_ms: float
    canary: bool
    progress: float | None
    """Of its load, 0 to 1; null for one that is not loading."""
    reported: int
    """How often other nodes said that it failed them."""
    confirmed: int
    """How often musivum found that it does not answer."""
    contract: str


class NetworkModel(Body):
    """A model that somebody serves, or loads."""

    model_id: str
    active_workers: int
    workers: int
    health: str
    total_layers: int


class WorkerBody(Body):
    """A node as one watches it: nothing here says where it is."""

    peer_id: str
    model_id: str
    status: str
    vram_mb: int
    queue_depth: int
    layer_ranges: list[Span]
    device: str


class Hole(Body):
    """Layers that nobody serves, and the claim that would hold them."""

    start: int
    stop: int
    claim_mb: int


class Loading(Body):
    """Layers that a node is loading."""

    start: int
    stop: int
    peer_id: str
    progress: float
    eta_seconds: float | None


class Unavailable(Body):
    """Why a model cannot be asked now, and what would help."""

    code: Literal["model_unavailable"] = "model_unavailable"
    message: str
    state: Literal["loading", "missing"]
    missing: list[Span]
    claim_mb: int
    """The smallest claim that would repair the first hole; 0 where all of it is being loaded."""
    progress: float | None
    eta_seconds: float | None
    retry_after: int


class ModelHealth(Body):
    """Coverage of a model, its holes, and the terms that a repair is sized with."""

    model_id: str
    health: str
    total_layers: int | None
    covered_layers: int
    prefix_layers: int
    """Layers that render from the first on, without a gap."""
    workers: int
    holes: list[Hole]
    loading: list[Loading]
    available: bool
    unavailable: Unavailable | None
    device: str | None
    dtype: str | None
    kv_cache_type: str | None
    context_size: int | None
    parallel_slots: int | None
    mem_per_layer_mb: float | None
    weights_per_layer_mb: float | None
    kv_per_layer_mb: float | None
    global_tensor_mb: float | None
    embedding_mb: float | None
    head_mb: float | None
    usable_vram_pct: int
    min_vram_mb: int
    replica_claim_mb: int | None


class AssignmentBody(Body):
    """A range of layers, as a node is told it."""

    model_repo: str
    layer_ranges: list[Span]
    replica_group_id: int = 0
    expert_range: None = None


class Preview(Body):
    """What a claim would get."""

    assignment: AssignmentBody
    total_layers: int
    is_replica: bool
    vram_mb: int
    least_claim_mb: int
    """The smallest claim that holds this range."""


class FileBody(Body):
    """One file of a model's weights."""

    name: Annotated[str, Field(min_length=1, max_length=MAX_FILE_NAME_CHARS)]
    bytes: Annotated[int, Field(ge=0, le=MAX_BYTES)]
    sha256: Hash


class ManifestBody(Body):
    """What a node has to own to serve a model."""

    model_id: str
    contract: str
    shape: dict[str, object]
    files: list[FileBody]
    published: bool
    """Whether the operator stands behind it; else it is what most of the model's nodes hold."""


class PublishBody(Body):
    """A manifest to publish. The contract follows from the shape, and may be left out."""

    model_id: Name
    contract: Hash | None = None
    shape: dict[str, object]
    files: Annotated[list[FileBody], Field(max_length=MAX_FILES)] = []


class Published(Body):
    """A manifest was published."""

    model_id: str
    contract: str


class P2pId(Body):
    """The key to pin, and where it answers."""

    peer_id: str
    multiaddrs: list[str]


class StageBody(Body):
    """A stage of a chain."""

    peer_id: str
    layers: Span
    http_api_url: str | None
    p2p_addrs: list[str]


class ChainBody(Body):
    """The chain that a session would take now."""

    model_id: str
    entry: str
    chain: list[StageBody]


class MoveBody(Body):
    """A node that was told another range."""

    peer_id: str
    old: Span
    new: Span
    reason: str


class Rebalanced(Body):
    """What was begun; the next moves follow by themselves."""

    moves: list[MoveBody]


class ReputationBody(Body):
    """What became of an identity."""

    peer_id: str
    score: float
    """Above 0 to 1."""
    joins: int
    offline: int
    reports_made: int
    reports_confirmed: int
    accused: int
    accused_confirmed: int
    audits_passed: float
    """What audits found fades: half of it in a month. As the next two."""
    audits_rejected: float
    slashes: float


class RegisterBody(Body):
    """A registration. Its signature is in the headers."""

    peer_id: PeerName
    public_key: Hash
    p2p_addrs: Annotated[
        list[Annotated[str, Field(max_length=MAX_ADDR_CHARS)]],
        Field(max_length=MAX_ADDRS),
    ]
    """May be empty beside `api_addr`."""
    api_addr: Annotated[str, Field(max_length=MAX_URL_CHARS)] = ""
    """The URL of its HTTP API; empty if it has none."""
    vram_mb: Annotated[int, Field(ge=0, le=MAX_CLAIM_MB), NUMBER]
    device: Device
    dtype: Literal["f32", "f16", "bf16"]
    kv_cache_type: KvWord | None = None
    context_size: Annotated[int, Field(ge=1, le=MAX_CONTEXT), NUMBER]
    parallel_slots: Annotated[int, Field(ge=1, le=MAX_SLOTS), NUMBER]
    model_id: Name
    total_layers: Annotated[int, Field(ge=1, le=MAX_LAYERS), NUMBER]
    contract: Hash
    """The parameter-contract hash of the manifest."""
    shape: dict[str, object]
    layers: Span | None = None
    """The range it holds, or insists on."""
    weights: StoredWord = ""
    """How the weights that it loads are stored; without it, it can be audited by nobody, and no
    ticket names it."""
    canary: bool = False
    """Whether it answers wrongly on purpose: it is listed as that, and never a stage."""


class Registered(Body):
    """The range to load, and the peers that may be dialled as the next hop."""

    assignment: AssignmentBody
    heartbeat_seconds: float
    peers: list[PeerBody]


class AnnounceBody(Body):
    """A heartbeat."""

    status: Literal["PendingLoad", "Healthy", "Saturated", "Paused", "Draining"]
    role: Literal["entry", "middle", "tail", "replica"] | None = None
    """Where its layers put it in a chain: for people; the ranges say it too."""
    queue_depth: Annotated[int, Field(ge=0, le=MAX_QUEUE_DEPTH), NUMBER] = 0
    step_ms: Annotated[float, Field(ge=0, le=MAX_STEP_MS), NUMBER] = 0.0
    loaded_bytes: Annotated[int, Field(ge=0, le=MAX_BYTES), NUMBER] = 0
    total_bytes: Annotated[int, Field(ge=0, le=MAX_BYTES), NUMBER] = 0


class ReadyBody(Body):
    """The shard is loaded."""

    layers: Span


class DeregisterBody(Body):
    """A goodbye."""


class ReportBody(Body):
    """A peer failed the caller."""

    peer_id: PeerName
    code: Annotated[str, Field(min_length=1, max_length=MAX_CODE_CHARS)]


class AcceptedBody(Body):
    """Done as asked. `assignment` is another range to load, where one is wanted."""

    ok: Literal[True] = True
    assignment: AssignmentBody | None = None
