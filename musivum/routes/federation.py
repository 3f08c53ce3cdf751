"""What musivums that list each other ask: pages of the ledger, and how the others stand.

A page is for the operator, with the token, and for a partner, with the signature that it signs all
its calls with; a partner's answer is signed as well.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import Body, Depends, FastAPI, Query, Request, Response

from musivum.bodies.fields import NoArguments
from musivum.bodies.ledger import SnapshotArguments, SnapshotBody
from musivum.bodies.rules import FEW
from musivum.doors.questions import OPERATOR, render
from musivum.doors.tracker import Rooms
from musivum.federation.asking import SNAPSHOT
from musivum.federation.words import FederationBody, ForgetBody, ForgottenBody
from musivum.routes.operators import Credentials, admin_of
from musivum.routes.public import Nothing, described
from musivum.routes.signed import admitted
from tessella.core.errors import UnknownEntry
from tessella.core.ids import PeerId
from tessella.core.signed_request import NONCE, PEER
from tessella.web.errors import answers

STATUS, FORGET = "/federation/status", "/federation/forget"
_JSON = "application/json"


def add_federation_routes(app: FastAPI, rooms: Rooms) -> None:
    """The routes of partners, and about them."""
    question, admin = OPERATOR[SNAPSHOT], admin_of(rooms)

    @app.get(
        SNAPSHOT,
        response_model=question.gives,
        responses=answers(401, 403, 429, *question.refusals),
        **described(question),
    )
    async def snapshot(
        request: Request, asked: Annotated[SnapshotArguments, Query()], given: Credentials
    ) -> Response:
        if PEER not in request.headers:
            await admin(request, given)
            page = await rooms.operator.snapshot(asked)
            return Response(render(question, page), media_type=_JSON)
        rooms.federation.check_partner(PeerId(request.headers[PEER]))
        caller = await admitted(request, rooms, rooms.federation.admission)
        rooms.federation.heard(caller)
        body = render(question, await _page(rooms, asked))
        nonce = bytes.fromhex(request.headers[NONCE])
        headers = rooms.federation.signed(caller, nonce, body)
        return Response(body, media_type=_JSON, headers=headers)

    @app.get(STATUS, operation_id="federation", summary=STATUS, responses=answers(429))
    async def federation(_: Nothing) -> FederationBody:
        """Whose credits count here, and how their ledgers are followed."""
        return rooms.federation.status()

    @app.post(
        FORGET,
        operation_id="federation_forget",
        summary=FORGET,
        responses=answers(401, 413, 429, 503),
        dependencies=[Depends(admin)],
    )
    async def forget(body: Annotated[ForgetBody, FEW, Body()], _: Nothing) -> ForgottenBody:
        """Undo all that was taken from a partner, and read its ledger anew."""
        return await rooms.federation.forget(PeerId(body.peer_id))


async def _page(rooms: Rooms, asked: SnapshotArguments) -> SnapshotBody:
    """A page; to who has more entries than there are, the head alone, which says so."""
    try:
        return await rooms.ledger_pages.snapshot(asked)
    except UnknownEntry:
        head = await rooms.ledger_pages.head(NoArguments())
        return SnapshotBody(since=asked.since, entries=[], next=asked.since, head=head)
