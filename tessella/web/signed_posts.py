"""Calls that say who makes them, signed in their headers for one peer alone."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass

import httpx

from tessella.core.call_rules import NONCE_BYTES
from tessella.core.identity import Identity
from tessella.core.ids import PeerId
from tessella.core.signed_request import Request, query_of, sign_request
from tessella.web.client import get_json, post_json
from tessella.web.targets import Target


@dataclass(frozen=True, slots=True)
class Caller:
    """Who calls whom."""

    identity: Identity
    audience: PeerId
    """Whom the call is for: at another it is worth nothing."""
    now: float
    """Seconds since 1970."""


async def post_signed(
    client: httpx.AsyncClient, url: str | Target, path: str, body: bytes, caller: Caller
) -> object:
    """What a POST of JSON is answered with, parsed; raises as `post_json`.

    `path` is the URL's own, as the audience sees it: a proxy may stand at a longer one.
    """
    asked = Request("POST", path, (), body, audience=caller.audience)
    nonce = secrets.token_bytes(NONCE_BYTES)
    headers = sign_request(asked, caller.identity, caller.now, nonce)
    return await post_json(client, url, body, headers=headers)


async def get_signed(
    client: httpx.AsyncClient,
    url: str | Target,
    path: str,
    query: Sequence[tuple[str, str]],
    caller: Caller,
) -> object:
    """What a GET is answered with, parsed; raises as `get_json`.

    `path` and `query` are the URL's own, as the audience sees them.
    """
    asked = Request("GET", path, query_of(query), b"", audience=caller.audience)
    nonce = secrets.token_bytes(NONCE_BYTES)
    headers = sign_request(asked, caller.identity, caller.now, nonce)
    return await get_json(client, url, headers=headers)
