"""What a node asks for in a signed call, and what it is answered, as JSON."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from musivum.bodies.fields import (
    MAX_BYTES,
    MAX_CODE_CHARS,
    Body,
    Device,
    Hash,
    KvWord,
    Name,
    PeerName,
    Span,
    StoredWord,
)
from musivum.bodies.mesh import AssignmentBody, PeerBody
from musivum.bodies.rules import NUMBER
from musivum.nodes.node import MAX_QUEUE_DEPTH, MAX_STEP_MS
from musivum.nodes.registration import MAX_CLAIM_MB, MAX_SLOTS
from tessella.core.addresses import MAX_ADDR_CHARS, MAX_ADDRS
from tessella.core.configs import MAX_CONTEXT, MAX_LAYERS
from tessella.web.targets import MAX_URL_CHARS


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
