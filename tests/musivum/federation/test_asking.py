"""One call of a partner: nobody but it can answer, and nothing is read that is too long."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from musivum.federation.asking import MAX_ANSWER, SNAPSHOT, Caller, answer_headers, ask_page
from musivum.federation.partners import Partner
from tessella.core.errors import (
    BadFrame,
    BadSignature,
    PeerUnreachable,
    RemoteFailure,
    TessellaError,
)
from tessella.core.identity import PURPOSE_TRACKER, Identity, check_signature
from tessella.core.ids import PeerId
from tessella.core.signed_request import (
    CREATED,
    NONCE,
    PEER,
    PURPOSE_HTTP,
    Request,
    query_of,
    read_proof,
    signed_text,
)
from tests.core.work import NOW
from tests.musivum.federation.script import PARTNER, of_payments, page_of

US = Identity(b"U" * 32)
THEM = Partner(PARTNER.peer_id, "https://mesh.example.org/behind")
BODY = page_of(of_payments(3), 1).model_dump_json().encode()

Answers = Callable[[httpx.Request], httpx.Response]


def answers(body: bytes, by: Identity = PARTNER, status: int = 200) -> Answers:
    """A partner that answers with these bytes, signed by somebody."""

    def answer(request: httpx.Request) -> httpx.Response:
        nonce = bytes.fromhex(request.headers[NONCE])
        headers = answer_headers(by, PeerId(request.headers[PEER]), nonce, body)
        return httpx.Response(status, headers=headers, content=body)

    return answer


def caller(answer: Answers) -> Caller:
    """We, and whatever answers us."""
    return Caller(US, httpx.AsyncClient(transport=httpx.MockTransport(answer)))


async def test_a_page_is_asked_for_with_a_signature_for_the_partner_alone() -> None:
    asked: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        return answers(BODY)(request)

    found = await ask_page(caller(answer), THEM, 1, NOW)
    assert (found.latest.head.size, len(found.payloads)) == (3, 2)
    (request,) = asked
    assert (request.method, request.url.path) == ("GET", f"/behind{SNAPSHOT}")
    assert dict(request.url.params) == {"since": "1", "limit": "1000"}
    proof = read_proof(request.headers)
    # What the partner sees behind its proxy is what is signed, and for it.
    seen = Request("GET", SNAPSHOT, query_of(request.url.params.multi_items()), b"", THEM.peer_id)
    text = signed_text(seen, US.peer_id, request.headers[CREATED], request.headers[NONCE])
    check_signature(US.peer_id, PURPOSE_HTTP, text, proof.signature)
    with pytest.raises(BadSignature):
        check_signature(US.peer_id, PURPOSE_TRACKER, text, proof.signature)


@pytest.mark.parametrize(
    ("name", "answer", "error"),
    [
        ("by another key", answers(BODY, US), BadSignature),
        ("by nobody", lambda request: httpx.Response(200, content=BODY), BadSignature),
        ("too long", answers(b" " * (MAX_ANSWER + 1)), BadFrame),
        ("no JSON", answers(b"<html>"), BadFrame),
        ("another object", answers(b"{}"), BadFrame),
        ("an error", answers(b"{}", status=503), RemoteFailure),
    ],
)
async def test_what_is_no_answer_of_the_partner_is_none(
    name: str, answer: Answers, error: type[TessellaError]
) -> None:
    with pytest.raises(error):
        await ask_page(caller(answer), THEM, 1, NOW)


async def test_an_older_answer_is_not_taken_for_this_one() -> None:
    kept: list[httpx.Response] = []

    def between(request: httpx.Request) -> httpx.Response:
        kept.append(answers(BODY)(request))
        return httpx.Response(200, headers=kept[0].headers, content=kept[0].content)

    here = caller(between)
    await ask_page(here, THEM, 1, NOW)
    with pytest.raises(BadSignature):
        await ask_page(here, THEM, 1, NOW)


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("of another place", {"since": 0}),
        ("with a field too many", {"more": 1}),
        ("with numbers for entries", {"entries": [1]}),
        ("with an entry that is no base64", {"entries": ["&"]}),
        ("with too many entries", {"entries": ["AA=="] * 1001}),
        ("with a signature that is no hex", {"head": {"signature": "xy"}}),
    ],
)
async def test_what_is_no_page_is_named(name: str, changes: dict[str, Any]) -> None:
    plain = json.loads(BODY)
    head = {**plain["head"], **changes.get("head", {})}
    body = json.dumps({**plain, **changes, "head": head}).encode()
    with pytest.raises(BadFrame, match=f"{PARTNER.peer_id} answered with"):
        await ask_page(caller(answers(body)), THEM, 1, NOW)


async def test_nobody_there_is_said_with_the_url() -> None:
    def nobody(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused", request=request)

    with pytest.raises(PeerUnreachable, match=r"https://mesh\.example\.org/behind/ledger/snapshot"):
        await ask_page(caller(nobody), THEM, 1, NOW)
