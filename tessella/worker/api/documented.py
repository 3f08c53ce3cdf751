"""What the OpenAPI document says of a route beside its body."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from tessella.web.errors import answers
from tessella.web.streaming import EVENTS
from tessella.worker.api.brought import TICKET_PARAMETERS

_EVENT = {
    "type": "object",
    "required": ["data"],
    "properties": {
        "data": {
            "type": "string",
            "description": "JSON: the same with `object` for a chunk, and `delta` for `message`. "
            "The last is `[DONE]`, unless it is an error.",
        }
    },
}
_EVENTS = {
    "description": "The answer; with `stream`, as server-sent events that end with `[DONE]`.",
    "content": {EVENTS: {"itemSchema": _EVENT}},
    "headers": {
        "X-Request-Id": {"schema": {"type": "string"}, "description": "Names the answer."},
        "Tessella-Chain": {
            "schema": {"type": "string"},
            "description": "The nodes that answered, as PEER:START-STOP of their layers.",
        },
        "Tessella-Tier": {
            "schema": {"type": "string"},
            "description": "How soon the request was due: vip, standard or leech. Absent where no "
            "musivum gave a ticket, and nobody is paid.",
        },
        "Server-Timing": {
            "schema": {"type": "string"},
            "description": "Milliseconds of queue, prefill, decode and hops; of a stream, those "
            "until the first token, and all in a comment before its end.",
        },
    },
}
# The chain fails in ways that its peers tell: by the status that follows from who is to blame.
_REFUSALS = (400, 401, 403, 404, 409, 413, 429, 500, 502, 503)


def completion(path: str, told: type[BaseModel]) -> dict[str, Any]:
    """The words of a completion route."""
    return {
        "summary": path,
        "response_model": told,
        "responses": {200: _EVENTS, **answers(*_REFUSALS)},
        "openapi_extra": {"parameters": TICKET_PARAMETERS},
    }
