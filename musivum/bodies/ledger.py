"""What musivum is asked and answers about work and its pay, as JSON."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, FiniteFloat

from musivum.audits.standing import BAR_DAYS
from musivum.bodies.fields import MAX_PEER_ID_CHARS, Body, Name, PeerName, Span
from musivum.bodies.rules import FEW, NUMBER
from musivum.config import MAX_TICKET_TOKENS
from tessella.core.ledger import MAX_PAGE_ENTRIES, MAX_REASON
from tessella.core.proofs import MAX_BATCH, MAX_PROOF_BYTES

# 9 billion credits in micro-credits: up to here a double has every integer.
MAX_MICRO = 1 << 53
MAX_CREDITS = 10**9
MAX_DAYS = 3650
# Latest entries in one answer.
MAX_SHOWN = 500
MAX_TOKENS = 1 << 30
# Of a proof's payload in base64.
_PROOF_CHARS = 4 * -(-MAX_PROOF_BYTES // 3)
_FOURS = "(?:[A-Za-z0-9+/]{4})"
_REST = "(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})"

Base64 = Annotated[str, Field(pattern=f"^{_FOURS}*{_REST}$", max_length=_PROOF_CHARS)]
"""At least one byte, in the standard alphabet, padded."""
Signature = Annotated[str, Field(pattern="^[0-9a-f]{128}$")]
RequestId = Annotated[str, Field(pattern="^[0-9a-f]{32}$")]
Reason = Annotated[str, Field(pattern="^[^\\x00-\\x1f]+$", max_length=MAX_REASON // 4)]
"""A sentence, on one line; a character has at most four bytes."""
Place = Annotated[int, Field(ge=0, le=MAX_MICRO)]
"""A place in the ledger, or how many entries it has."""


class GrantArguments(Body):
    """A session that is about to begin."""

    model_id: Name
    max_tokens: Annotated[int, Field(ge=1, le=MAX_TICKET_TOKENS)]
    """Positions: prompt and answer together."""
    after: Annotated[str, Field(pattern="^([0-9a-f]{32})?$")] = ""
    """The request id of a grant of the last hour whose chain is wanted again."""
    anonymous: bool = False
    """Asked by an entry for a client without a key: the chain begins at the caller."""


class GrantStage(Body):
    """A stage of a ticket's chain."""

    peer_id: str
    layers: Span
    numeric: str
    """Compute type, weight format and wire type; empty where the node does not say."""


class GrantBody(Body):
    """A ticket, and where its entry is."""

    tier: str
    request_id: str
    chain: list[GrantStage]
    spares: list[GrantStage]
    ticket: str
    """Base64url without padding: the bytes that are signed."""
    signature: str
    entry: str
    p2p_addrs: list[str]
    api_url: str | None
    expires_at: float


class ProofBody(Body):
    """A proof of work, as its worker signed it."""

    payload: Base64
    signature: Signature


class ProofsBody(Body):
    """Proofs to be paid."""

    proofs: Annotated[list[Annotated[ProofBody, FEW]], Field(min_length=1, max_length=MAX_BATCH)]


class OutcomeBody(Body):
    """What became of one proof."""

    became: str
    micro: int
    """Micro-credits."""
    credits: float
    code: str
    """Of a refusal: its error code."""
    text: str


class OutcomesBody(Body):
    """What became of each proof, in order."""

    outcomes: list[OutcomeBody]


class CreditsArguments(Body):
    """One account, or all."""

    peer_id: Annotated[str, Field(min_length=1, max_length=MAX_PEER_ID_CHARS)] | None = None
    all: bool = False


class CreditsBody(Body):
    """An account of the ledger. Numbers that begin with `micro` are micro-credits."""

    peer_id: str
    """A peer id, `mint` or `slashed`."""
    credits: float
    micro: int
    tier: str
    micro_earned: int
    """By work, in all."""
    micro_earned_day: int
    """By work, in this hour and the 23 before it."""
    micro_spent: int
    """On others' work, in all."""
    waiting: int
    """Proofs that wait for a neighbour's, or for an audit."""
    held_against: str
    """What audits found of a node that matters now, in a sentence; empty for nothing."""


class LineBody(Body):
    """What one account gains, or loses."""

    account: str
    micro: int


class EntryBody(Body):
    """One entry of the ledger, to be read."""

    sequence: int
    kind: str
    at: float
    issuer: str
    request_id: str
    worker: str
    reason: str
    lines: list[LineBody]
    hash: str
    """What the next entry calls the one before."""


class LatestArguments(Body):
    """How many of the latest entries."""

    limit: Annotated[int, Field(ge=1, le=MAX_SHOWN)] = 50


class SnapshotArguments(Body):
    """A page of the ledger, from a place on."""

    since: Place = 0
    limit: Annotated[int, Field(ge=1, le=MAX_PAGE_ENTRIES)] = MAX_PAGE_ENTRIES


class HeadBody(Body):
    """The head of the ledger, as it was signed."""

    origin: str
    size: int
    root: str
    last: str
    at: float
    payload: str
    """Base64: the bytes that are signed."""
    signature: str


class SnapshotBody(Body):
    """Entries from a place on, and the head of when they were read."""

    since: int
    entries: list[str]
    """Base64: the payloads, in order."""
    next: int
    """Where the next page begins."""
    head: HeadBody


class ProofArguments(Body):
    """Entries from `index` on, with the path of the last; and what joins the trees of two sizes."""

    index: Place | None = None
    """No entries without it."""
    count: Annotated[int, Field(ge=1, le=MAX_PAGE_ENTRIES)] = 1
    since: Annotated[Place, Field(alias="from")] = 0
    to: Place | None = None
    """The size of the head without it."""


class LedgerProofBody(Body):
    """What shows that entries are in the ledger, or that it only grew."""

    head: HeadBody
    index: int | None
    entries: list[str]
    """Base64: the payloads from `index` on."""
    inclusion: list[str]
    """Hex: from the last of these entries to the root of the head, nearest first."""
    consistency: list[str]
    """Hex: from the tree of `from` entries to that of `to`, or of the head."""


class SlashBody(Body):
    """A penalty."""

    peer_id: PeerName
    reason: Reason
    credits: Annotated[float, Field(ge=0, le=MAX_CREDITS, allow_inf_nan=False), NUMBER] | None = (
        None
    )
    """What the account loses, if it has as much; without it, what the rule of fines says."""
    days: Annotated[float, Field(ge=0, le=MAX_DAYS, allow_inf_nan=False), NUMBER] = BAR_DAYS
    """For how long it is let in nowhere."""


class AppealBody(Body):
    """A penalty taken back: all that was taken is given back, and the peer is let in again."""

    peer_id: PeerName
    reason: Reason


class PenaltyBody(Body):
    """What was done."""

    peer_id: str
    micro: int
    """What the account gained, or lost if it is negative: micro-credits."""
    balance: int
    """What it has by now: micro-credits."""
    until: float | None
    """Until when it is let in nowhere, in seconds since 1970."""
    sequence: int
    """The entry that says so."""


class OrderBody(Body):
    """A signed order to show what was kept."""

    order: str
    """Base64: the bytes that are signed."""
    signature: str


class TaskBody(Body):
    """What is to be audited: recompute what a proof binds its worker to."""

    audit_id: str
    proof: str
    """Base64."""
    proof_signature: str
    inputs: OrderBody
    inputs_addrs: list[str]
    outputs: OrderBody
    outputs_addrs: list[str]


class TasksBody(Body):
    """What there is for the caller to audit; null for nothing."""

    task: TaskBody | None


class AuditReportBody(Body):
    """What an auditor found."""

    audit_id: Annotated[str, Field(pattern="^([0-9a-f]{2}){1,32}$")]
    found: Literal[
        "measured", "sketched", "malformed", "fraud", "unavailable", "withheld", "unable"
    ]
    tokens: Annotated[int, Field(ge=0, le=MAX_TOKENS), NUMBER] = 0
    median: Annotated[FiniteFloat, NUMBER] = 0.0
    worst: Annotated[FiniteFloat, NUMBER] = 0.0
    gain: Annotated[FiniteFloat, NUMBER] = 0.0
    reference: Annotated[str, Field(pattern="^([0-9a-f]{64})?$")] = ""
