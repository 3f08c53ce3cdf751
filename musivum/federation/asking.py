"""One call of a partner: a page of its ledger from a place on, signed by us and then by it.

Who calls is in the headers, and so is who answers: the answer is signed over the nonce of the call,
so that nobody between can bring an older page again and have the partner take the blame.
"""

from __future__ import annotations

import secrets
from base64 import b64decode
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

import httpx
from pydantic import ValidationError

from musivum.bodies.ledger import SnapshotBody
from musivum.federation.partners import Partner
from musivum.federation.reading import Seen, see
from musivum.ledger import SignedHead
from tessella.core.call_rules import NONCE_BYTES
from tessella.core.errors import BadFrame, FrameTooLarge
from tessella.core.frames import KIB
from tessella.core.identity import Identity
from tessella.core.ids import PeerId
from tessella.core.ledger import MAX_PAGE_BYTES, MAX_PAGE_ENTRIES
from tessella.core.signed_request import (
    Request,
    answer_text,
    check_answer,
    query_of,
    sign_answer,
    sign_request,
)
from tessella.web.client import CallLimits, get_bytes

SNAPSHOT = "/ledger/snapshot"
# A page in base64, each entry in quotes, and a head.
MAX_ANSWER = MAX_PAGE_BYTES * 4 // 3 + 16 * MAX_PAGE_ENTRIES + 16 * KIB
# A full page over a slow line; a usual one is a tenth of it.
CALL_SECONDS = 30.0
# A page is one answer, and none follows it.
_END = "page"


@dataclass(frozen=True, slots=True)
class Answer:
    """A page as it came: what it says is not compared with anything yet."""

    latest: Seen
    payloads: Sequence[bytes]


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks, and with what."""

    identity: Identity
    client: httpx.AsyncClient


async def ask_page(caller: Caller, partner: Partner, since: int, now: float) -> Answer:
    """A page of a partner's ledger from entry `since` on; `now` is seconds since 1970.

    Raises BadSignature where anybody else answers, BadFrame and FrameTooLarge for what is no page
    from there on, and as `tessella.web.client.get_json` for an answer that does not come.
    """
    query = (("limit", str(MAX_PAGE_ENTRIES)), ("since", str(since)))
    asked = Request("GET", SNAPSHOT, query_of(query), b"", audience=partner.peer_id)
    nonce = secrets.token_bytes(NONCE_BYTES)
    headers, body = await get_bytes(
        caller.client,
        f"{partner.url}{SNAPSHOT}?{urlencode(query)}",
        headers=sign_request(asked, caller.identity, now, nonce),
        limits=CallLimits(answer=MAX_ANSWER, seconds=CALL_SECONDS),
    )
    check_answer(partner.peer_id, _text(caller.identity.peer_id, nonce, body), headers)
    return _read(body, partner.peer_id, since)


def answer_headers(identity: Identity, caller: PeerId, nonce: bytes, body: bytes) -> dict[str, str]:
    """What a partner's call is answered with beside the page."""
    return sign_answer(identity, _text(caller, nonce, body))


def _text(caller: PeerId, nonce: bytes, body: bytes) -> bytes:
    return answer_text(caller, nonce, _END, body)


def _read(body: bytes, origin: PeerId, since: int) -> Answer:
    try:
        page = SnapshotBody.model_validate_json(body)
        payloads = [b64decode(each, validate=True) for each in page.entries]
        head = SignedHead(
            b64decode(page.head.payload, validate=True), bytes.fromhex(page.head.signature)
        )
    except (ValidationError, ValueError, RecursionError) as exc:
        raise BadFrame(f"{origin} answered with what is no page of a ledger") from exc
    if page.since != since or len(payloads) > MAX_PAGE_ENTRIES:
        raise BadFrame(f"{origin} answered with {len(payloads)} entries from {page.since} on")
    size = sum(map(len, payloads))
    if size > MAX_PAGE_BYTES:
        raise FrameTooLarge(size, MAX_PAGE_BYTES)
    return Answer(see(head, origin), payloads)
