"""The row that numbers every message, and the codec that reads the numbers."""

from __future__ import annotations

from typing import Any, TypeVar

from tessella.core.errors import BadFrame
from tessella.core.fields import from_plain, to_plain
from tessella.core.frames import pack, unpack
from tessella.core.messages.answers import AskStatus, Begun, Complete, Delta, Done, Status
from tessella.core.messages.chain import (
    Cancel,
    End,
    Hidden,
    Open,
    Park,
    Progress,
    Token,
    TokenGrant,
    TokenOpen,
)
from tessella.core.messages.failure import Fail
from tessella.core.messages.ledger import (
    AskAudit,
    AskCredits,
    AskGrant,
    AuditOrder,
    AuditReport,
    AuditTask,
    Granted,
    KeptIds,
    KeptRows,
    Marks,
    Proof,
    Settle,
    Settled,
    SignedOrder,
    Ticket,
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
    Ask,
    Document,
    Operate,
    Assign,
    Ticket,
    Proof,
    AskGrant,
    Granted,
    Settle,
    Settled,
    AskCredits,
    AskAudit,
    AuditOrder,
    SignedOrder,
    AuditTask,
    KeptRows,
    KeptIds,
    AuditReport,
    Marks,
)
_NUMBERS = {kind: number for number, kind in enumerate(KINDS)}

T = TypeVar("T")
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


def decode_sealed(payload: bytes, kind: type[T]) -> T:
    """The inverse of `seal` for a message of one kind. Raises BadFrame for any other."""
    message = decode(payload)
    if not isinstance(message, kind):
        raise BadFrame(f"{type(message).__name__} in place of a {kind.__name__}")
    return message
