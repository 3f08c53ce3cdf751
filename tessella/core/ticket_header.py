"""A ticket as an HTTP header: `Tessella-Ticket: PAYLOAD.SIGNATURE`, both in base64url."""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode

from tessella.core.errors import BadRequest
from tessella.core.frames import KIB
from tessella.core.identity import SIGNATURE_BYTES

TICKET = "tessella-ticket"
# A ticket of sixty-four stages and as many spares. All headers together have less room.
MAX_CHARS = 32 * KIB
PATTERN = r"^[A-Za-z0-9_-]+\.[A-Za-z0-9_-]{86}$"

_MATCH = re.compile(PATTERN)


def ticket_header(payload: bytes, signature: bytes) -> str:
    """The value of the header."""
    return f"{_encode(payload)}.{_encode(signature)}"


def read_ticket_header(value: str) -> tuple[bytes, bytes]:
    """The payload and the signature. Raises BadRequest for a value that is none."""
    if len(value) > MAX_CHARS or not _MATCH.fullmatch(value):
        raise BadRequest(f"header {TICKET}: a ticket and its signature, in base64url")
    payload, _, signature = value.partition(".")
    try:
        found = _decode(payload), _decode(signature)
    except ValueError:
        raise BadRequest(f"header {TICKET}: not base64url") from None
    if len(found[1]) != SIGNATURE_BYTES:
        raise BadRequest(f"header {TICKET}: a signature has {SIGNATURE_BYTES} bytes")
    return found


def _encode(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def _decode(text: str) -> bytes:
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))
