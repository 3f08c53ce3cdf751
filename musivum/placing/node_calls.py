"""Calls to nodes over HTTP: where they may go, and whether a node's key answers at a URL.

A URL is a stranger's words. It is read, resolved and judged as `tessella.web.targets` does it, no
redirect is followed, and whoever gave it is told nothing of what else answered there.
"""

from __future__ import annotations

import logging
import secrets
from dataclasses import dataclass

import httpx
import trio

from tessella.core.addresses import Cidr, Ip
from tessella.core.call_rules import NONCE_BYTES
from tessella.core.challenge import CHALLENGE_PATH, Challenge
from tessella.core.errors import (
    BadAddress,
    BadSignature,
    PeerGone,
    PeerSilent,
    PeerUnreachable,
    RemoteFailure,
    TessellaError,
)
from tessella.core.frames import KIB
from tessella.core.ids import PeerId
from tessella.web.client import CallLimits, get_bytes
from tessella.web.targets import Target, resolve_target

logger = logging.getLogger(__name__)

# With PROOF_TIMEOUT before it still under the 10 s that a node waits for its registration.
CHALLENGE_SECONDS = 4.0
# A peer id and the addresses of a node, as many as a registration may have.
MAX_CHALLENGE_ANSWER = 16 * KIB


@dataclass(frozen=True, slots=True)
class Http:
    """How nodes are called over HTTP, and in which private networks they may be."""

    client: httpx.AsyncClient
    allow_private: bool | tuple[Cidr, ...]


@dataclass(frozen=True, slots=True)
class UrlProof:
    """What came of a challenge: where the key answered, or why it did not."""

    ip: Ip | None
    failure: str = ""
    """One line that begins with the URL."""


async def prove_url(http: Http, ourselves: PeerId, peer_id: PeerId, api_url: str) -> UrlProof:
    """Challenge whoever answers at a node's URL to sign with the node's key, for us and now.

    Takes CHALLENGE_SECONDS at most, and raises nothing for a peer that does not answer.
    """
    url = api_url.rstrip("/") + CHALLENGE_PATH
    try:
        with trio.fail_after(CHALLENGE_SECONDS):
            target = await resolve_target(url, http.allow_private, public_https=True)
            return UrlProof(await _answered(http.client, ourselves, peer_id, target))
    except trio.TooSlowError:
        reason = "did not answer in time"
    except TessellaError as exc:
        logger.info("no proof of %s at %s: %s: %s", peer_id, url, exc.code, exc)
        reason = _reason(exc)
    return UrlProof(None, f"{url} {reason}")


async def _answered(
    client: httpx.AsyncClient, ourselves: PeerId, peer_id: PeerId, target: Target
) -> Ip:
    """Which address of the target answered, with that peer's signature."""
    limits = CallLimits(answer=MAX_CHALLENGE_ANSWER, seconds=CHALLENGE_SECONDS)
    failed = PeerUnreachable("no address of it is known")
    for ip in target.addresses:
        asked = Challenge(ourselves, secrets.token_bytes(NONCE_BYTES))
        one = Target(target.url, (ip,))
        try:
            headers, body = await get_bytes(client, one, headers=asked.headers(), limits=limits)
        except PeerUnreachable as exc:
            failed = exc
            continue
        asked.check(peer_id, headers, body)
        return ip
    raise failed


def _reason(exc: TessellaError) -> str:
    """What whoever gave the URL is told: not the words of what answers there."""
    match exc:
        case BadAddress():
            return "is not called from here; a public one has to begin with https"
        case BadSignature():
            return "answered without a signature of that key"
        case RemoteFailure():
            return "answered with an error"
        case PeerUnreachable():
            return "cannot be reached"
        case PeerSilent():
            return "did not answer in time"
        case PeerGone():
            return "ended the connection"
    return "answered with something else"
