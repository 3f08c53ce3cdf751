"""The OpenAPI document against the server, by schemathesis: what is generated from it may break
nothing, and every answer is one that it names.

`CONTRACT_EXAMPLES` cases an operation; a hundred take two minutes.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import pytest
import requests
import requests.auth
import schemathesis
from schemathesis import Case
from schemathesis.checks import CheckContext
from schemathesis.core.transport import Response
from schemathesis.engine import events, from_schema
from schemathesis.engine.recorder import ScenarioRecorder
from schemathesis.hooks import HookContext
from schemathesis.schemas import BaseSchema

from musivum.testing_http import registration_body
from tessella.core.errors import TessellaError
from tessella.core.signed_request import Request

pytestmark = [pytest.mark.contract, pytest.mark.timeout(600)]

EXAMPLES = int(os.environ.get("CONTRACT_EXAMPLES", "30"))
SIGNED = ("/register", "/announce", "/ready", "/deregister", "/report_failure")
SEEN: Counter[str] = Counter()


def codes(error: type[TessellaError]) -> dict[str, int]:
    """The codes of a class and all below it, with their statuses."""
    found = {error.code: error.status}
    for each in error.__subclasses__():
        found |= codes(each)
    return found


CODES = {**codes(TessellaError), "method_not_allowed": 405}


@schemathesis.check
def says_a_known_code(ctx: CheckContext, response: Response, case: Case[Any]) -> None:
    SEEN[f"{case.method} {case.path} {response.status_code}"] += 1
    if response.status_code >= 400:
        error = response.json()["error"]
        assert CODES.get(error["code"]) == response.status_code, error
        assert error["message"]


@schemathesis.hook
def before_call(context: HookContext, case: Case[Any], kwargs: dict[str, Any]) -> None:
    """What is valid is said by a node that could say it: generated keys are nobody's."""
    is_valid = case.meta is not None and case.meta.generation.mode.is_positive
    if NODE.live is not None and is_valid and isinstance(case.body, dict):
        case.body = NODE.says(case.path, case.body)


class SayingNode:
    """Puts into bodies what cannot be guessed: the caller's key, its place, and what it holds."""

    def __init__(self) -> None:
        self.live: Any = None
        self._bodies = 0
        self._here: str | None = None

    def says(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """The body with true values: always for whose it is, else half of the time."""
        self._bodies += 1
        caller = self.live.caller()
        mine = registration_body(caller.peer_id, caller.addrs)
        if path not in ("/register", "/deregister") and self._here != caller.peer_id:
            self._register(mine)
        # One that registers for too little is gone as well.
        self._here = None if path in ("/register", "/deregister") else caller.peer_id
        if path == "/register":
            true = ("peer_id", "public_key") if self._bodies % 2 else tuple(mine)
            kept = {key: mine[key] for key in true if key != "vram_mb"}
            return {**body, **kept, "layers": None}
        if path == "/ready" and self._bodies % 2:
            return {"layers": self._held(caller.peer_id)}
        return body

    def _register(self, body: dict[str, Any]) -> None:
        answer = requests.post(
            f"{self.live.url}/register", json=body, auth=Signing(self.live), timeout=5
        )
        answer.raise_for_status()

    def _held(self, peer_id: str) -> list[int]:
        rows = requests.get(f"{self.live.url}/peers", timeout=5).json()
        layers: list[int] = next(
            row["layer_ranges"][0] for row in rows if row["peer_id"] == peer_id
        )
        return layers


NODE = SayingNode()


class Signing(requests.auth.AuthBase):
    """Signs what goes out, whatever that is, as a node of the mesh."""

    def __init__(self, live: Any) -> None:
        self._live = live

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        caller = self._live.next_caller()
        parts = urlsplit(request.url or "")
        query = tuple(parse_qsl(parts.query, keep_blank_values=True))
        body = request.body or b""
        content = body.encode() if isinstance(body, str) else body
        asked = Request(
            request.method or "", unquote(parts.path), query, content, self._live.audience
        )
        request.headers.update(self._live.sign(caller, asked))
        return request


def fuzzed(schema: BaseSchema) -> list[str]:
    """What schemathesis found, by its own engine."""
    checks = schema.config.checks
    # A model that cannot be asked is an answer here, and no accident.
    checks.not_a_server_error.expected_statuses = ["2xx", "3xx", "4xx", "503"]
    schema.config.generation.update(max_examples=EXAMPLES)
    schema.config.phases.stateful.enabled = False
    SEEN.clear()
    found, operations = [], set()
    for event in from_schema(schema).execute():
        if isinstance(event, events.NonFatalError):
            found.append(f"{event.label}: {event.value}")
        if isinstance(event, events.FatalError):
            raise event.exception
        if isinstance(event, events.ScenarioFinished) and event.recorder.cases:
            operations.add(event.recorder.label)
            found += failures(event.recorder)
    seen = Counter(key.rsplit(" ", 1)[1] for key in SEEN.elements())
    figures = f"{len(operations)} operations, {SEEN.total()} answers, {len(found)} failures"
    print(f"\n{figures}: {dict(sorted(seen.items()))}")  # noqa: T201 - what a run is for
    return found


def failures(recorder: ScenarioRecorder) -> Iterator[str]:
    for case_id, checks in recorder.checks.items():
        for check in checks:
            if check.failure_info is not None:
                failure, case = check.failure_info.failure, recorder.cases[case_id].value
                told = f"{failure.title}: {failure.message}"
                yield f"{check.name}: {case.method} {case.path} {case.query} {case.body!r}: {told}"


def accept_what_no_schema_says(schema: BaseSchema) -> None:
    """400 for an address that leads nowhere, or a range that ends before it starts."""
    check = schema.config.checks.positive_data_acceptance
    check.expected_statuses = [*check.expected_statuses, "400"]


def report(found: list[str]) -> None:
    if found:
        pytest.fail("\n\n".join(sorted(set(found))), pytrace=False)


def schema_of(live: Any, *paths: str, unsigned: bool = False) -> BaseSchema:
    """The served document, or of it some paths, and what is signed without its headers."""
    document = requests.get(f"{live.url}/openapi.json", timeout=5).json()
    if paths:
        document["paths"] = {path: document["paths"][path] for path in paths}
    for methods in document["paths"].values() if unsigned else ():
        for operation in methods.values():
            operation["parameters"], operation["security"] = [], []
    schema = schemathesis.openapi.from_dict(document)
    schema.config.update(base_url=live.url)
    return schema


def test_anybody_is_answered_as_documented(live: Any) -> None:
    report(fuzzed(schema_of(live)))


def test_nodes_are_answered_as_documented(live: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NODE, "live", live)
    schema = schema_of(live, *SIGNED, unsigned=True)
    schema.auth.set_from_requests(Signing(live))
    accept_what_no_schema_says(schema)
    report(fuzzed(schema))


def test_the_operator_is_answered_as_documented(live: Any) -> None:
    schema = schema_of(live, "/rebalance", "/reputation", "/weights/manifest")
    schema.config.update(headers={"Authorization": f"Bearer {live.token}"})
    accept_what_no_schema_says(schema)
    report(fuzzed(schema))


def test_an_answer_that_is_not_documented_would_be_found(live: Any) -> None:
    schema = schema_of(live, "/api/v1/assignment")
    del schema.raw_schema["paths"]["/api/v1/assignment"]["get"]["responses"]["404"]
    assert "Received: 404" in " ".join(fuzzed(schema))
