"""Whose a URL is: a caller sends what nobody can have signed before, and the node there signs it.

    GET {api_url}/p2p_id             200
    Tessella-Peer: who calls         Tessella-Signature: over caller, nonce and body
    Tessella-Nonce: drawn now        {"peer_id": …, "multiaddrs": […]}

HTTPS proves a name, and a name is no peer. The signature is of the purpose of HTTP answers, and
its end is a word that no other answer has: it can be passed off as nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from tessella.core.errors import BadRequest
from tessella.core.ids import PeerId
from tessella.core.signed_request import (
    MAX_NONCE_CHARS,
    MIN_NONCE_CHARS,
    NONCE,
    NONCE_PATTERN,
    PEER,
    PEER_PATTERN,
    answer_text,
    check_answer,
)

CHALLENGE_PATH = "/p2p_id"
_END = "p2p_id"


@dataclass(frozen=True, slots=True)
class Challenge:
    """What a caller wants signed."""

    caller: PeerId
    nonce: bytes
    """Random, used once, 8 to 64 bytes."""

    def headers(self) -> dict[str, str]:
        """The headers of the call."""
        return {PEER: self.caller, NONCE: self.nonce.hex()}

    def text(self, body: bytes) -> bytes:
        """What `sign_answer` signs for an answer of this body."""
        return answer_text(self.caller, self.nonce, _END, body)

    def check(self, signer: PeerId, headers: Mapping[str, str], body: bytes) -> None:
        """Raises BadSignature for an answer that is not that peer's to this challenge."""
        check_answer(signer, self.text(body), headers)


def read_challenge(headers: Mapping[str, str]) -> Challenge | None:
    """What a caller wants signed; None if it sent neither header.

    Raises BadRequest that names a header which is missing beside the other, or out of its rule.
    """
    if PEER not in headers and NONCE not in headers:
        return None
    caller, nonce = headers.get(PEER, ""), headers.get(NONCE, "")
    if not re.fullmatch(PEER_PATTERN, caller):
        raise BadRequest(f"header {PEER}: who calls, by peer id")
    if not re.fullmatch(NONCE_PATTERN, nonce):
        raise BadRequest(f"header {NONCE}: {MIN_NONCE_CHARS} to {MAX_NONCE_CHARS} hex digits")
    return Challenge(PeerId(caller), bytes.fromhex(nonce))
