"""Everything peers say to each other: frozen values, and one row that numbers them.

    /tessella/hop/1       down the chain: Open, Hidden, End, Cancel, Park
                          up: Progress, Fail; Token if the tail cannot reach the entry
    /tessella/tokens/1    tail to entry: TokenOpen, Token
    /tessella/complete/1  client to entry: Complete, Cancel; back: Begun, Delta, Done, Fail
    /tessella/status/1    anyone: AskStatus; back: Status
    /musivum/tracker/1    a worker: Signed (a Call); anyone: AskPeers, Ask; an operator: Operate;
                          back: Assigned, Accepted, Peers, Document, Fail
    /tessella/assign/1    musivum: Signed (a Call with an Assign); back: Accepted, Fail

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
from tessella.core.messages.kinds import KINDS, Message, decode, encode, seal
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

__all__ = [
    "ASSIGN",
    "COMPLETE",
    "HOP",
    "KINDS",
    "MAX_FAIL_CHARS",
    "STATUS",
    "TOKENS",
    "TRACKER",
    "Accepted",
    "Alternative",
    "Announce",
    "Ask",
    "AskPeers",
    "AskStatus",
    "Assign",
    "Assigned",
    "Begun",
    "Call",
    "Cancel",
    "Complete",
    "Delta",
    "Deregister",
    "Document",
    "Done",
    "End",
    "Fail",
    "Hidden",
    "Message",
    "Open",
    "Operate",
    "Park",
    "Peers",
    "Progress",
    "Ready",
    "Register",
    "ReportFailure",
    "Signed",
    "Stage",
    "Status",
    "Token",
    "TokenGrant",
    "TokenOpen",
    "decode",
    "encode",
    "seal",
]
