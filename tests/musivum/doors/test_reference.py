"""docs/api.md against a run: its examples have the fields of real answers, its errors exist, and
its signature verifies."""

from __future__ import annotations

import hashlib
import json
import re
from base64 import b64encode, urlsafe_b64decode
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import trio
from trio.testing import MockClock

from musivum import admission, operator
from musivum.audit_room import NoAudits
from musivum.config import MusivumConfig
from musivum.doors import settling
from musivum.doors.questions import LEDGER, OPERATOR, PUBLIC
from musivum.federation.partners import Partner
from musivum.pages.mesh import MAX_NEXT_HOPS
from musivum.placing import node_calls, probes
from musivum.routes import BODIES, http_app
from musivum.routes.federation import FORGET, STATUS
from musivum.routes.ledger import BATCH, CREDITS, DONE, GRANT, REPORT, TASK
from musivum.testing_http import BASE_URL, Body, Door, HttpNode, answering, http_node
from p2p.testing import MemoryNetwork
from tessella.core import call_rules
from tessella.core.contracts import contract_of
from tessella.core.errors import TessellaError
from tessella.core.identity import Identity, check_signature
from tessella.core.ids import PeerId
from tessella.core.messages import AuditTask, SignedOrder, Ticket, decode_sealed
from tessella.core.proofs import MAX_BATCH
from tessella.core.shape_json import encode_shape
from tessella.core.shapes import ModelShape, Rope
from tessella.core.signed_request import (
    NONCE,
    PURPOSE_HTTP,
    Request,
    check_answer,
    sign_request,
    signed_text,
)
from tessella.web.bodies import MAX_HEADER_BYTES, MAX_HEADER_LINES
from tessella.web.errors import type_of
from tessella.web.server import ServeLimits
from tests.core.work import Work
from tests.musivum.federation.light import url_of
from tests.musivum.federation.whole import SNAPSHOT, Apps
from tests.musivum.federation.whole import musivum as another_musivum
from tests.musivum.federation.whole import signed as signed_page

REFERENCE = Path(__file__).parents[3] / "docs" / "api.md"
MUSIVUM_SEED = b"m" * 32
PARTNER = Identity(b"A" * 32)
SEEDS = [bytes([number]) * 32 for number in (1, 2, 3)]
TOKEN = "the-operators-token"
MODEL = "smollm2-135m-instruct"
SHAPE = ModelShape(
    family="llama",
    layers=30,
    hidden=576,
    intermediate=1536,
    heads=9,
    kv_heads=3,
    head_dim=64,
    vocab=49152,
    context=8192,
    tied=True,
    rope=Rope(theta=100000.0),
)
SERVED: Body = {
    "model_id": MODEL,
    "total_layers": 30,
    "contract": contract_of(SHAPE),
    "shape": json.loads(encode_shape(SHAPE)),
    "context_size": 2048,
    "parallel_slots": 4,
}
SIGNED = ("/register", "/announce", "/ready", "/deregister", "/report_failure", REPORT)
CLAIMS = (376, 369, 347)
# Of every route, or of every signed one; they stand in the table alone.
EVERYWHERE = {400, 401, 403, 413, 429}


BEARER = {"Authorization": f"Bearer {TOKEN}"}
Seen = dict[str, dict[str, Any]]


class Measured:
    """The bodies and answers of calls, by method and path."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client
        self.seen: Seen = {}

    async def said(self, node: HttpNode, path: str, body: Body) -> None:
        answer = (await node.call(path, body)).raise_for_status()
        self.seen[f"POST {path}"] = {"body": body, "answer": answer.json()}

    async def read(self, path: str, **query: object) -> None:
        params = {key: str(value) for key, value in query.items()}
        answer = await self._client.get(path, params=params, headers=BEARER)
        self.seen[f"GET {path}"] = {"answer": answer.json()}

    async def asked(self, node: HttpNode, path: str, **query: object) -> Any:
        answer = (await node.read(path, **query)).raise_for_status().json()
        self.seen[f"GET {path}"] = {"answer": answer}
        return answer

    async def brought(self, path: str, body: Body) -> None:
        answer = (await self._client.post(path, json=body)).raise_for_status()
        self.seen[f"POST {path}"] = {"body": body, "answer": answer.json()}

    async def ordered(self, path: str, body: Body | None) -> None:
        answer = await self._client.post(path, json=body, headers=BEARER)
        self.seen[f"POST {path}"] = {"body": body, "answer": answer.raise_for_status().json()}


async def measured() -> Seen:
    """Every route, by a mesh of three nodes of which the last is loading at first."""
    net, ours, others = MemoryNetwork(), Identity(MUSIVUM_SEED), Apps()
    listed = MusivumConfig(federation=(Partner(PARTNER.peer_id, url_of(PARTNER)),))
    async with (
        another_musivum(PARTNER, (ours,), others),
        answering(net, MUSIVUM_SEED, listed, token=TOKEN, to_nodes=others) as door,
        http_node(net, SEEDS[0], door) as first,
        http_node(net, SEEDS[1], door) as second,
        http_node(net, SEEDS[2], door) as last,
    ):
        to = Measured(door.client)
        await nodes_join(to, first, second, last)
        await to.said(first, "/report_failure", {"peer_id": second.peer_id, "code": "peer_silent"})
        await anybody_reads(to, last)
        await to.read("/reputation", peer_id=second.peer_id)
        await work_is_paid(to, [first, second, last])
        await somebody_audits(to, door, last)
        await the_ledger_is_read(to, second)
        await partners_follow(to, door)
        await the_operator_publishes(to)
        await to.said(first, "/deregister", {})
        await first.join(**SERVED, vram_mb=CLAIMS[0], layers=[0, 9])
        await second.join(**SERVED, vram_mb=CLAIMS[1], layers=[0, 8])
        await to.ordered("/rebalance", None)
        return to.seen


async def nodes_join(to: Measured, first: HttpNode, second: HttpNode, last: HttpNode) -> None:
    await second.register(
        **SERVED, vram_mb=CLAIMS[1], layers=[9, 22], api_addr="http://10.0.0.3:8080"
    )
    await second.call("/ready", {"layers": [9, 22]})
    more: Body = {"kv_cache_type": "f32", "weights": "q4_1", "canary": False}
    more |= {"api_addr": "http://10.0.0.2:8080", "layers": [0, 9]}
    await to.said(first, "/register", first.registration(**SERVED, vram_mb=CLAIMS[0], **more))
    await last.register(**SERVED, vram_mb=CLAIMS[2], api_addr="http://10.0.0.4:8080")
    await to.said(first, "/ready", {"layers": [0, 9]})
    beat = {"status": "Healthy", "role": "entry", "queue_depth": 1, "step_ms": 21.5}
    await to.said(first, "/announce", beat)
    load = {"status": "PendingLoad", "loaded_bytes": 0, "total_bytes": 52_000_000}
    await last.call("/announce", load)
    await trio.sleep(9)
    await last.call("/announce", {**load, "loaded_bytes": 20_800_000})


async def anybody_reads(to: Measured, last: HttpNode) -> None:
    for path in ("/peers", "/workers", "/model_health"):
        await to.read(path, model_id=MODEL)
    for path in ("/api/network/models", "/p2p_id", "/status"):
        await to.read(path)
    await to.read("/api/v1/assignment", model_id=MODEL, vram_mb=400)
    await to.read("/api/v1/chain", model_id=MODEL)
    to.seen["error"] = to.seen["GET /api/v1/chain"]
    await last.call("/ready", {"layers": [22, 30]})
    await to.read("/api/v1/chain", model_id=MODEL)


async def work_is_paid(to: Measured, nodes: list[HttpNode]) -> None:
    grant = await to.asked(nodes[0], GRANT, model_id=MODEL, max_tokens=512)
    payload = urlsafe_b64decode(grant["ticket"] + "=" * (-len(grant["ticket"]) % 4))
    work = Work([node.identity for node in nodes])
    work.ticket, work.payload = decode_sealed(payload, Ticket), payload
    work.signature = bytes.fromhex(grant["signature"])
    proofs = [work.proof(place) for place in range(3)]
    bodies: list[Body] = [
        {"payload": b64encode(each.payload).decode(), "signature": each.signature.hex()}
        for each in proofs
    ]
    await to.brought(DONE, bodies[0])
    await to.brought(BATCH, {"proofs": bodies[1:]})
    await to.asked(nodes[1], CREDITS)


async def somebody_audits(to: Measured, door: Door, node: HttpNode) -> None:
    rooms = replace(door.opened.rooms, audits=OneTask())
    app = http_app(rooms, door.opened.page, door.opened.metrics, rate=None)
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url=BASE_URL) as client:
        auditor = replace(node, client=client)
        await to.asked(auditor, TASK)
        report = {
            "audit_id": "61" * 16, "found": "measured", "tokens": 96, "median": 0.0011,
            "worst": 0.0049, "gain": 1.0002, "reference": "5a" * 32,
        }  # fmt: skip
        await to.said(auditor, REPORT, report)


class OneTask(NoAudits):
    """Has the same task for everybody."""

    async def next_task(self, caller: PeerId) -> AuditTask | None:
        order = SignedOrder(b"order", b"s" * 64)
        where = ("/ip4/10.0.0.2/tcp/4001",)
        return AuditTask(
            audit_id=b"a" * 16,
            proof=b"proof",
            proof_signature=b"s" * 64,
            inputs=order,
            inputs_addrs=where,
            outputs=order,
            outputs_addrs=where,
        )


async def the_ledger_is_read(to: Measured, node: HttpNode) -> None:
    await to.read("/ledger", limit=1)
    await to.read("/ledger/snapshot", since=1, limit=1)
    await to.read("/ledger/head")
    await to.read("/ledger/proof", **{"index": 1, "from": 1})
    await to.read("/credits", peer_id=node.peer_id)
    caught = {"peer_id": node.peer_id, "reason": "skipped a layer", "credits": 0.5, "days": 30}
    await to.ordered("/slash", caught)
    await to.ordered("/appeal", {"peer_id": node.peer_id, "reason": "its auditor was at fault"})


async def partners_follow(to: Measured, door: Door) -> None:
    """The last page that is seen is a partner's; what the operator is given has its fields."""
    await door.opened.rooms.federation.followers[PARTNER.peer_id].pull()
    await to.read(STATUS)
    headers = signed_page(PARTNER, door.peer.peer_id, since=1, limit=1)
    page = await door.client.get(f"{SNAPSHOT}?since=1&limit=1", headers=headers)
    digest = hashlib.sha256(page.raise_for_status().content).hexdigest()
    lines = ("tessella-v1", PARTNER.peer_id, headers[NONCE], "page", digest)
    check_answer(door.peer.peer_id, "\n".join(lines).encode(), page.headers)
    assert fields(page.json()) == fields(to.seen[f"GET {SNAPSHOT}"]["answer"])
    to.seen[f"GET {SNAPSHOT}"] = {"answer": page.json()}
    await to.ordered(FORGET, {"peer_id": PARTNER.peer_id})


async def the_operator_publishes(to: Measured) -> None:
    file = {"name": "model.gguf", "bytes": 98_879_136, "sha256": "5a" * 32}
    manifest = {"model_id": MODEL, "shape": SERVED["shape"], "files": [file]}
    await to.ordered("/weights/manifest", manifest)
    await to.read("/weights/manifest", model_id=MODEL)
    await to.read("/weights/manifests")


def sections() -> dict[str, str]:
    """The text below each heading of a route."""
    parts = re.split(r"^#{2,3} (.+)$", REFERENCE.read_text(), flags=re.MULTILINE)
    found = dict(zip(parts[1::2], parts[2::2], strict=True))
    return {name: text for name, text in found.items() if name.startswith(("GET /", "POST /"))}


def examples(text: str) -> dict[str, Any]:
    """What the JSON blocks of a text hold, by the word after `json`."""
    blocks = re.findall(r"^```json (\w+)\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)
    return {kind: json.loads(block) for kind, block in blocks}


def fields(value: object, path: str = "") -> set[str]:
    """Every field in a JSON value, as a path; those of all items of a list are one item's."""
    if isinstance(value, dict):
        below = (fields(each, f"{path}.{key}") for key, each in value.items())
        return {f"{path}.{key}" for key in value}.union(*below)
    if isinstance(value, list):
        return set().union(*(fields(each, f"{path}[]") for each in value))
    return set()


async def test_every_route_has_its_section(autojump_clock: MockClock) -> None:
    seen = await measured()
    routes = {f"GET {path}" for path in (*PUBLIC, "/status", "/metrics")}
    routes |= {f"{each.method} {each.path}" for each in OPERATOR.values()}
    routes |= {f"POST {path}" for path in (*SIGNED, DONE, BATCH)}
    routes |= {f"GET {path}" for path in (*LEDGER, GRANT, CREDITS, TASK, STATUS)} | {
        f"POST {FORGET}"
    }
    assert set(sections()) == routes
    assert set(seen) == routes - {"GET /metrics"} | {"error"}


async def test_examples_have_the_fields_of_real_answers(autojump_clock: MockClock) -> None:
    seen = await measured()
    for route, text in sections().items():
        told = examples(text)
        for kind in ("body", "answer"):
            real = seen.get(route, {}).get(kind)
            assert (kind in told) == (real is not None), route
            if real is not None:
                assert fields(told[kind]) == fields(real), f"{route} {kind}"
    (error,) = examples(REFERENCE.read_text().split("## Limits")[0]).values()
    assert fields(error) == fields(seen["error"]["answer"])


async def test_errors_of_each_route_are_those_that_openapi_has(
    autojump_clock: MockClock,
) -> None:
    async with answering(MemoryNetwork(), MUSIVUM_SEED, MusivumConfig()) as door:
        paths = (await door.client.get("/openapi.json")).json()["paths"]
    for route, text in sections().items():
        method, path = route.split()
        documented = {int(each) for each in paths[path][method.lower()]["responses"]} - {200}
        line = re.search(r"^Errors: (.+)\.$", text, flags=re.MULTILINE)
        told = dict(re.findall(r"`(\d{3}) (\w+)`", line[1] if line else ""))
        assert {int(each) for each in told} - EVERYWHERE == documented - EVERYWHERE, route
        assert all(CODES[code] == int(status) for status, code in told.items())


def codes(error: type[TessellaError]) -> dict[str, int]:
    found = {error.code: error.status}
    for each in error.__subclasses__():
        found |= codes(each)
    return found


CODES = codes(TessellaError)
HTTP_ONLY = {"method_not_allowed": 405, "request_timeout": 408, "headers_too_large": 431}


def test_the_errors_in_the_table_are_those_of_the_tree() -> None:
    rows = re.findall(r"^\| (\d{3}) \| `(\w+)` \|", REFERENCE.read_text(), flags=re.MULTILINE)
    assert len(rows) > 20
    for status, code in rows:
        assert {**CODES, **HTTP_ONLY}[code] == int(status)
        assert type_of(int(status))


def test_limits_are_those_of_the_program() -> None:
    text, config, served = REFERENCE.read_text(), MusivumConfig(), ServeLimits()
    kib = {path: f"`{path}` {most // 1024} KiB" for path, most in BODIES.larger.items()}
    batch = f"`{BATCH}` {BODIES.of(BATCH) / 2**20:g} MiB"
    for limit in (
        f"{config.requests_per_second:g} a second on average, {config.request_burst} at once",
        f"{served.connections} in all, {served.per_address} of one address",
        f"{BODIES.default // 1024} KiB; {kib['/register']}; {kib['/weights/manifest']}; {batch}",
        f"{settling.PROOFS_PER_SECOND:g} a second on average, {settling.PROOF_BURST} at once",
        f"{MAX_BATCH} in a batch",
        f"positions of one ticket | {config.max_ticket_tokens:,} (`max_ticket_tokens`)",
        f"{config.mint_daily_cap:,} credits (`mint_daily_cap`)",
        f"{MAX_HEADER_LINES} lines, {MAX_HEADER_BYTES // 1024} KiB",
        f"{admission.MAX_NONCES_PER_PEER:,} in {call_rules.NONCE_SECONDS:g} s",
        f"{probes.MAX_REPORTS} in {probes.REPORT_WINDOW:g} s",
        f"{operator.MAX_FAILURES} in {operator.FAILURE_WINDOW:g} s",
        f"{config.max_nodes_per_network} (`max_nodes_per_network`)",
        f"all of it may take {node_calls.CHALLENGE_SECONDS:g} s",
        f"named as next hops | {MAX_NEXT_HOPS} |",
        f"more than {call_rules.PAST_SECONDS:g} s ago, more than {call_rules.FUTURE_SECONDS:g} s",
    ):
        assert limit in text


def test_the_example_of_a_signature_verifies() -> None:
    section = REFERENCE.read_text().split("## Signed requests")[1]
    lines, sent = re.findall(r"^```text\n(.*?)\n```$", section, flags=re.MULTILINE | re.DOTALL)[:2]
    node, musivum = Identity(b"\1" * 32), Identity(MUSIVUM_SEED)
    asked = Request("POST", "/ready", (), b'{"layers":[0,9]}', musivum.peer_id)
    headers = dict(line.lower().split(": ") for line in sent.splitlines())
    cased = dict(line.split(": ") for line in sent.splitlines())
    created, nonce = headers["tessella-created"], headers["tessella-nonce"]
    assert signed_text(asked, node.peer_id, created, nonce) == lines.encode()
    signature = bytes.fromhex(headers["tessella-signature"])
    assert check_signature(node.peer_id, PURPOSE_HTTP, lines.encode(), signature)
    made = sign_request(asked, node, float(created), bytes.fromhex(nonce))
    assert {name.title(): value for name, value in made.items()} == cased
