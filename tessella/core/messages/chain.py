"""What the stages of one session say to each other, and the tail to the entry."""

from __future__ import annotations

from dataclasses import dataclass

from tessella.core.ids import ModelId, PeerId, SessionId
from tessella.core.layers import LayerRange
from tessella.core.tensors import WireTensor


@dataclass(frozen=True, slots=True)
class Stage:
    """A node's place in one chain: the layers it runs for this session."""

    peer_id: PeerId
    layers: LayerRange


@dataclass(frozen=True, slots=True, kw_only=True)
class Open:
    """The first frame of a session on a hop stream; the first chunk may follow at once."""

    session_id: SessionId
    epoch: int
    """0 at first. Whoever goes on with a parked session, or replaces a lost stage, opens with the
    next: a stage that parked the epoch before for the same neighbour still holds its KV."""
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
    entry_url: str
    """Where the entry answers over HTTP; empty if it does not."""
    grant: bytes
    """A packed TokenGrant for the tail, and the entry's signature of it."""
    grant_signature: bytes
    ticket: bytes = b""
    """A sealed Ticket; empty where no musivum answered: nobody is paid, and the tier is Leech."""
    ticket_signature: bytes = b""


@dataclass(frozen=True, slots=True)
class Hidden:
    """Hidden states of consecutive positions. `sample` asks the tail for a token after the last."""

    session_id: SessionId
    epoch: int
    position: int
    """The KV length this builds on. Lower than held: roll back; higher: refused."""
    tensor: WireTensor
    sample: bool
    voucher: bytes = b""
    """The sender's, for all rows that it sent so far; empty in a session without a ticket."""


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
