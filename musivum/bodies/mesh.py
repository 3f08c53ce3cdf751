"""What anyone asks about the mesh and is answered, as JSON."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from musivum.bodies.fields import MAX_BYTES, Body, Device, Hash, KvWord, Name, Span, WeightWord
from musivum.nodes.registration import MAX_CLAIM_MB, MAX_NAME_CHARS, MAX_SLOTS
from tessella.core.configs import MAX_CONTEXT
from tessella.core.manifest import MAX_FILE_NAME_CHARS


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
