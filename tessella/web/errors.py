"""The error tree as HTTP answers: one body for every error of the program.

    {"error": {"code": "model_unavailable", "message": "...", "type": "unavailable_error",
               "retry_after": 3, "details": {...}}}

`code` is the error's own, `message` is what the error lets be told, and `type` is one of a closed
set that follows from the status. `param` is the field that is to blame, where one is. Only these
words leave the machine: whatever is no TessellaError is a bug of ours, goes to the log and is told
as `internal_error`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, Literal

from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse

from tessella.core.errors import (
    BadRequest,
    LocalError,
    ModelUnavailable,
    RemoteError,
    TessellaError,
    UnknownRoute,
    UnsupportedField,
)
from tessella.core.exits import leaves
from tessella.core.messages.failure import MAX_FAIL_CHARS
from tessella.core.text import one_line

ErrorType = Literal[
    "invalid_request_error",
    "authentication_error",
    "permission_error",
    "rate_limit_error",
    "unavailable_error",
    "server_error",
]

TIME_HEADER = "Tessella-Time"
"""Our unix time in whole seconds, in a 401: a caller whose clock is wrong can correct itself."""
RETRY_SECONDS = 1
"""Before a retry that nobody can say more about: what is full now is seldom full for long."""

_TYPES: dict[int, ErrorType] = {
    401: "authentication_error",
    403: "permission_error",
    429: "rate_limit_error",
    503: "unavailable_error",
}
# What Starlette and FastAPI refuse by a bare status.
_CODES = {400: "bad_request", 405: "method_not_allowed", 413: "body_too_large"}
# After these the rest of the request is not worth waiting for.
_CLOSING = {408, 413, 431}


class ErrorDetail(BaseModel):
    """What went wrong."""

    code: str = Field(description="Names the error; a program decides by it.")
    message: str = Field(description="One line for a person.")
    type: ErrorType
    param: str | None = Field(
        default=None, description="The field of the request that is to blame, where one is."
    )
    retry_after: int | None = Field(
        default=None, ge=1, description="Seconds after which asking again may help."
    )
    details: dict[str, Any] | None = Field(
        default=None, description="What a program may want to know besides, by the code."
    )


class ErrorBody(BaseModel):
    """The body of every error answer."""

    error: ErrorDetail


class HttpRefusal(RemoteError):
    """A request that HTTP's own rules forbid, with a status and a code that nothing else has."""

    def __init__(self, status: int, code: str, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.code = code


class BadFraming(BadRequest):
    """A request whose end cannot be told, so that nothing can follow it on its connection."""


class BadField(BadRequest):
    """A field of a request that breaks its rule. `text` is the whole message."""

    def __init__(self, field: str, text: str) -> None:
        super().__init__(text)
        self.field = field


class RealJson(JSONResponse):
    """JSON that every reader takes: see `real_json`."""

    def render(self, content: object) -> bytes:
        """The body. Raises TypeError for what has no JSON form."""
        return real_json(content)


def real_json(content: object) -> bytes:
    """JSON in ASCII, on one line, with null for the numbers that JSON does not have.

    In ASCII nothing is a line end to one reader and a character to another, and a torn character
    survives. Raises TypeError for what has no JSON form.
    """
    try:
        text = json.dumps(content, allow_nan=False, separators=(",", ":"))
    except ValueError:
        text = json.dumps(_finite(content), allow_nan=False, separators=(",", ":"))
    return text.encode("ascii")


def answers(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The `responses=` of a route that may refuse with these statuses."""
    return {
        status: {"model": ErrorBody, "description": HTTPStatus(status).phrase}
        for status in statuses
    }


def type_of(status: int) -> ErrorType:
    """Which of the closed set of types an error status has."""
    return _TYPES.get(status) or ("invalid_request_error" if status < 500 else "server_error")


def told_error(exc: Exception, path: str = "") -> TessellaError | None:
    """What the asker is told of an exception; None for one that is a bug of ours.

    A group is what its only leaf is. `path` is named where nothing is answered under it.
    """
    found = list(leaves(exc))
    if len(found) != 1:
        return None
    only = found[0]
    if isinstance(only, TessellaError):
        return only
    if isinstance(only, RequestValidationError):
        return _invalid(only.errors())
    if isinstance(only, HTTPException):
        return _refusal(only, path)
    if isinstance(only, ClientDisconnect):
        return BadRequest("the client left before the end of its body")
    return None


def describe(errors: Sequence[Any]) -> str:
    """What FastAPI found wrong with a request, in one line that names the first field."""
    first = errors[0]
    if first["type"] == "json_invalid":
        return f"body: not JSON: {first['ctx']['error']} at character {first['loc'][-1]}"
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"[:MAX_FAIL_CHARS] + more


def _invalid(errors: Sequence[Any]) -> BadRequest:
    first, line = errors[0], describe(errors)
    return (
        BadRequest(line)
        if first["type"] == "json_invalid"
        else BadField(field_path(first["loc"]), line)
    )


def field_path(loc: Sequence[str | int]) -> str:
    """A place in a request as `messages[0].content`: without which part of the request it is in."""
    inside = loc[1:] if loc and loc[0] in ("body", "query", "path", "header") else loc
    parts = (f"[{each}]" if isinstance(each, int) else f".{each}" for each in inside)
    return "".join(parts).removeprefix(".")[:MAX_FAIL_CHARS]


def error_answer(
    error: TessellaError | None, *, now: float, headers: Mapping[str, str] | None = None
) -> RealJson:
    """The answer for an error; None is a bug of ours. `now` is in unix seconds."""
    error = LocalError() if error is None else error
    sent = dict(headers or {})
    wait = _retry_after(error)
    if wait is not None:
        sent["Retry-After"] = str(wait)
    if error.status == HTTPStatus.UNAUTHORIZED:
        sent[TIME_HEADER] = str(int(now))
    if error.status in _CLOSING or isinstance(error, BadFraming):
        sent["Connection"] = "close"
    return RealJson(error_body(error), status_code=error.status, headers=sent)


def error_body(error: TessellaError | None) -> dict[str, Any]:
    """The body of an error answer, for what is in the midst of another; None is a bug of ours."""
    error = LocalError() if error is None else error
    told: dict[str, Any] = {
        "code": error.code,
        "message": one_line(error.told()[:MAX_FAIL_CHARS]),
        "type": type_of(error.status),
    }
    if isinstance(error, BadField | UnsupportedField) and error.field:
        told["param"] = one_line(error.field[:MAX_FAIL_CHARS])
    wait = _retry_after(error)
    if wait is not None:
        told["retry_after"] = wait
    if isinstance(error, ModelUnavailable) and error.details:
        told["details"] = error.details
    return {"error": told}


def _retry_after(error: TessellaError) -> int | None:
    if isinstance(error, ModelUnavailable):
        seconds = error.retry_after
        if seconds is None or not math.isfinite(seconds):
            return None
        return max(1, math.ceil(seconds))
    return RETRY_SECONDS if error.retry and error.status in (429, 503) else None


def _refusal(refused: HTTPException, path: str) -> TessellaError:
    status = refused.status_code
    if status == HTTPStatus.NOT_FOUND:
        return UnknownRoute(f"nothing is answered at {path[:MAX_FAIL_CHARS]}")
    return HttpRefusal(status, _CODES.get(status, f"http_{status}"), str(refused.detail))


def _finite(value: object) -> object:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(each) for key, each in value.items()}
    return [_finite(each) for each in value] if isinstance(value, list | tuple) else value
