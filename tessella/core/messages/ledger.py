"""What is said about work and its pay: grants, tickets, proofs, audits.

A ticket, a proof and an audit order are signed: they are kept and handed on as the bytes that
`seal` made, with their signature, and are verified before they are parsed.
"""

from __future__ import annotations

from dataclasses import dataclass

from tessella.core.ids import ModelId, PeerId
from tessella.core.layers import LayerRange
from tessella.core.tensors import WireTensor


@dataclass(frozen=True, slots=True)
class TicketStage:
    """A node that a ticket pays, its layers, and how it says that it computes."""

    peer_id: PeerId
    layers: LayerRange
    numeric: str
    """A NumericClass as text: compute type, weight format and wire type."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticket:
    """musivum's word that this chain's work on one request is paid."""

    issuer: PeerId
    """The musivum that signed it."""
    request_id: bytes
    """16 random bytes of the issuer's; no two tickets share them."""
    model: ModelId
    contract: str
    requester: str
    """The peer id of who asked for it, or `anonymous`."""
    tier: str
    """A Tier value: the place of this request in every queue."""
    chain: tuple[TicketStage, ...]
    """The stages in order; the first is the entry."""
    spares: tuple[TicketStage, ...]
    """Nodes that may take the place of a stage that is lost."""
    max_tokens: int
    """Positions that are paid at most: prompt and answer together."""
    issued_at: float
    """Seconds since 1970, by the issuer's clock, as the other times."""
    start_by: float
    expires_at: float


@dataclass(frozen=True, slots=True)
class Commit:
    """What a stage binds itself to about one side of its work: the rows of `[0, stop)`.

    A neighbour that saw the same rows has the same commit, and one that saw fewer has marks in
    common with it. See `core.commitments`.
    """

    stop: int
    digest: bytes
    """32 bytes, over all rows."""
    marks: bytes
    """16 bytes for each multiple of the step: the digest of so many rows."""
    last: bytes
    """16 bytes for each of the last few lengths before `stop`, the longest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """A worker's word about one session that it served, and its bill."""

    ticket: bytes
    ticket_signature: bytes
    worker: PeerId
    sequence: int
    """Rises with every proof of a worker."""
    previous: bytes
    """The hash of the worker's proof before this one; empty for the first of a fresh book."""
    layers: LayerRange
    start: int
    """The first position that was computed; those before it were held from an earlier request."""
    epoch: int
    """Of the session, as its last row came."""
    inputs: Commit
    """Of the rows that came; of token ids, as u32, at the entry."""
    sender: PeerId
    """Who sent them; empty at the entry."""
    voucher: bytes
    """The sender's, for all of them; empty at the entry."""
    outputs: Commit
    """Of the rows that left; at the tail of its hidden states after the last layer."""
    sketch: bytes
    """The largest values of some output rows: enough to audit without the rows."""
    finished_at: float
    """Seconds since 1970, by the worker's clock; nothing is decided by it."""


@dataclass(frozen=True, slots=True)
class AskGrant:
    """Signed in a Call: a session is about to begin. Answered with Granted."""

    model: ModelId
    max_tokens: int
    """Positions: prompt and answer together."""
    anonymous: bool
    """Asked by an entry for a client without a key; the chain then begins at the caller."""
    after: bytes
    """The request id of a grant before, whose chain is wanted again; empty for any chain."""


@dataclass(frozen=True, slots=True)
class Granted:
    """A ticket, and where its entry is."""

    ticket: bytes
    signature: bytes
    addrs: tuple[str, ...]
    api_url: str


@dataclass(frozen=True, slots=True)
class Settle:
    """Proofs to be paid, as `core.proofs.pack_batch` has them; anyone may bring them."""

    proofs: bytes


@dataclass(frozen=True, slots=True)
class Settled:
    """What became of each proof, in order: JSON, as `core.settlement.encode_outcomes` has it."""

    outcomes: bytes


@dataclass(frozen=True, slots=True)
class AskCredits:
    """Signed in a Call: what do I own? Answered with a Document."""


@dataclass(frozen=True, slots=True)
class AskAudit:
    """Signed in a Call: is there anything for me to audit? Answered with AuditTask or Accepted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditOrder:
    """musivum's signed word that one node may see what another kept of a request."""

    audit_id: bytes
    request_id: bytes
    keeper: PeerId
    """Who keeps it."""
    auditor: PeerId
    """Who may see it."""
    side: str
    """`inputs` for the token ids that the entry took, `outputs` for the rows that left."""
    stop: int
    """Positions [0, stop)."""
    expires_at: float


@dataclass(frozen=True, slots=True)
class SignedOrder:
    """An AuditOrder, sealed: the first frame to a keeper."""

    order: bytes
    signature: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditTask:
    """Recompute what a proof binds its worker to."""

    audit_id: bytes
    proof: bytes
    proof_signature: bytes
    inputs: SignedOrder
    """Where the rows that the audited stage took are kept: by the stage before, or the entry."""
    inputs_addrs: tuple[str, ...]
    outputs: SignedOrder
    """Where the rows that it gave are kept: by itself."""
    outputs_addrs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class KeptRows:
    """Some of the rows that a keeper was ordered to show, in order."""

    position: int
    tensor: WireTensor


@dataclass(frozen=True, slots=True)
class KeptIds:
    """The token ids that the entry took, u32 little endian: all of them."""

    ids: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditReport:
    """Signed in a Call: what an auditor found."""

    audit_id: bytes
    found: str
    """`measured`, `sketched` (without the outputs), `malformed`, `fraud` (outputs that are not what
    the proof binds its worker to), `unavailable` (without the inputs), `withheld` (without the
    outputs, of too few positions for a sketch) or `unable` (the auditor itself)."""
    tokens: int
    median: float
    worst: float
    gain: float
    reference: bytes
    """BLAKE2b-256 of the auditor's own rows: what it is bound to."""


@dataclass(frozen=True, slots=True)
class Mark:
    """One answer that a canary marked: whoever gives it as its own copied it."""

    session_id: bytes
    gain: float
    copier: PeerId
    """Who opened the session."""
    at: float
    """Seconds since 1970."""


@dataclass(frozen=True, slots=True)
class Marks:
    """Signed in a Call: what a canary marked of late. Answered with Accepted."""

    marks: tuple[Mark, ...]
