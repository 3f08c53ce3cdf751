"""Everything peers say to each other: frozen values, and one row that numbers them.

    /tessella/hop/1       down the chain: Open, Hidden, End, Cancel, Park
                          up: Progress, Fail; Token if the tail cannot reach the entry
    /tessella/tokens/1    tail to entry: TokenOpen, Token
    /tessella/complete/1  client to entry: Complete, Cancel; back: Begun, Delta, Done, Fail
    /tessella/status/1    anyone: AskStatus; back: Status
    /musivum/tracker/1    a worker: Signed (a Call); anyone: AskPeers;
                          back: Assigned, Accepted, Peers, Fail

A session's frames carry its id and epoch, so a stream may carry one session after another.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tessella.core.errors import BadFrame, TessellaError
from tessella.core.fields import from_plain, to_plain
from tessella.core.frames import pack, unpack
from tessella.core.ids import ModelId, PeerId, SessionId
from tessella.core.layers import LayerRange
from tessella.core.tensors import WireTensor

HOP = "/tessella/hop/1"
TOKENS = "/tessella/tokens/1"
COMPLETE = "/tessella/complete/1"
STATUS = "/tessella/status/1"
TRACKER = "/musivum/tracker/1"

# A line for a person; four bytes a character still fit a frame's string.
MAX_FAIL_CHARS = 1000


@dataclass(frozen=True, slots=True)
class Stage:
    """A node's place in one chain: the layers it runs for this session."""

    peer_id: PeerId
    layers: LayerRange


@dataclass(frozen=True, slots=True)
class Fail:
    """The other side's request ends with this error. `code` is from the error tree."""

    code: str
    text: str
    retry: bool

    @classmethod
    def of(cls, error: TessellaError) -> Fail:
        """What a peer is told of an error. A long text is cut: it may quote what was sent."""
        return cls(error.code, error.told()[:MAX_FAIL_CHARS], error.retry)


@dataclass(frozen=True, slots=True, kw_only=True)
class Open:
    """The first frame of a session on a hop stream; the first chunk may follow at once."""

    session_id: SessionId
    epoch: int
    """0 at first; a replacement of a lost stage opens with the next."""
    model: ModelId
    contract: str
    """Hash of shape and tensor names: two stages that differ in it do not fit together."""
    dtype: str
    """Element type of every hidden state of this session."""
    chain: tuple[Stage, ...]
    place: int
    """The receiver's index in `chain`."""
    capacity: int
    """Positions of KV to reserve: prompt and answer together."""
    prompt: bytes
    """The prompt's token ids, u32 little endian: penalties at the tail need them."""
    sampling: bytes
    """`Sampling.encode()`."""
    entry_addrs: tuple[str, ...]
    """Where the tail can dial the entry, if it is not connected to it."""
    grant: bytes
    """A packed TokenGrant for the tail, and the entry's signature of it."""
    grant_signature: bytes


@dataclass(frozen=True, slots=True)
class Hidden:
    """Hidden states of consecutive positions. `sample` asks the tail for a token after the last."""

    session_id: SessionId
    epoch: int
    position: int
    """The KV length this builds on. Lower than held: roll back; higher: refused."""
    tensor: WireTensor
    sample: bool


@dataclass(frozen=True, slots=True)
class Progress:
    """Once a second from a stage that has work in hand, and once when it has no more.

    `counter` is advanced by the compute threads of this stage and of those behind it; `done` is
    how many positions all of them have finished.
    """

    session_id: SessionId
    epoch: int
    counter: int
    done: int


@dataclass(frozen=True, slots=True)
class End:
    """The session is complete: free its KV. The stream may carry another."""

    session_id: SessionId
    epoch: int


@dataclass(frozen=True, slots=True)
class Cancel:
    """Nobody wants the rest: stop computing and free the KV."""

    session_id: SessionId
    epoch: int


@dataclass(frozen=True, slots=True)
class Park:
    """Keep the KV this many seconds for whoever opens the session again."""

    session_id: SessionId
    epoch: int
    seconds: float


@dataclass(frozen=True, slots=True)
class TokenGrant:
    """What the entry signs so that the tail, and only the tail, may write tokens once."""

    session_id: SessionId
    epoch: int
    tail: PeerId
    expires_at: float
    """Seconds since 1970, by the entry's clock; nobody else checks it."""


@dataclass(frozen=True, slots=True)
class TokenOpen:
    """The first frame of a token stream: the packed TokenGrant, as the entry signed it."""

    grant: bytes
    signature: bytes


@dataclass(frozen=True, slots=True)
class Alternative:
    """A token that could have been chosen, with its log-probability."""

    token_id: int
    logprob: float


@dataclass(frozen=True, slots=True)
class Token:
    """One chosen token."""

    session_id: SessionId
    epoch: int
    position: int
    """The position this token takes in the sequence; strictly increasing."""
    token_id: int
    text: str
    """What may be shown once it is known: whole characters, possible stop strings withheld."""
    reason: str
    """Empty while the answer goes on; `stop` for an end-of-sequence id or a stop string, `length`
    for the token limit."""
    logprob: float
    top: tuple[Alternative, ...]


@dataclass(frozen=True, slots=True)
class Complete:
    """A client's wish: a CompletionRequest as JSON."""

    request: bytes


@dataclass(frozen=True, slots=True)
class Begun:
    """The request was accepted and its chain is open."""

    request_id: str
    model: ModelId
    prompt_tokens: int
    chain: tuple[Stage, ...]


@dataclass(frozen=True, slots=True)
class Delta:
    """The next piece of the answer: one token, and the text it made showable (maybe none)."""

    text: str
    token_id: int
    logprob: float
    top: tuple[Alternative, ...]


@dataclass(frozen=True, slots=True)
class Done:
    """The answer is complete. Seconds are measured at the entry, from the request's arrival."""

    reason: str
    completion_tokens: int
    first_token_seconds: float
    total_seconds: float


@dataclass(frozen=True, slots=True)
class AskStatus:
    """What are you doing?"""


@dataclass(frozen=True, slots=True)
class Status:
    """A status document as JSON."""

    document: bytes


@dataclass(frozen=True, slots=True)
class Signed:
    """A packed Call and the signature of its peer for the tracker."""

    payload: bytes
    signature: bytes


@dataclass(frozen=True, slots=True)
class Call:
    """What a worker signs: who, when, a nonce, and the packed message itself."""

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
    wanted: LayerRange | None = None
    """The range it already holds, or insists on; None asks the planner."""


@dataclass(frozen=True, slots=True)
class Ready:
    """The shard is loaded: I serve this range."""

    layers: LayerRange


@dataclass(frozen=True, slots=True)
class Announce:
    """A heartbeat."""

    status: str
    queue_depth: int
    step_ms: float
    """Median milliseconds of one decode step through the shard; 0 while unmeasured."""


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


# Append only: a message's place in this row is its number on the wire.
KINDS: tuple[type[Any], ...] = (
    Fail,
    Open,
    Hidden,
    Progress,
    End,
    Cancel,
    Park,
    TokenGrant,
    TokenOpen,
    Token,
    Complete,
    Begun,
    Delta,
    Done,
    AskStatus,
    Status,
    Signed,
    Call,
    Register,
    Ready,
    Announce,
    Deregister,
    ReportFailure,
    Assigned,
    Accepted,
    AskPeers,
    Peers,
)
_NUMBERS = {kind: number for number, kind in enumerate(KINDS)}

Message = Any
"""One instance of a class in KINDS."""


def encode(message: Message) -> bytes:
    """The frame of a message."""
    return pack([_NUMBERS[type(message)], *to_plain(message)])


def decode(body: bytes) -> Message:
    """The message in one body. Raises BadFrame for an unknown kind or a field out of its type."""
    number, *values = unpack(body)
    if type(number) is not int or not 0 <= number < len(KINDS):
        raise BadFrame(f"unknown kind {number!r:.20}")
    return from_plain(KINDS[number], values)


def seal(message: Message) -> bytes:
    """A message as bytes to sign and pass on: its frame, without the length."""
    return encode(message)[4:]
