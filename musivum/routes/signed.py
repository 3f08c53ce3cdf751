"""What a node signs: the write path. A body becomes the message that libp2p carries.

The signature is in the headers (see `core.signed_request`), over the body as it came.
"""

from __future__ import annotations

import json
import re
from typing import Annotated, Any

from fastapi import FastAPI, Request, Security
from starlette.datastructures import Headers

from musivum.admission import Admission, SignedCall
from musivum.bodies.calls import (
    AcceptedBody,
    AnnounceBody,
    DeregisterBody,
    ReadyBody,
    RegisterBody,
    Registered,
    ReportBody,
)
from musivum.bodies.fields import Span
from musivum.bodies.rules import FEW
from musivum.doors.tracker import Rooms
from musivum.pages.mesh import assigned
from musivum.routes.public import Nothing
from tessella.core.errors import BadManifest, BadRequest, BadSignature, NotAuthorized
from tessella.core.identity import SIGNATURE_BYTES, public_key_of
from tessella.core.ids import ModelId, PeerId
from tessella.core.layers import LayerRange
from tessella.core.messages import Accepted, Announce, Assigned, Register, ReportFailure
from tessella.core.signed_request import (
    CREATED,
    DIGEST,
    HEADERS,
    NONCE,
    PEER,
    PURPOSE_HTTP,
    SIGNATURE,
    query_of,
    read_proof,
    signed_text,
)
from tessella.core.signed_request import Request as SignedRequest
from tessella.web.errors import answers
from tessella.web.signed_docs import SIGNATURE_SCHEME, SIGNED_HEADERS

REFUSED = (401, 403, 413, 429)


def add_signed_routes(app: FastAPI, rooms: Rooms) -> None:
    """The routes of nodes."""
    room = rooms.orchestrator

    @app.post("/register", **documented("register", *REFUSED, 409, 503))
    async def register(
        request: Request, body: Annotated[RegisterBody, FEW], _: Nothing
    ) -> Registered:
        """Join with a claim: this is where the layer split is computed."""
        rooms.admission.check_policy(PeerId(body.peer_id))
        _check_identity(body, request.headers)
        peer_id = await admitted(request, rooms)
        given = await room.register(peer_id, _register(body))
        return Registered(
            assignment=assigned(body.model_id, given.layers),
            heartbeat_seconds=given.heartbeat_seconds,
            peers=rooms.pages.next_hops(ModelId(body.model_id), given.layers),
        )

    @app.post("/announce", **documented("announce", *REFUSED, 404))
    async def announce(
        request: Request, body: Annotated[AnnounceBody, FEW], _: Nothing
    ) -> AcceptedBody:
        """A heartbeat: liveness, queue depth, health, progress of a load."""
        peer_id = await admitted(request, rooms)
        said = body.model_dump(exclude={"role"})
        return _accepted(rooms, peer_id, room.announce(peer_id, Announce(**said)))

    @app.post("/ready", **documented("ready", *REFUSED, 404, 409, 503))
    async def ready(request: Request, body: Annotated[ReadyBody, FEW], _: Nothing) -> AcceptedBody:
        """Shards loaded: I serve now."""
        peer_id = await admitted(request, rooms)
        await room.ready(peer_id, _range(body.layers))
        return AcceptedBody()

    @app.post("/deregister", **documented("deregister", *REFUSED, 503))
    async def deregister(
        request: Request, body: Annotated[DeregisterBody, FEW], _: Nothing
    ) -> AcceptedBody:
        """Leave cleanly."""
        await room.deregister(await admitted(request, rooms))
        return AcceptedBody()

    @app.post("/report_failure", **documented("report_failure", *REFUSED, 404, 409))
    async def report_failure(
        request: Request, body: Annotated[ReportBody, FEW], _: Nothing
    ) -> AcceptedBody:
        """A peer that failed, so that it is looked at."""
        peer_id = await admitted(request, rooms)
        room.report_failure(peer_id, ReportFailure(PeerId(body.peer_id), body.code))
        return AcceptedBody()


def documented(name: str, *statuses: int, path: str = "") -> dict[str, Any]:
    """What the OpenAPI document says of a signed route; `path` is `/{name}` if left out."""
    return {
        "operation_id": name,
        "summary": path or f"/{name}",
        "responses": answers(*statuses),
        "dependencies": [Security(SIGNATURE_SCHEME)],
        "openapi_extra": {"parameters": SIGNED_HEADERS},
    }


async def admitted(request: Request, rooms: Rooms, admission: Admission | None = None) -> PeerId:
    """Who calls, once everything in `admission` held; by default that of nodes."""
    admission = admission or rooms.admission
    _check_signed(request.headers, admission)
    proof = read_proof(request.headers)
    asked = SignedRequest(
        method=request.method,
        path=request.url.path,
        query=query_of(request.query_params.multi_items()),
        body=await request.body(),
        audience=rooms.pages.ourselves,
    )
    if proof.digest != asked.digest:
        admission.check_policy(proof.peer_id)
        raise BadSignature(f"header {DIGEST}: not that of this body")
    created, nonce = request.headers[CREATED], request.headers[NONCE]
    call = SignedCall(
        peer_id=proof.peer_id,
        created=proof.created,
        nonce=proof.nonce,
        purpose=PURPOSE_HTTP,
        payload=signed_text(asked, proof.peer_id, created, nonce),
        signature=proof.signature,
    )
    admission.admit(call, rooms.books.clocks.wall(), overheard=True)
    return proof.peer_id


def _check_signed(headers: Headers, admission: Admission) -> None:
    missing = [name for name in HEADERS if name not in headers]
    if missing and PEER not in missing:
        admission.check_policy(PeerId(headers[PEER]))
    if missing:
        raise BadSignature(f"not signed: header {missing[0]} is missing")
    if not re.fullmatch(f"[0-9a-f]{{{2 * SIGNATURE_BYTES}}}", headers[SIGNATURE]):
        raise BadSignature(f"header {SIGNATURE}: {2 * SIGNATURE_BYTES} hex digits")


def _check_identity(body: RegisterBody, headers: Headers) -> None:
    caller = headers.get(PEER, body.peer_id)
    if caller != body.peer_id:
        raise NotAuthorized(f"a registration of {body.peer_id} in a call of {caller}")
    if public_key_of(body.peer_id).hex() != body.public_key:
        raise BadSignature(f"public_key is not the key of {body.peer_id}")


def _register(body: RegisterBody) -> Register:
    if body.shape.get("layers") != body.total_layers:
        raise BadManifest(f"total_layers = {body.total_layers}: the shape says otherwise")
    return Register(
        model=ModelId(body.model_id),
        contract=body.contract,
        shape=json.dumps(body.shape).encode(),
        addrs=tuple(body.p2p_addrs),
        claim_mb=body.vram_mb,
        device=body.device,
        dtype=body.dtype,
        context=body.context_size,
        slots=body.parallel_slots,
        kv=body.kv_cache_type or body.dtype,
        api_url=body.api_addr,
        wanted=None if body.layers is None else _range(body.layers),
        weights=body.weights,
        canary=body.canary,
    )


def _range(layers: Span) -> LayerRange:
    try:
        return LayerRange(*layers)
    except ValueError as exc:
        raise BadRequest(f"layers: {exc}") from None


def _accepted(rooms: Rooms, peer_id: PeerId, answer: Accepted | Assigned) -> AcceptedBody:
    if isinstance(answer, Accepted):
        return AcceptedBody()
    model = rooms.books.roster.node(peer_id).row.model
    return AcceptedBody(assignment=assigned(model, answer.layers))
