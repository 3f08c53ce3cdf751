"""A signed HTTP request: everything that says what is asked, in one signed text, in headers only.

    Tessella-Peer        who calls: a peer id, which is also the key
    Tessella-Created     when, in seconds since 1970
    Tessella-Nonce       used once, 16 to 128 hex digits
    Tessella-Signature   128 hex digits, over the lines of `signed_text`

The shape is RFC 9421's (method, path, sorted query, content digest, created, nonce, key id), with
nothing to negotiate. In place of the host it binds the peer id of whom the call is for: a proxy
may rewrite the host, and a call to one musivum is worth nothing at another.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tessella.core.errors import BadRequest
from tessella.core.identity import SIGNATURE_BYTES, Identity
from tessella.core.ids import PeerId

PURPOSE_HTTP = b"http"
PEER, CREATED = "tessella-peer", "tessella-created"
NONCE, SIGNATURE = "tessella-nonce", "tessella-signature"
HEADERS = (PEER, CREATED, NONCE, SIGNATURE)
MAX_PEER_CHARS = 64
MIN_NONCE_CHARS, MAX_NONCE_CHARS = 16, 128
# 2**53, up to which a double has every second.
_MAX_CREATED = 1 << 53
_HEX = set("0123456789abcdef")


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked, and of whom."""

    method: str
    path: str
    query: tuple[tuple[str, str], ...]
    """Names and values, decoded."""
    body: bytes
    audience: PeerId
    """The peer id of whoever is called."""


@dataclass(frozen=True, slots=True)
class Proof:
    """What the headers say."""

    peer_id: PeerId
    created: float
    nonce: bytes
    signature: bytes


def signed_text(request: Request, peer_id: str, created: str, nonce: str) -> bytes:
    """The lines that are signed. The query is a JSON array of its sorted [name, value] pairs, so
    that it does not matter how it was encoded on the way."""
    query = json.dumps(sorted(request.query), separators=(",", ":"))
    lines = (
        "tessella-v1",
        request.method.upper(),
        request.path,
        query,
        request.audience,
        hashlib.sha256(request.body).hexdigest(),
        created,
        nonce,
        peer_id,
    )
    return "\n".join(lines).encode()


def sign_request(request: Request, identity: Identity, now: float, nonce: bytes) -> dict[str, str]:
    """The headers of a call. `now` is in seconds since 1970; a nonce is used once."""
    created, used = f"{now:.3f}", nonce.hex()
    text = signed_text(request, identity.peer_id, created, used)
    return {
        PEER: identity.peer_id,
        CREATED: created,
        NONCE: used,
        SIGNATURE: identity.sign(PURPOSE_HTTP, text).hex(),
    }


def read_proof(headers: Mapping[str, str]) -> Proof:
    """What the headers of a call say. Raises BadRequest that names the header."""
    found = {name: headers.get(name, "") for name in HEADERS}
    peer_id, nonce, signature = found[PEER], found[NONCE], found[SIGNATURE]
    if not 1 <= len(peer_id) <= MAX_PEER_CHARS or not peer_id.isalnum():
        raise BadRequest(f"header {PEER}: who calls, by peer id")
    if not MIN_NONCE_CHARS <= len(nonce) <= MAX_NONCE_CHARS or not _is_hex(nonce):
        raise BadRequest(f"header {NONCE}: {MIN_NONCE_CHARS} to {MAX_NONCE_CHARS} hex digits")
    if len(signature) != 2 * SIGNATURE_BYTES or not _is_hex(signature):
        raise BadRequest(f"header {SIGNATURE}: {2 * SIGNATURE_BYTES} hex digits")
    return Proof(
        PeerId(peer_id), _created(found[CREATED]), bytes.fromhex(nonce), bytes.fromhex(signature)
    )


def _created(text: str) -> float:
    whole, _, part = text.partition(".")
    digits = (whole + part).isdecimal() and text.isascii() and len(text) <= 20
    if not digits or not whole or float(text) > _MAX_CREATED:
        raise BadRequest(f"header {CREATED}: seconds since 1970")
    return float(text)


def _is_hex(text: str) -> bool:
    return len(text) % 2 == 0 and set(text) <= _HEX


def query_of(pairs: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """The query of a Request, from names and values in any order."""
    return tuple(sorted(pairs))
