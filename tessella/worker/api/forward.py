"""`POST /v1/forward`: the hop streams of stages that reach this node over HTTP alone."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from p2p.peers import Handler
from tessella.worker.api.signed import documented
from tessella.worker.http_hops.asks import (
    END,
    FORWARD_PATH,
    MAX_WAIT_SECONDS,
    STREAM_BYTES,
    Act,
)
from tessella.worker.http_hops.doors import OCTETS, StreamDoor

STATUSES = (429, 503)
STREAM_PARAMETERS: list[dict[str, Any]] = [
    {"name": name, "in": "query", "required": required, "description": text, "schema": schema}
    for name, required, text, schema in (
        (
            "stream",
            True,
            "Which stream of the caller's.",
            {"type": "string", "pattern": f"^[0-9a-f]{{{2 * STREAM_BYTES}}}$"},
        ),
        (
            "act",
            True,
            "What to do to it.",
            {"type": "string", "enum": [act.value for act in Act]},
        ),
        (
            "number",
            False,
            "Which write or which read this is: both count from 1 without a gap.",
            {"type": "integer", "minimum": 0, "default": 0},
        ),
        (
            "wait",
            False,
            "Seconds that a read may wait for something to say.",
            {"type": "number", "minimum": 0, "maximum": MAX_WAIT_SECONDS, "default": 0},
        ),
    )
]
STREAM_BODY: dict[str, Any] = {
    "description": "Frames, each with its length before it: of a write or finish only.",
    "content": {OCTETS: {"schema": {"type": "string", "format": "binary"}}},
}
STREAM_ANSWER: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The frames that were said since.",
        "content": {OCTETS: {"schema": {"type": "string", "format": "binary"}}},
        "headers": {
            "Tessella-Signature": {
                "description": "By the key of this node, over caller, nonce, end and answer.",
                "schema": {"type": "string", "pattern": "^[0-9a-f]{128}$"},
            },
            END.title(): {
                "description": "There where nothing more will be said.",
                "schema": {"type": "string", "enum": ["finish", "reset"]},
            },
        },
    }
}


def add_forward(app: FastAPI, door: StreamDoor, handler: Handler) -> None:
    """The route of hops. `handler` serves a hop stream, as `HopStreams.serve` does.

    The app has to take bodies of MAX_HOP_BODY there, and as many requests as tokens and hidden
    states come.
    """
    told = documented(
        "forward", FORWARD_PATH, *STATUSES, parameters=STREAM_PARAMETERS, body=STREAM_BODY
    )
    told["responses"] |= STREAM_ANSWER

    @app.post(FORWARD_PATH, response_class=Response, **told)
    async def forward(request: Request) -> Response:
        """The hop: hidden states in, progress and trouble out, under leases as over libp2p."""
        return await door.answer(request, handler)
