"""The OpenAPI document: whatever a route takes, gives and refuses stands in it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import trio

from musivum.config import MusivumConfig
from musivum.doors.questions import LEDGER, OPERATOR, PUBLIC
from musivum.testing_http import answering
from p2p.testing import MemoryNetwork
from tessella.core.signed_request import HEADERS

Document = dict[str, Any]
Operation = dict[str, Any]

SIGNED = (
    "/register",
    "/announce",
    "/ready",
    "/deregister",
    "/report_failure",
    "/api/v1/audit_report",
)
ASKED_SIGNED = ("/api/v1/session_grant", "/api/v1/credits", "/api/v1/audit_task")
PROOFS = ("/work_done", "/api/v1/work_done_batch")
FEDERATION = {("GET", "/federation/status"), ("POST", "/federation/forget")}
# The statuses of errors, beside 400 and 429, which anybody may be answered everywhere.
REFUSALS = {
    ("GET", "/peers"): set(),
    ("GET", "/api/network/models"): set(),
    ("GET", "/workers"): set(),
    ("GET", "/model_health"): set(),
    ("GET", "/api/v1/assignment"): {404, 409},
    ("GET", "/api/v1/chain"): {404, 503},
    ("GET", "/weights/manifest"): {404},
    ("GET", "/weights/manifests"): set(),
    ("GET", "/p2p_id"): set(),
    ("GET", "/status"): set(),
    ("GET", "/metrics"): set(),
    ("POST", "/register"): {401, 403, 409, 413, 503},
    ("POST", "/announce"): {401, 403, 404, 413},
    ("POST", "/ready"): {401, 403, 404, 409, 413, 503},
    ("POST", "/deregister"): {401, 403, 413, 503},
    ("POST", "/report_failure"): {401, 403, 404, 409, 413},
    ("POST", "/rebalance"): {401, 413, 503},
    ("POST", "/weights/manifest"): {401, 413, 503},
    ("GET", "/reputation"): {401},
    ("GET", "/ledger/head"): {503},
    ("GET", "/ledger/proof"): {404, 503},
    ("GET", "/api/v1/session_grant"): {401, 403, 404, 503},
    ("GET", "/api/v1/credits"): {401, 403, 503},
    ("GET", "/api/v1/audit_task"): {401, 403, 503},
    ("POST", "/api/v1/audit_report"): {401, 403, 413, 503},
    ("POST", "/work_done"): {413, 503},
    ("POST", "/api/v1/work_done_batch"): {413, 503},
    ("GET", "/ledger"): {401, 503},
    ("GET", "/ledger/snapshot"): {401, 403, 404, 503},
    ("GET", "/federation/status"): set(),
    ("POST", "/federation/forget"): {401, 413, 503},
    ("GET", "/credits"): {401, 503},
    ("POST", "/slash"): {401, 409, 413, 503},
    ("POST", "/appeal"): {401, 409, 413, 503},
}


@pytest.fixture(scope="module")
def document() -> Document:
    return trio.run(served)


async def served() -> Document:
    async with answering(MemoryNetwork(), b"m" * 32, MusivumConfig()) as door:
        found: Document = (await door.client.get("/openapi.json")).json()
        return found


def operations(document: Document) -> Iterator[tuple[str, str, Operation]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield method.upper(), path, operation


def test_every_route_is_there_with_what_it_refuses(document: Document) -> None:
    found = {
        (method, path): {int(status) for status in operation["responses"]}
        for method, path, operation in operations(document)
    }
    assert found == {route: {200, 400, 429, *more} for route, more in REFUSALS.items()}
    named = {("GET", path) for path in (*PUBLIC, *LEDGER, *ASKED_SIGNED)}
    named |= {("POST", path) for path in (*SIGNED, *PROOFS)}
    named |= {(each.method, each.path) for each in OPERATOR.values()}
    named |= FEDERATION
    assert set(found) == named | {("GET", "/status"), ("GET", "/metrics")}


def test_every_operation_has_a_name_and_says_what_it_does(document: Document) -> None:
    ids = [operation["operationId"] for _, _, operation in operations(document)]
    assert len(set(ids)) == len(ids)
    for _, path, operation in operations(document):
        assert operation["operationId"].isidentifier()
        assert operation["summary"] == path
        words = operation["description"]
        assert words.endswith(".")
        assert len(words.split()) >= 2
        assert "Raises" not in words


def test_every_answer_has_a_schema(document: Document) -> None:
    error = {"application/json": {"schema": {"$ref": "#/components/schemas/ErrorBody"}}}
    for _, path, operation in operations(document):
        for status, answer in operation["responses"].items():
            assert answer["description"]
            if status != "200":
                assert answer["content"] == error
        (media,) = operation["responses"]["200"]["content"]
        assert media == ("text/plain" if path == "/metrics" else "application/json")
        assert operation["responses"]["200"]["content"][media]["schema"]


def test_no_answer_is_422(document: Document) -> None:
    assert "422" not in str(document)
    assert "HTTPValidationError" not in str(document)


def test_what_a_node_signs_is_declared(document: Document) -> None:
    schemes = document["components"]["securitySchemes"]
    assert schemes["Signature"]["name"] == "Tessella-Signature"
    for _, path, operation in operations(document):
        headers = {
            each["name"].lower(): each
            for each in operation.get("parameters", [])
            if each["in"] == "header"
        }
        if path not in (*SIGNED, *ASKED_SIGNED):
            assert headers == {}
            continue
        assert operation["security"] == [{"Signature": []}]
        assert {*headers, "tessella-signature"} == set(HEADERS)
        assert all(each["required"] and each["schema"]["pattern"] for each in headers.values())
        assert (path in ASKED_SIGNED) or operation["requestBody"]["required"]


def test_what_is_the_operators_is_declared(document: Document) -> None:
    scheme = document["components"]["securitySchemes"]["AdminToken"]
    assert (scheme["type"], scheme["scheme"]) == ("http", "bearer")
    theirs = {(each.method, each.path) for each in OPERATOR.values()}
    theirs.add(("POST", "/federation/forget"))
    for method, path, operation in operations(document):
        if path not in (*SIGNED, *ASKED_SIGNED):
            is_theirs = operation.get("security") == [{"AdminToken": []}]
            assert is_theirs == ((method, path) in theirs)


def test_bodies_and_queries_take_nothing_that_is_not_named(document: Document) -> None:
    schemas = document["components"]["schemas"]
    for _, path, operation in operations(document):
        body = operation.get("requestBody")
        if body is not None:
            reference = body["content"]["application/json"]["schema"]["$ref"]
            assert schemas[reference.rsplit("/", 1)[1]]["additionalProperties"] is False, path
