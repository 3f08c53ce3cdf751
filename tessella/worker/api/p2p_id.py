"""`GET /p2p_id`: which peer answers here, signed for a caller who wants that proven.

So a musivum finds out whether a URL is the node's own: see `tessella.core.challenge`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from tessella.core.addresses import PeerAddress
from tessella.core.challenge import CHALLENGE_PATH, read_challenge
from tessella.core.identity import Identity
from tessella.core.signed_request import NONCE_PATTERN, PEER_PATTERN, sign_answer
from tessella.web.errors import answers
from tessella.web.signed_docs import header_parameters
from tessella.worker.api.reading import NoQuery

_CALLER = header_parameters(
    (
        ("Tessella-Peer", PEER_PATTERN, "Who calls, by peer id: comes with a nonce."),
        ("Tessella-Nonce", NONCE_PATTERN, "Drawn for this call: comes with a peer."),
    ),
    required=False,
)
_SIGNED: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The peer; signed where a peer and a nonce came.",
        "headers": {
            "Tessella-Signature": {
                "description": "By the key of this node, over caller, nonce and body.",
                "schema": {"type": "string", "pattern": "^[0-9a-f]{128}$"},
            }
        },
    }
}


class P2pId(BaseModel):
    """The key to pin, and where it answers over libp2p."""

    peer_id: str
    multiaddrs: list[str]
    """With `/p2p/<peer id>`; none where only HTTP leads to the node."""


@dataclass(frozen=True, slots=True)
class P2pIdRoom:
    """Who a node is."""

    identity: Identity
    addrs: Callable[[], tuple[str, ...]]
    """Where it can be dialled now: multiaddrs without their `/p2p` part."""

    def answer(self, request: Request) -> Response:
        """The peer, signed where the caller wants that. Raises BadRequest for a header."""
        asked = read_challenge(request.headers)
        peer = PeerAddress(self.identity.peer_id, self.addrs())
        told = P2pId(peer_id=peer.peer_id, multiaddrs=list(peer.full()))
        body = told.model_dump_json().encode()
        # Of a cache on the way it would be the signature of another call.
        headers = {"Cache-Control": "no-store"}
        if asked is not None:
            headers |= sign_answer(self.identity, asked.text(body))
        return Response(body, media_type="application/json", headers=headers)


def add_p2p_id(app: FastAPI, room: P2pIdRoom) -> None:
    """The route of a node's identity."""

    @app.get(
        CHALLENGE_PATH,
        operation_id="p2p_id",
        summary=CHALLENGE_PATH,
        response_model=P2pId,
        responses=_SIGNED | answers(429),
        openapi_extra={"parameters": _CALLER},
    )
    async def p2p_id(request: Request, _: NoQuery) -> Response:
        """The peer that answers here, and a proof of it for who asks for one."""
        return room.answer(request)
