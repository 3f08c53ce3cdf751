"""What nodes, clients and operators say to musivum, and musivum to a node."""

from __future__ import annotations

from dataclasses import dataclass

from tessella.core.ids import ModelId, PeerId
from tessella.core.layers import LayerRange


@dataclass(frozen=True, slots=True)
class Signed:
    """A packed Call and the signature of its peer for the tracker."""

    payload: bytes
    signature: bytes


@dataclass(frozen=True, slots=True)
class Call:
    """What a worker, or musivum to a worker, signs: who, when, a nonce, and the packed message."""

    peer_id: PeerId
    created: float
    nonce: bytes
    message: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Register:
    """A node asks for a range of a model's layers."""

    model: ModelId
    contract: str
    shape: bytes
    """A ModelShape as JSON."""
    addrs: tuple[str, ...]
    claim_mb: int
    device: str
    dtype: str
    context: int
    """Positions one session may hold."""
    slots: int
    """Sessions the claim is sized for."""
    kv: str
    """How keys and values are kept: a word of `KvFormat`."""
    api_url: str = ""
    """Where it answers over HTTP; empty if it does not."""
    wanted: LayerRange | None = None
    """The range it already holds, or insists on; None asks the planner."""
    weights: str = ""
    """The format of the weights that it loads, a word of `core.numeric`; empty if it is not said:
    nobody could audit it then, and no ticket names it."""
    canary: bool = False
    """Whether it answers wrongly on purpose: it is listed as that, and never routed through."""


@dataclass(frozen=True, slots=True)
class Ready:
    """The shard is loaded: I serve this range."""

    layers: LayerRange


@dataclass(frozen=True, slots=True)
class Announce:
    """A heartbeat. Answered with Accepted, or with Assigned where another range is wanted."""

    status: str
    queue_depth: int
    step_ms: float
    """Median milliseconds of one decode step through the shard; 0 while unmeasured."""
    loaded_bytes: int = 0
    """How far the load is; a load that stops advancing is given up."""
    total_bytes: int = 0
    """What there is to load; 0 while unknown."""


@dataclass(frozen=True, slots=True)
class Deregister:
    """I leave."""


@dataclass(frozen=True, slots=True)
class ReportFailure:
    """A peer failed me."""

    peer_id: PeerId
    code: str


@dataclass(frozen=True, slots=True)
class Assigned:
    """The range to load and serve, and how often to announce."""

    layers: LayerRange
    heartbeat_seconds: float


@dataclass(frozen=True, slots=True)
class Accepted:
    """Done as asked."""


@dataclass(frozen=True, slots=True)
class AskPeers:
    """Who serves this model? An empty name asks for every model."""

    model: ModelId


@dataclass(frozen=True, slots=True)
class Peers:
    """A list of PeerRow as JSON."""

    rows: bytes


@dataclass(frozen=True, slots=True)
class Ask:
    """A public question to musivum, by the name of its HTTP route, with its query as JSON."""

    name: str
    arguments: bytes


@dataclass(frozen=True, slots=True)
class Document:
    """The answer to an Ask or an Operate: JSON."""

    document: bytes


@dataclass(frozen=True, slots=True)
class Operate:
    """An operator's order to musivum; the token proves that it is the operator."""

    token: str
    name: str
    arguments: bytes


@dataclass(frozen=True, slots=True)
class Assign:
    """musivum wants this node to hold another range of the model it serves."""

    layers: LayerRange
