"""What is asked and brought about work and its pay: tickets, proofs, accounts, audits.

A ticket, an account and an audit are asked for with a signature in the headers. Proofs carry
theirs inside, and anyone may bring them.
"""

from __future__ import annotations

from base64 import b64decode
from typing import Annotated

from fastapi import FastAPI, Query, Request

from musivum.bodies.calls import AcceptedBody
from musivum.bodies.ledger import (
    AuditReportBody,
    CreditsBody,
    GrantArguments,
    GrantBody,
    OutcomeBody,
    OutcomesBody,
    ProofBody,
    ProofsBody,
    TasksBody,
)
from musivum.bodies.rules import FEW
from musivum.doors.tracker import Rooms
from musivum.pages.ledger import credits_body
from musivum.pages.ledger_words import grant_body, outcome_body, task_body
from musivum.routes.public import Nothing
from musivum.routes.signed import REFUSED, admitted, documented
from tessella.core.ids import ModelId
from tessella.core.messages import AskGrant, AuditReport
from tessella.core.proofs import SignedProof
from tessella.web.errors import answers

GRANT, CREDITS = "/api/v1/session_grant", "/api/v1/credits"
TASK, REPORT = "/api/v1/audit_task", "/api/v1/audit_report"
DONE, BATCH = "/work_done", "/api/v1/work_done_batch"
# Of what is signed and has no body.
_READ = (401, 403, 429)
_UNKNOWN = "0.0.0.0"


def add_ledger_routes(app: FastAPI, rooms: Rooms) -> None:
    """The routes of requesters, workers and auditors."""
    _add_asks(app, rooms)
    _add_audits(app, rooms)
    _add_proofs(app, rooms)


def _add_asks(app: FastAPI, rooms: Rooms) -> None:
    @app.get(GRANT, **documented("session_grant", *_READ, 404, 503, path=GRANT))
    async def session_grant(
        request: Request, asked: Annotated[GrantArguments, Query()]
    ) -> GrantBody:
        """The ticket of a session that is about to begin, and the entry of its chain."""
        caller = await admitted(request, rooms)
        grant = AskGrant(
            model=ModelId(asked.model_id),
            max_tokens=asked.max_tokens,
            anonymous=asked.anonymous,
            after=bytes.fromhex(asked.after),
        )
        return grant_body(await rooms.grants.grant(caller, grant))

    @app.get(CREDITS, **documented("own_credits", *_READ, 503, path=CREDITS))
    async def own_credits(request: Request, _: Nothing) -> CreditsBody:
        """What the caller owns, and the tier that this earns."""
        peer_id = await admitted(request, rooms)
        return credits_body(await rooms.ledger.credits(peer_id), rooms.audits.held_against(peer_id))


def _add_audits(app: FastAPI, rooms: Rooms) -> None:
    @app.get(TASK, **documented("audit_task", *_READ, 503, path=TASK))
    async def audit_task(request: Request, _: Nothing) -> TasksBody:
        """Something for the caller to audit, if there is anything."""
        task = await rooms.audits.next_task(await admitted(request, rooms))
        return TasksBody(task=None if task is None else task_body(task))

    @app.post(REPORT, **documented("audit_report", *REFUSED, 503, path=REPORT))
    async def audit_report(
        request: Request, body: Annotated[AuditReportBody, FEW], _: Nothing
    ) -> AcceptedBody:
        """What a sampled audit saw."""
        caller = await admitted(request, rooms)
        await rooms.audits.report(caller, _report(body))
        return AcceptedBody()


def _report(body: AuditReportBody) -> AuditReport:
    return AuditReport(
        audit_id=bytes.fromhex(body.audit_id),
        found=body.found,
        tokens=body.tokens,
        median=body.median,
        worst=body.worst,
        gain=body.gain,
        reference=bytes.fromhex(body.reference),
    )


def _add_proofs(app: FastAPI, rooms: Rooms) -> None:
    refused = answers(413, 429, 503)

    @app.post(DONE, operation_id="work_done", summary=DONE, responses=refused)
    async def work_done(
        request: Request, body: Annotated[ProofBody, FEW], _: Nothing
    ) -> OutcomeBody:
        """Settle one proof. Whoever brings it, it is authorised by what is signed in it."""
        (outcome,) = await _settled(request, rooms, [body])
        return outcome

    @app.post(BATCH, operation_id="work_done_batch", summary=BATCH, responses=refused)
    async def work_done_batch(
        request: Request, body: Annotated[ProofsBody, FEW], _: Nothing
    ) -> OutcomesBody:
        """Settle up to 256 proofs, each for itself."""
        return OutcomesBody(outcomes=await _settled(request, rooms, body.proofs))


async def _settled(request: Request, rooms: Rooms, bodies: list[ProofBody]) -> list[OutcomeBody]:
    host = request.client.host if request.client else _UNKNOWN
    proofs = [
        SignedProof(b64decode(body.payload), bytes.fromhex(body.signature)) for body in bodies
    ]
    return [outcome_body(each) for each in await rooms.settling.of_address(host, proofs)]
