"""The OpenAPI document of a node against a live one, by schemathesis: what is generated from it
breaks nothing, and every answer is one that it names.

`CONTRACT_EXAMPLES` cases an operation.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Iterator
from functools import partial
from queue import Queue
from typing import Any

import pytest
import requests
import schemathesis
import trio
from schemathesis import Case
from schemathesis.checks import CheckContext
from schemathesis.core.transport import Response
from schemathesis.engine import events, from_schema
from schemathesis.hooks import HookContext
from schemathesis.schemas import BaseSchema

from tessella.core.completions import CompletionRequest
from tessella.core.errors import ContextTooLong, TooManySessions
from tessella.core.messages import Alternative
from tessella.web.server import serve_http
from tessella.worker.api.rooms import Say
from tests.worker.api.conftest import PATHS, Node, begun, delta, done, minimal

pytestmark = [pytest.mark.contract, pytest.mark.timeout(600)]

EXAMPLES = int(os.environ.get("CONTRACT_EXAMPLES", "30"))
START_SECONDS = 10.0
SEEN: Counter[str] = Counter()
CONTRADICTORY = (
    "max_completion_tokens",
    "model",
    "response_format",
    "session",
    "tool_choice",
    "tools",
    "top_logprobs",
)


async def answer(request: CompletionRequest, say: Say) -> None:
    """Answers most; some prompts are too long, and now and then there is no room."""
    text = request.prompt or "".join(each.content for each in request.messages)
    if len(text) > 200:
        raise ContextTooLong(f"the prompt is {len(text)} tokens")
    if request.sampling.seed % 7 == 3:
        raise TooManySessions("full")
    await say(begun())
    for token_id, text in ((1, "Hel"), (2, "lo"), (0, "")):
        top = [Alternative(5, -2.0)] * min(1, request.sampling.logprobs)
        await say(delta(text, token_id, top))
    await say(done(3))


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """Where a node answers, in a thread of its own, until the tests are done."""
    started: Queue[tuple[str, trio.lowlevel.TrioToken, trio.CancelScope]] = Queue()

    async def run() -> None:
        async with trio.open_nursery() as nursery:
            serve = partial(serve_http, Node(script=answer).app(), ["127.0.0.1:0"])
            (where,) = await nursery.start(serve)
            token = trio.lowlevel.current_trio_token()
            started.put((where, token, nursery.cancel_scope))

    thread = threading.Thread(target=trio.run, args=(run,))
    thread.start()
    where, token, scope = started.get(timeout=START_SECONDS)
    yield where
    token.run_sync_soon(scope.cancel)
    thread.join(START_SECONDS)
    assert not thread.is_alive()


@schemathesis.check
def has_the_body_of_all_errors(ctx: CheckContext, response: Response, case: Case[Any]) -> None:
    SEEN[f"{case.method} {case.path} {response.status_code}"] += 1
    if response.status_code >= 400 and case.method != "HEAD":
        error = response.json()["error"]
        assert error["code"]
        assert error["message"]
        assert "\n" not in error["message"]


@schemathesis.hook
def before_call(context: HookContext, case: Case[Any], kwargs: dict[str, Any]) -> None:
    """Every second body that is valid is also one that can be answered: no schema says which."""
    is_valid = case.meta is not None and case.meta.generation.mode.is_positive
    if is_valid and case.path in PATHS and isinstance(case.body, dict):
        SEEN[f"valid {case.path}"] += 1
        if SEEN[f"valid {case.path}"] % 2:
            kept = {name: value for name, value in case.body.items() if name not in CONTRADICTORY}
            case.body = minimal(case.path, **kept | minimal(case.path))


def fuzzed(schema: BaseSchema) -> list[str]:
    """What schemathesis found, by its own engine."""
    checks = schema.config.checks
    # A node that is full is no accident.
    checks.not_a_server_error.expected_statuses = ["2xx", "3xx", "4xx", "503"]
    # What no schema says: lengths that contradict each other, a tool of no name, another model.
    accepted = checks.positive_data_acceptance
    accepted.expected_statuses = [*accepted.expected_statuses, "400", "404", "503"]
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
            for case_id, results in event.recorder.checks.items():
                case = event.recorder.cases[case_id].value
                found += [
                    f"{check.name}: {case.method} {case.path} {case.query} {case.body!r}: "
                    f"{check.failure_info.failure.title}: {check.failure_info.failure.message}"
                    for check in results
                    if check.failure_info is not None
                ]
    answers = [key for key in SEEN.elements() if not key.startswith("valid")]
    seen = Counter(key.rsplit(" ", 1)[1] for key in answers)
    figures = f"{len(operations)} operations, {len(answers)} answers, {len(found)} failures"
    print(f"\n{figures}: {dict(sorted(seen.items()))}")  # noqa: T201 - what a run is for
    return found


def schema_of(url: str, *paths: str) -> BaseSchema:
    """The served document, or of it some paths."""
    document = requests.get(f"{url}/openapi.json", timeout=5).json()
    if paths:
        document["paths"] = {path: document["paths"][path] for path in paths}
    schema = schemathesis.openapi.from_dict(document)
    schema.config.update(base_url=url)
    return schema


def test_anybody_is_answered_as_documented(url: str) -> None:
    if found := fuzzed(schema_of(url)):
        pytest.fail("\n\n".join(sorted(set(found))), pytrace=False)
    # Each completion route was answered, and refused.
    for path in PATHS:
        assert SEEN[f"POST {path} 200"] > 0
        assert SEEN[f"POST {path} 400"] > 0


def test_an_answer_that_is_not_documented_would_be_found(url: str) -> None:
    schema = schema_of(url, "/v1/models/{model}")
    del schema.raw_schema["paths"]["/v1/models/{model}"]["get"]["responses"]["404"]
    assert "Received: 404" in " ".join(fuzzed(schema))
