"""Every error of the tree has one shape, and bugs say nothing."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from tessella.core import errors
from tessella.core.errors import (
    BadSignature,
    BodyTooLarge,
    Busy,
    FrameTooLarge,
    LocalError,
    ModelUnavailable,
    NotFinite,
    PeerSilent,
    PortInUse,
    PositionGap,
    RemoteFailure,
    TessellaError,
    TooManyRequests,
    UnknownModel,
    UnsupportedField,
    WorkerNotAuthorized,
)
from tessella.core.messages.failure import MAX_FAIL_CHARS
from tessella.web.errors import (
    BadField,
    ErrorBody,
    HttpRefusal,
    RealJson,
    answers,
    describe,
    error_answer,
    error_body,
    field_path,
    told_error,
    type_of,
)

NOW = 1_800_000_000.9


def tree(root: type[TessellaError]) -> list[type[TessellaError]]:
    return [root, *(leaf for child in root.__subclasses__() for leaf in tree(child))]


def made(kind: type[TessellaError]) -> TessellaError:
    """One of each, as its constructor wants it."""
    special: dict[type[TessellaError], TessellaError] = {
        FrameTooLarge: FrameTooLarge(9, 8),
        BodyTooLarge: BodyTooLarge(8),
        PositionGap: PositionGap(9, 8),
        RemoteFailure: RemoteFailure("x", "text", retry=True),
        HttpRefusal: HttpRefusal(408, "request_timeout", "text"),
        UnsupportedField: UnsupportedField("field", "text"),
    }
    return special.get(kind) or kind("text")


EVERY = [made(kind) for kind in tree(TessellaError) if kind.__module__.startswith(errors.__name__)]


def told(error: TessellaError | None) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(bytes(error_answer(error, now=NOW).body))
    return body


@pytest.mark.parametrize("error", EVERY, ids=lambda error: type(error).__name__)
def test_every_error_of_the_tree_is_told_in_the_same_shape(error: TessellaError) -> None:
    answer = error_answer(error, now=NOW)
    body = json.loads(bytes(answer.body))
    ErrorBody.model_validate(body, strict=True)
    assert answer.status_code == error.status
    assert answer.headers["content-type"] == "application/json"
    assert (body["error"]["code"], body["error"]["message"]) == (error.code, error.told())
    assert body["error"].keys() <= {"code", "message", "type", "retry_after", "param"}


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        *((status, "invalid_request_error") for status in (400, 404, 405, 408, 409, 410, 413, 431)),
        (401, "authentication_error"),
        (403, "permission_error"),
        (429, "rate_limit_error"),
        (503, "unavailable_error"),
        *((status, "server_error") for status in (500, 501, 502, 504)),
    ],
)
def test_the_type_follows_from_the_status(status: int, kind: str) -> None:
    assert type_of(status) == kind


@pytest.mark.parametrize(
    ("error", "status", "code", "kind"),
    [
        (UnknownModel("no"), 404, "unknown_model", "invalid_request_error"),
        (WorkerNotAuthorized("no"), 403, "worker_not_authorized", "permission_error"),
        (PeerSilent("no"), 502, "peer_silent", "server_error"),
        (LocalError("secret"), 500, "internal_error", "server_error"),
    ],
)
def test_golden_answers(error: TessellaError, status: int, code: str, kind: str) -> None:
    answer = error_answer(error, now=NOW)
    assert answer.status_code == status
    assert told(error)["error"] == {"code": code, "message": error.told(), "type": kind}
    assert "retry-after" not in answer.headers
    assert b"secret" not in answer.body


@pytest.mark.parametrize(
    ("error", "wait"),
    [
        (Busy("full"), 1),
        (TooManyRequests("slow down"), 1),
        (RemoteFailure("x", "y", retry=True), None),
        (PortInUse("y"), None),
        (ModelUnavailable("a hole"), None),
        (ModelUnavailable("loading", retry_after=0.0), 1),
        (ModelUnavailable("loading", retry_after=-3.0), 1),
        (ModelUnavailable("loading", retry_after=2.0), 2),
        (ModelUnavailable("loading", retry_after=2.1), 3),
        (ModelUnavailable("loading", retry_after=math.inf), None),
        (ModelUnavailable("loading", retry_after=math.nan), None),
    ],
)
def test_a_wait_is_told_in_whole_seconds_and_twice(error: TessellaError, wait: int | None) -> None:
    answer = error_answer(error, now=NOW)
    assert answer.headers.get("retry-after") == (None if wait is None else str(wait))
    assert told(error)["error"].get("retry_after") == wait


def test_details_of_a_hole_are_plain_values() -> None:
    details: dict[str, Any] = {
        "missing": ((4, 8),),
        "claim_mb": 2048,
        "progress": math.nan,
        "eta_seconds": None,
    }
    body = told(ModelUnavailable("layers 4 to 7", retry_after=1.5, **details))
    assert body == {
        "error": {
            "code": "model_unavailable",
            "message": "layers 4 to 7",
            "type": "unavailable_error",
            "retry_after": 2,
            "details": {
                "missing": [[4, 8]],
                "claim_mb": 2048,
                "progress": None,
                "eta_seconds": None,
            },
        }
    }
    ErrorBody.model_validate(body, strict=True)


def test_who_is_not_known_learns_what_time_it_is_here() -> None:
    assert error_answer(BadSignature("no"), now=NOW).headers["tessella-time"] == "1800000000"
    assert "tessella-time" not in error_answer(WorkerNotAuthorized("no"), now=NOW).headers


def test_a_request_that_is_not_read_to_its_end_ends_the_connection() -> None:
    assert error_answer(BodyTooLarge(1), now=NOW).headers["connection"] == "close"
    assert "connection" not in error_answer(UnknownModel("x"), now=NOW).headers


def test_a_long_message_is_cut_and_a_torn_character_survives() -> None:
    assert told(UnknownModel("x" * 5000))["error"]["message"] == "x" * MAX_FAIL_CHARS
    assert told(UnknownModel("\ud800"))["error"]["message"] == "\ud800"


def test_a_bug_is_told_as_nothing_but_a_bug() -> None:
    assert told(None)["error"]["code"] == "internal_error"
    assert told_error(KeyError("secret")) is None


def test_a_group_is_what_its_only_leaf_is() -> None:
    error = NotFinite("NaN at layer 3")
    assert told_error(ExceptionGroup("", [ExceptionGroup("", [error])])) is error
    assert told_error(ExceptionGroup("", [error, Busy("full")])) is None
    assert told_error(ExceptionGroup("", [KeyError("x")])) is None


@pytest.mark.parametrize(
    ("refused", "status", "code", "message"),
    [
        (HTTPException(404), 404, "unknown_route", "nothing is answered at /a/b"),
        (HTTPException(405), 405, "method_not_allowed", "Method Not Allowed"),
        (HTTPException(400, "no body"), 400, "bad_request", "no body"),
        (HTTPException(418, "tea"), 418, "http_418", "tea"),
        (ClientDisconnect(), 400, "bad_request", "the client left before the end of its body"),
    ],
)
def test_what_the_framework_refuses_has_a_code(
    refused: Exception, status: int, code: str, message: str
) -> None:
    error = told_error(refused, "/a/b")
    assert error is not None
    assert (error.status, error.code, str(error)) == (status, code, message)


@pytest.mark.parametrize(
    ("found", "line"),
    [
        ([{"type": "missing", "loc": ("query", "vram_mb"), "msg": "Field required"}],
         "query.vram_mb: Field required"),
        ([{"type": "x", "loc": ("body", "a", 0), "msg": "m"}, {}, {}], "body.a.0: m (and 2 more)"),
        ([{"type": "json_invalid", "loc": ("body", 7), "msg": "JSON decode error",
           "ctx": {"error": "Expecting value"}}],
         "body: not JSON: Expecting value at character 7"),
    ],
)  # fmt: skip
def test_a_validation_error_names_its_field(found: list[dict[str, Any]], line: str) -> None:
    assert describe(found) == line
    error = told_error(RequestValidationError(found))
    assert error is not None
    assert (error.status, error.code, str(error)) == (400, "bad_request", line)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"a": [1, 2.5, None, True, "é"]}, b'{"a":[1,2.5,null,true,"\\u00e9"]}'),
        ({"a": (math.nan, {"b": -math.inf})}, b'{"a":[null,{"b":null}]}'),
        (math.inf, b"null"),
        ("\ud800", b'"\\ud800"'),
    ],
)
def test_answers_are_json_that_every_reader_takes(value: object, text: bytes) -> None:
    assert RealJson(value).body == text


def test_a_route_declares_its_refusals_by_number() -> None:
    declared = answers(401, 409)
    assert {key: each["model"] for key, each in declared.items()} == {
        401: ErrorBody,
        409: ErrorBody,
    }
    assert declared[401]["description"] == "Unauthorized"


@pytest.mark.parametrize(
    ("error", "param"),
    [
        (UnsupportedField("logit_bias", "no"), "logit_bias"),
        (BadField("stop[0]", "stop[0]: too long"), "stop[0]"),
        (BadField("", "body: not an object"), None),
        (UnknownModel("no"), None),
    ],
)
def test_the_field_to_blame_is_told_by_itself(error: TessellaError, param: str | None) -> None:
    assert told(error)["error"].get("param") == param
    assert told(error) == error_body(error)


def test_a_validation_error_tells_its_field_without_the_part_of_the_request() -> None:
    found = [{"type": "x", "loc": ("body", "a", 0, "b"), "msg": "m"}]
    assert told(told_error(RequestValidationError(found)))["error"]["param"] == "a[0].b"
    torn = [{"type": "json_invalid", "loc": ("body", 7), "msg": "m", "ctx": {"error": "x"}}]
    assert "param" not in told(told_error(RequestValidationError(torn)))["error"]


@pytest.mark.parametrize(
    ("loc", "path"),
    [
        (("body", "messages", 3, "content"), "messages[3].content"),
        (("query", "model_id"), "model_id"),
        (("body",), ""),
        (("a", "b"), "a.b"),
        ((), ""),
    ],
)
def test_a_place_is_written_as_a_path(loc: tuple[str | int, ...], path: str) -> None:
    assert field_path(loc) == path


def test_words_of_the_asker_do_not_break_the_line() -> None:
    error = told(BadField("a\r\nb\x1b[2J", "query.a\r\nb\x1b[2J: no such parameter"))["error"]
    assert (error["message"], error["param"]) == ("query.a b[2J: no such parameter", "a b[2J")
