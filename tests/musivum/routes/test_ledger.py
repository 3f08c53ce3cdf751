"""Tickets, proofs, accounts and audits over HTTP."""

from __future__ import annotations

import json
from base64 import b64encode, urlsafe_b64decode
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from typing import Any

import httpx
import pytest
from trio.testing import MockClock

from musivum.audit_room import NoAudits
from musivum.config import MusivumConfig
from musivum.routes import BODIES, http_app
from musivum.routes.ledger import BATCH, CREDITS, DONE, GRANT, REPORT, TASK
from musivum.testing import clock
from musivum.testing_http import BASE_URL, Body, Door, HttpNode, answering, http_node
from p2p.testing import MemoryNetwork
from tessella.core.errors import NotAuthorized
from tessella.core.ids import PeerId
from tessella.core.messages import AuditReport, AuditTask, SignedOrder, Ticket, decode_sealed
from tessella.core.proofs import SignedProof
from tessella.core.tickets import open_ticket
from tessella.web.errors import ErrorBody
from tests.core.work import MUSIVUM, Work, identity

NODE_SEED, CLIENT_SEED = b"n" * 32, b"c" * 32
CONFIG = MusivumConfig(min_vram_mb=0)
NET = MemoryNetwork()


@pytest.fixture
async def door(autojump_clock: MockClock) -> AsyncIterator[Door]:
    async with answering(NET, MUSIVUM.seed, CONFIG) as opened:
        yield opened


@pytest.fixture
async def node(door: Door) -> AsyncIterator[HttpNode]:
    """Serves the whole small model, from q8_0 weights."""
    async with http_node(NET, NODE_SEED, door) as opened:
        api = {"api_addr": opened.api_url, "weights": "q8_0"}
        await opened.join(vram_mb=64, layers=[0, 12], **api)
        yield opened


@pytest.fixture
async def client(door: Door) -> AsyncIterator[HttpNode]:
    """Has a key, and is no node."""
    async with http_node(NET, CLIENT_SEED, door) as opened:
        yield opened


def told(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, ErrorBody.model_validate_json(answer.content).error.code


def a_body(proof: SignedProof) -> Body:
    return {"payload": b64encode(proof.payload).decode(), "signature": proof.signature.hex()}


async def test_a_grant_is_readable_and_holds_as_it_was_signed(
    node: HttpNode, client: HttpNode
) -> None:
    answer = await client.read(GRANT, model_id="small", max_tokens=64)
    grant = answer.raise_for_status().json()
    payload = urlsafe_b64decode(grant["ticket"] + "=" * (-len(grant["ticket"]) % 4))
    ticket = open_ticket(payload, bytes.fromhex(grant["signature"]), {MUSIVUM.peer_id})
    assert (ticket.requester, ticket.request_id.hex()) == (client.peer_id, grant["request_id"])
    assert grant["chain"] == [
        {"peer_id": node.peer_id, "layers": [0, 12], "numeric": "f32/q8_0/f32"}
    ]
    assert (grant["tier"], grant["expires_at"]) == (ticket.tier, ticket.expires_at)
    assert (grant["entry"], grant["api_url"]) == (node.peer_id, node.api_url)
    assert grant["p2p_addrs"] == [f"{addr}/p2p/{node.peer_id}" for addr in node.addrs]
    after = await client.read(GRANT, model_id="small", max_tokens=64, after=grant["request_id"])
    assert after.json()["chain"] == grant["chain"]


async def test_an_entry_behind_a_tunnel_asks_for_the_nameless_too(node: HttpNode) -> None:
    asked = {"model_id": "small", "max_tokens": 9, "anonymous": "true"}
    grant = (await node.read(GRANT, **asked)).raise_for_status().json()
    payload = urlsafe_b64decode(grant["ticket"] + "==")
    assert decode_sealed(payload, Ticket).requester == "anonymous"


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({"model_id": "unknown", "max_tokens": 9}, (404, "unknown_model")),
        ({"model_id": "small", "max_tokens": 131073}, (400, "bad_request")),
        ({"model_id": "small", "max_tokens": 0}, (400, "bad_request")),
        ({"model_id": "small"}, (400, "bad_request")),
        ({"model_id": "small", "max_tokens": 9, "after": "00"}, (400, "bad_request")),
        ({"model_id": "small", "max_tokens": 9, "anonymous": True}, (404, "unknown_worker")),
    ],
)
async def test_a_grant_that_is_refused_says_why(
    query: dict[str, Any], expected: tuple[int, str], node: HttpNode, client: HttpNode
) -> None:
    assert told(await client.read(GRANT, **query)) == expected


async def test_a_model_with_a_hole_is_unavailable(door: Door, node: HttpNode) -> None:
    await node.call("/announce", {"status": "Draining"})
    assert told(await node.read(GRANT, model_id="small", max_tokens=9)) == (
        503,
        "model_unavailable",
    )


@pytest.mark.parametrize("path", [GRANT, CREDITS, TASK])
async def test_what_is_somebodys_own_takes_a_signature(path: str, client: HttpNode) -> None:
    query = {"model_id": "small", "max_tokens": "9"} if path == GRANT else {}
    assert told(await client.client.get(path, params=query)) == (401, "bad_signature")
    # Signed for another query.
    headers = client.sign(client.asked(path, b""))
    assert told(await client.client.get(path, params=query, headers=headers))[0] == 401


async def test_a_proof_is_paid_without_any_signature_around_it(
    door: Door, client: HttpNode
) -> None:
    work = Work([identity(1)], issued_at=clock())
    paid = await door.client.post(DONE, json=a_body(work.proof(0)))
    assert paid.raise_for_status().json() == {
        "became": "paid", "micro": 500_000, "credits": 0.5, "code": "", "text": "",
    }  # fmt: skip
    again = (await door.client.post(DONE, json=a_body(work.proof(0)))).json()
    assert (again["became"], again["credits"]) == ("already_paid", 0.5)


async def test_each_proof_of_a_batch_is_answered_for_itself(door: Door) -> None:
    work = Work([identity(1), identity(2)], issued_at=clock())
    forged = replace(work.proof(0), signature=bytes(64))
    foreign = Work([identity(1)], issuer=identity(8), issued_at=clock()).proof(0)
    proofs = [work.proof(0), forged, foreign, work.proof(1), SignedProof(b"x", bytes(64))]
    answer = await door.client.post(BATCH, json={"proofs": list(map(a_body, proofs))})
    outcomes = answer.raise_for_status().json()["outcomes"]
    assert [(each["became"], each["code"]) for each in outcomes] == [
        ("waiting", ""),
        ("refused", "bad_signature"),
        ("refused", "foreign_ticket"),
        ("paid", ""),
        ("refused", "bad_frame"),
    ]
    account = await door.opened.rooms.ledger.credits(identity(1).peer_id)
    assert account.balance == 500_000


async def test_a_batch_has_room_for_256_proofs_and_no_more(door: Door) -> None:
    work = Work([identity(1)], issued_at=clock())
    body = a_body(work.proof(0))
    full = await door.client.post(BATCH, json={"proofs": [body] * 256})
    outcomes = full.raise_for_status().json()["outcomes"]
    assert [each["became"] for each in outcomes[:2]] == ["paid", "already_paid"]
    over = await door.client.post(BATCH, json={"proofs": [body] * 257})
    assert told(over) == (400, "bad_request")
    assert len(json.dumps({"proofs": [body] * 256})) < BODIES.of(BATCH)
    long = b"x" * (BODIES.of(BATCH) + 1)
    assert told(await door.client.post(BATCH, content=long)) == (413, "body_too_large")


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"payload": "", "signature": "00" * 64},
        {"payload": "AA", "signature": "00" * 64},
        {"payload": "AA==", "signature": "00" * 63},
        {"payload": "AA==", "signature": "zz" * 64},
        {"payload": "A*==", "signature": "00" * 64},
        {"payload": "AA==", "signature": "00" * 64, "more": 1},
        {"payload": "AAAA" * 11_000, "signature": "00" * 64},
    ],
)
async def test_a_proof_that_cannot_be_read_is_400(body: Body, door: Door) -> None:
    assert told(await door.client.post(DONE, json=body)) == (400, "bad_request")
    assert told(await door.client.post(BATCH, json={"proofs": [body]})) == (400, "bad_request")
    assert told(await door.client.post(BATCH, json={"proofs": []})) == (400, "bad_request")


async def test_the_caller_is_told_what_it_owns(door: Door, client: HttpNode) -> None:
    work = Work([client.identity], issued_at=clock())
    await door.client.post(DONE, json=a_body(work.proof(0)))
    account = (await client.read(CREDITS)).raise_for_status().json()
    assert account == {
        "peer_id": client.peer_id, "credits": 0.5, "micro": 500_000, "tier": "standard",
        "micro_earned": 500_000, "micro_earned_day": 500_000, "micro_spent": 0, "waiting": 0,
        "held_against": "",
    }  # fmt: skip


ORDER = SignedOrder(b"order", b"s" * 64)
AUDIT = AuditTask(
    audit_id=b"a" * 16,
    proof=b"p",
    proof_signature=b"s" * 64,
    inputs=ORDER,
    inputs_addrs=("/ip4/10.0.0.1/tcp/1",),
    outputs=ORDER,
    outputs_addrs=(),
)


@dataclass
class Auditing(NoAudits):
    """Has one task for everybody, and takes reports of it alone."""

    heard: list[AuditReport]

    async def next_task(self, caller: PeerId) -> AuditTask | None:
        return AUDIT

    async def report(self, caller: PeerId, report: AuditReport) -> None:
        if report.audit_id != AUDIT.audit_id:
            raise NotAuthorized("not yours")
        self.heard.append(report)


async def test_an_auditor_is_told_what_to_recompute_and_says_what_it_saw(
    door: Door, client: HttpNode
) -> None:
    assert (await client.read(TASK)).json() == {"task": None}
    audits = Auditing([])
    rooms = replace(door.opened.rooms, audits=audits)
    app = http_app(rooms, door.opened.page, door.opened.metrics, rate=None)
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url=BASE_URL) as other:
        auditor = replace(client, client=other)
        task = (await auditor.read(TASK)).raise_for_status().json()["task"]
        assert (task["audit_id"], task["proof"]) == ("61" * 16, "cA==")
        assert task["inputs"] == {"order": "b3JkZXI=", "signature": "73" * 64}
        assert (task["inputs_addrs"], task["outputs_addrs"]) == (["/ip4/10.0.0.1/tcp/1"], [])
        seen = {"audit_id": task["audit_id"], "found": "measured", "tokens": 7, "gain": 1.0}
        assert (await auditor.call(REPORT, seen)).status_code == 200
        assert (audits.heard[0].tokens, audits.heard[0].gain) == (7, 1.0)
        other_audit = {**seen, "audit_id": "00" * 16}
        assert told(await auditor.call(REPORT, other_audit)) == (403, "not_authorized")
        nonsense = {**seen, "found": "nothing"}
        assert told(await auditor.call(REPORT, nonsense)) == (400, "bad_request")
