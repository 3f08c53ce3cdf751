"""Everything peers say to each other: frozen values, and one row that numbers them.

    /tessella/hop/1       down the chain: Open, Hidden, End, Cancel, Park
                          up: Progress, Fail; Token if the tail cannot reach the entry
    /tessella/tokens/1    tail to entry: TokenOpen, Token
    /tessella/complete/1  client to entry: Complete, Cancel; back: Begun, Delta, Done, Fail
    /tessella/status/1    anyone: AskStatus; back: Status
    /musivum/tracker/1    a worker: Signed (a Call); anyone: AskPeers, Ask; an operator: Operate;
                          back: Assigned, Accepted, Peers, Document, Fail
    /tessella/assign/1    musivum: Signed (a Call with an Assign); back: Accepted, Fail
    /musivum/ledger/1     anyone: Settle; a worker or client: Signed (a Call with an AskGrant,
                          AskCredits, AskAudit, AuditReport or Marks);
                          back: Settled, Granted, Document, AuditTask, Accepted, Fail
    /tessella/audit/1     an auditor: SignedOrder; back: KeptRows for all positions of the order, or
                          KeptIds, and the stream is finished; Fail

A session's frames carry its id and epoch, so a stream may carry one session after another.
"""

from __future__ import annotations

from tessella.core.messages.answers import AskStatus, Begun, Complete, Delta, Done, Status
from tessella.core.messages.chain import (
    Alternative,
    Cancel,
    End,
    Hidden,
    Open,
    Park,
    Progress,
    Stage,
    Token,
    TokenGrant,
    TokenOpen,
)
from tessella.core.messages.failure import MAX_FAIL_CHARS, Fail
from tessella.core.messages.kinds import (
    KINDS,
    Message,
    decode,
    decode_sealed,
    encode,
    seal,
)
from tessella.core.messages.ledger import (
    AskAudit,
    AskCredits,
    AskGrant,
    AuditOrder,
    AuditReport,
    AuditTask,
    Commit,
    Granted,
    KeptIds,
    KeptRows,
    Mark,
    Marks,
    Proof,
    Settle,
    Settled,
    SignedOrder,
    Ticket,
    TicketStage,
)
from tessella.core.messages.mesh import (
    Accepted,
    Announce,
    Ask,
    AskPeers,
    Assign,
    Assigned,
    Call,
    Deregister,
    Document,
    Operate,
    Peers,
    Ready,
    Register,
    ReportFailure,
    Signed,
)

HOP = "/tessella/hop/1"
TOKENS = "/tessella/tokens/1"
COMPLETE = "/tessella/complete/1"
STATUS = "/tessella/status/1"
TRACKER = "/musivum/tracker/1"
ASSIGN = "/tessella/assign/1"
LEDGER = "/musivum/ledger/1"
AUDIT = "/tessella/audit/1"

__all__ = [
    "ASSIGN",
    "AUDIT",
    "COMPLETE",
    "HOP",
    "KINDS",
    "LEDGER",
    "MAX_FAIL_CHARS",
    "STATUS",
    "TOKENS",
    "TRACKER",
    "Accepted",
    "Alternative",
    "Announce",
    "Ask",
    "AskAudit",
    "AskCredits",
    "AskGrant",
    "AskPeers",
    "AskStatus",
    "Assign",
    "Assigned",
    "AuditOrder",
    "AuditReport",
    "AuditTask",
    "Begun",
    "Call",
    "Cancel",
    "Commit",
    "Complete",
    "Delta",
    "Deregister",
    "Document",
    "Done",
    "End",
    "Fail",
    "Granted",
    "Hidden",
    "KeptIds",
    "KeptRows",
    "Mark",
    "Marks",
    "Message",
    "Open",
    "Operate",
    "Park",
    "Peers",
    "Progress",
    "Proof",
    "Ready",
    "Register",
    "ReportFailure",
    "Settle",
    "Settled",
    "Signed",
    "SignedOrder",
    "Stage",
    "Status",
    "Ticket",
    "TicketStage",
    "Token",
    "TokenGrant",
    "TokenOpen",
    "decode",
    "decode_sealed",
    "encode",
    "seal",
]
