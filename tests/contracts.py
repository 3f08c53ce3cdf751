"""What schemathesis finds of an OpenAPI document and the app behind it, by its own engine.

`CONTRACT_EXAMPLES` cases an operation.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import requests
import schemathesis
from schemathesis import Case
from schemathesis.checks import CheckContext
from schemathesis.config import HealthCheck, SchemathesisConfig
from schemathesis.core.transport import Response
from schemathesis.engine import events, from_schema
from schemathesis.engine.recorder import ScenarioRecorder
from schemathesis.schemas import BaseSchema

from tessella.core.errors import TessellaError

EXAMPLES = int(os.environ.get("CONTRACT_EXAMPLES", "30"))
SEEN: Counter[str] = Counter()
"""Answers of the last run, as `GET /health 200`."""


def codes(error: type[TessellaError]) -> dict[str, int]:
    """The codes of a class and all below it, with their statuses."""
    found = {error.code: error.status}
    for each in error.__subclasses__():
        found |= codes(each)
    return found


CODES = {**codes(TessellaError), "method_not_allowed": 405}


@schemathesis.check
def says_a_known_code(ctx: CheckContext, response: Response, case: Case[Any]) -> None:
    """A check: every error has the one body, with a code of ours that has this status."""
    SEEN[f"{case.method} {case.path} {response.status_code}"] += 1
    if response.status_code >= 400 and case.method != "HEAD":
        error = response.json()["error"]
        assert CODES.get(error["code"]) == response.status_code, error
        assert error["message"]
        assert "\n" not in error["message"]


def fuzzed(schema: BaseSchema) -> list[str]:
    """What was found; also prints how much was asked and how it was answered."""
    checks = schema.config.checks
    # Who is full, or cannot answer now, says so: `says_a_known_code` looks how.
    checks.not_a_server_error.expected_statuses = ["2xx", "3xx", "4xx", "503"]
    # What breaks a rule may be too long besides, and that is seen first.
    rejected = checks.negative_data_rejection
    rejected.expected_statuses = [*rejected.expected_statuses, "413"]
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
    """What failed of one scenario, a line each."""
    for case_id, checks in recorder.checks.items():
        for check in checks:
            if check.failure_info is not None:
                failure, case = check.failure_info.failure, recorder.cases[case_id].value
                told = f"{failure.title}: {failure.message}"
                yield f"{check.name}: {case.method} {case.path} {case.query} {case.body!r}: {told}"


def accept(schema: BaseSchema, *statuses: str) -> None:
    """What is valid by its schema may be answered with these too: no schema says all."""
    check = schema.config.checks.positive_data_acceptance
    check.expected_statuses = [*check.expected_statuses, *statuses]


def report(found: list[str]) -> None:
    """Fail with what was found, if anything was."""
    if found:
        pytest.fail("\n\n".join(sorted(set(found))), pytrace=False)


def schema_of(url: str, *paths: str, unsigned: bool = False) -> BaseSchema:
    """The served document, or of it some paths; if `unsigned`, without what a signature needs."""
    document = requests.get(f"{url}/openapi.json", timeout=10).json()
    if paths:
        document["paths"] = {path: document["paths"][path] for path in paths}
    for methods in document["paths"].values() if unsigned else ():
        for operation in methods.values():
            operation["parameters"] = [
                each for each in operation["parameters"] if each["in"] != "header"
            ]
            operation["security"] = []
    # What a path may hold is found by throwing much away.
    config = SchemathesisConfig(suppress_health_check=[HealthCheck.filter_too_much])
    schema = schemathesis.openapi.from_dict(document, config=config)
    schema.config.update(base_url=url)
    return schema
