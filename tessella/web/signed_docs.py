"""What OpenAPI says of calls that are signed in their headers. What checks them is elsewhere."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from fastapi.security import APIKeyHeader

from tessella.core.signed_request import DIGEST_PATTERN, NONCE_PATTERN, PEER_PATTERN

SIGNATURE_SCHEME = APIKeyHeader(
    name="Tessella-Signature",
    scheme_name="Signature",
    description="128 hex digits: Ed25519 by the key of Tessella-Peer, over the whole request.",
    auto_error=False,
)


def header_parameters(
    rows: Iterable[tuple[str, str, str]], *, required: bool
) -> list[dict[str, Any]]:
    """Headers as OpenAPI has parameters, from the name, pattern and description of each.

    They are not FastAPI's to check: who is not let in hears that before anything else.
    """
    return [
        {
            "name": name,
            "in": "header",
            "required": required,
            "description": text,
            "schema": {"type": "string", "pattern": pattern},
        }
        for name, pattern, text in rows
    ]


SIGNED_HEADERS = header_parameters(
    (
        ("Tessella-Peer", PEER_PATTERN, "Who calls, by peer id."),
        ("Tessella-Created", r"^[0-9]{1,10}(\.[0-9]{1,3})?$", "When, in seconds since 1970."),
        ("Tessella-Nonce", NONCE_PATTERN, "Used once."),
        ("Tessella-Digest", DIGEST_PATTERN, "SHA-256 of the body as it is sent."),
    ),
    required=True,
)
"""What a signature is read with, beside the signature."""
