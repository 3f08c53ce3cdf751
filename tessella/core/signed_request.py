"""A signed HTTP request: everything that says what is asked, in one signed text, in headers only.

    Tessella-Peer        who calls: a peer id, which is also the key
    Tessella-Created     when, in seconds since 1970
    Tessella-Nonce       used once, 16 to 128 hex digits
    Tessella-Digest      SHA-256 of the body, 64 hex digits
    Tessella-Signature   128 hex digits, over the lines of `signed_text`

All of it can be checked before a byte of the body is read, and the body while it is. The shape is
RFC 9421's (method, path, sorted query, content digest, created, nonce, key id), with nothing to
negotiate. In place of the host it binds the peer id of whom the call is for: a proxy may rewrite
the host, and a call to one musivum is worth nothing at another.

Between nodes the answer is signed too, over the nonce of the call: HTTPS proves a name, and a name
is no peer.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tessella.core.errors import BadRequest, BadSignature
from tessella.core.identity import SIGNATURE_BYTES, Identity, check_signature
from tessella.core.ids import PeerId

PURPOSE_HTTP = b"http"
PURPOSE_ANSWER = b"http answer"
PEER, CREATED = "tessella-peer", "tessella-created"
NONCE, DIGEST, SIGNATURE = "tessella-nonce", "tessella-digest", "tessella-signature"
HEADERS = (PEER, CREATED, NONCE, DIGEST, SIGNATURE)
MAX_PEER_CHARS = 64
MIN_NONCE_CHARS, MAX_NONCE_CHARS = 16, 128
DIGEST_CHARS = 64
PEER_PATTERN = f"^[0-9A-Za-z]{{1,{MAX_PEER_CHARS}}}$"
NONCE_PATTERN = f"^([0-9a-f]{{2}}){{{MIN_NONCE_CHARS // 2},{MAX_NONCE_CHARS // 2}}}$"
DIGEST_PATTERN = f"^[0-9a-f]{{{DIGEST_CHARS}}}$"
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

    @property
    def digest(self) -> str:
        """The digest of the body, as the header says it."""
        return digest_of(self.body)


@dataclass(frozen=True, slots=True)
class Head:
    """The same while the body is still to come: its digest stands for it."""

    method: str
    path: str
    query: tuple[tuple[str, str], ...]
    digest: str
    audience: PeerId


@dataclass(frozen=True, slots=True)
class Proof:
    """What the headers say."""

    peer_id: PeerId
    created: float
    nonce: bytes
    digest: str
    signature: bytes


def digest_of(body: bytes) -> str:
    """SHA-256 in hex."""
    return hashlib.sha256(body).hexdigest()


def signed_text(request: Request | Head, peer_id: str, created: str, nonce: str) -> bytes:
    """The lines that are signed. The query is a JSON array of its sorted [name, value] pairs, so
    that it does not matter how it was encoded on the way."""
    query = json.dumps(sorted(request.query), separators=(",", ":"))
    lines = (
        "tessella-v1",
        request.method.upper(),
        request.path,
        query,
        request.audience,
        request.digest,
        created,
        nonce,
        peer_id,
    )
    return "\n".join(lines).encode()


def sign_request(request: Request, identity: Identity, now: float, nonce: bytes) -> dict[str, str]:
    """The headers of a call. `now` is in seconds since 1970; a nonce is used once."""
    created, used = f"{now:.3f}", nonce.hex()
    head = Head(request.method, request.path, request.query, request.digest, request.audience)
    text = signed_text(head, identity.peer_id, created, used)
    return {
        PEER: identity.peer_id,
        CREATED: created,
        NONCE: used,
        DIGEST: head.digest,
        SIGNATURE: identity.sign(PURPOSE_HTTP, text).hex(),
    }


def read_proof(headers: Mapping[str, str]) -> Proof:
    """What the headers of a call say. Raises BadRequest that names the header."""
    found = {name: headers.get(name, "") for name in HEADERS}
    peer_id, nonce, signature = found[PEER], found[NONCE], found[SIGNATURE]
    digest = found[DIGEST]
    if not 1 <= len(peer_id) <= MAX_PEER_CHARS or not peer_id.isalnum():
        raise BadRequest(f"header {PEER}: who calls, by peer id")
    if not MIN_NONCE_CHARS <= len(nonce) <= MAX_NONCE_CHARS or not _is_hex(nonce):
        raise BadRequest(f"header {NONCE}: {MIN_NONCE_CHARS} to {MAX_NONCE_CHARS} hex digits")
    if len(digest) != DIGEST_CHARS or not _is_hex(digest):
        raise BadRequest(f"header {DIGEST}: {DIGEST_CHARS} hex digits")
    if len(signature) != 2 * SIGNATURE_BYTES or not _is_hex(signature):
        raise BadRequest(f"header {SIGNATURE}: {2 * SIGNATURE_BYTES} hex digits")
    return Proof(
        PeerId(peer_id),
        _created(found[CREATED]),
        bytes.fromhex(nonce),
        digest,
        bytes.fromhex(signature),
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


def answer_text(caller: PeerId, nonce: bytes, end: str, body: bytes) -> bytes:
    """What is signed of an answer: whom it answers, which call, whether more follows, and what."""
    return "\n".join(("tessella-v1", caller, nonce.hex(), end, digest_of(body))).encode()


def sign_answer(identity: Identity, text: bytes) -> dict[str, str]:
    """The header of an answer with this `answer_text`."""
    return {SIGNATURE: identity.sign(PURPOSE_ANSWER, text).hex()}


def check_answer(signer: PeerId, text: bytes, headers: Mapping[str, str]) -> None:
    """Raises BadSignature for an answer that is not that peer's to this call."""
    signature = headers.get(SIGNATURE, "")
    if len(signature) != 2 * SIGNATURE_BYTES or not _is_hex(signature):
        raise BadSignature(f"an answer that {signer} did not sign")
    check_signature(signer, PURPOSE_ANSWER, text, bytes.fromhex(signature))
